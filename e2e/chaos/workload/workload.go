package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Config says what clients do.
type Config struct {
	Clock   Clock
	Seeds   []string
	History *Histories
	// Session tells the names of several processes of one run apart.
	Session int
	Seed    uint64
	// Idempotent, Plain and Weak are how many producers of each kind there are,
	// Hot and Cold how many readers.
	Idempotent, Plain, Weak, Hot, Cold int
	// Pause is between a producer's bursts of Burst records of Bytes.
	Pause        time.Duration
	Burst, Bytes int
}

// Load is running clients.
type Load struct {
	c     Config
	names atomic.Int64

	producers, readers sync.WaitGroup
	stopProducers      context.CancelFunc
	stopReaders        context.CancelFunc

	// Acked counts acknowledged records at acks=all, ColdReads answers of records
	// that no leader had on its disk, LeaderChanges and Elections what they say.
	Acked, Failed, Unknown              atomic.Int64
	Flying                              atomic.Int64 // sent and not answered, now
	Read, ColdReads, Passes             atomic.Int64
	LeaderChanges, Elections            atomic.Int64
	Commits                             atomic.Int64
	ReadErrors, OffsetErrors, GroupFail atomic.Int64
	// Corrupt counts reads that were told of damage in the archive.
	Corrupt atomic.Int64

	watch watch
}

// Start starts the clients; they go on until Stop.
func Start(c Config) *Load {
	l := &Load{c: c}
	l.watch.init(c.History.Partitions)
	pctx, stopProducers := context.WithCancel(context.Background())
	rctx, stopReaders := context.WithCancel(context.Background())
	l.stopProducers, l.stopReaders = stopProducers, stopReaders
	for kind, n := range map[string]int{"i": c.Idempotent, "w": c.Weak} {
		for i := range n {
			rng := l.rng(kind, i)
			l.producers.Go(func() { l.produce(pctx, kind, rng) })
		}
	}
	for i := range c.Plain {
		rng := l.rng("n", i)
		l.producers.Go(func() { l.produceSingly(pctx, rng) })
	}
	for range c.Hot {
		l.readers.Go(func() { l.readHot(rctx) })
	}
	for i := range c.Cold {
		rng := l.rng("c", i)
		l.readers.Go(func() { l.readCold(rctx, rng) })
	}
	l.readers.Go(func() { l.watchOffsets(rctx) })
	l.readers.Go(func() { l.watchLeaders(rctx) })
	l.readers.Go(func() { l.commit(rctx) })
	return l
}

func (l *Load) rng(kind string, i int) *rand.Rand {
	return rand.New(rand.NewPCG(l.c.Seed, uint64(kind[0])<<32|uint64(i)))
}

// StopProducers ends the producers; every record has an outcome then.
func (l *Load) StopProducers() { l.stopProducers(); l.producers.Wait() }

// StopReaders ends all others.
func (l *Load) StopReaders() { l.stopReaders(); l.readers.Wait() }

// name is a new client's: its kind, and a number of its own in the whole run.
func (l *Load) name(kind string) string {
	return fmt.Sprintf("%s%d-%d", kind, l.c.Session, l.names.Add(1))
}

func (l *Load) now() time.Duration { return l.c.Clock.Now() }

// client connects under a name, with the patience that all clients have.
func (l *Load) client(name string, more ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.ClientID(name), kgo.SeedBrokers(l.c.Seeds...),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(5 * time.Second),
		kgo.RetryBackoffFn(func(tries int) time.Duration { return min(50*time.Millisecond<<min(tries, 4), 500*time.Millisecond) }),
		kgo.DialTimeout(2 * time.Second), kgo.RequestTimeoutOverhead(2 * time.Second), kgo.RetryTimeout(15 * time.Second),
	}, more...)...)
	if err != nil {
		panic(err) // options that can't be: a mistake of ours
	}
	return cl
}

// sleep waits, and tells whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
