package workload

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/checker"
)

// reader reads partitions from given offsets on and writes down what it gets.
type reader struct {
	l    *Load
	name string
	cl   *kgo.Client
	next map[int32]int64 // the offset that each partition is read at next
}

func (l *Load) reader(from map[int32]int64, more ...kgo.Opt) *reader {
	r := &reader{l: l, name: l.name("c"), next: maps.Clone(from)}
	at := map[int32]kgo.Offset{}
	for p, offset := range from {
		at[p] = kgo.NewOffset().At(offset)
		now := l.now()
		l.c.History.Of(p).Offset("seek", now, now, r.name, offset)
	}
	r.cl = l.client(r.name, append([]kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.c.History.Topic: at}), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepRetryableFetchErrors(), kgo.FetchMaxWait(500 * time.Millisecond),
	}, more...)...)
	return r
}

// poll gets what there is, within a limit. It says how many records came, and
// whether the reader can't go on.
func (r *reader) poll(ctx context.Context, limit time.Duration, each func(p int32, first, last int64)) (n int, over bool) {
	from := r.l.now()
	pctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	fs := r.cl.PollFetches(pctx)
	to := r.l.now()
	fs.EachPartition(func(t kgo.FetchTopicPartition) {
		if t.Err != nil && !errors.Is(t.Err, context.DeadlineExceeded) && !errors.Is(t.Err, context.Canceled) {
			r.l.ReadErrors.Add(1)
			var lost *kgo.ErrDataLoss
			if errors.As(t.Err, &lost) {
				r.l.c.History.Of(t.Partition).Offset("range", from, to, r.name, lost.ConsumedTo)
				over = true
			}
			if errors.Is(t.Err, kerr.OffsetOutOfRange) {
				r.l.c.History.Of(t.Partition).Offset("range", from, to, r.name, r.next[t.Partition])
				over = true
			}
			if errors.Is(t.Err, kerr.CorruptMessage) {
				r.l.Corrupt.Add(1)
			}
		}
		if len(t.Records) == 0 {
			return
		}
		var runs []checker.Run
		for _, rec := range t.Records {
			producer, k, ok := Decode(t.Partition, rec.Value)
			if !ok {
				producer = ""
			}
			runs = checker.AppendRecord(runs, rec.Offset, producer, k)
		}
		r.l.c.History.Of(t.Partition).Read(from, to, r.name, runs)
		n += len(t.Records)
		r.next[t.Partition] = t.Records[len(t.Records)-1].Offset + 1
		each(t.Partition, t.Records[0].Offset, t.Records[len(t.Records)-1].Offset)
	})
	r.l.Read.Add(int64(n))
	return n, over
}

// readHot follows the ends of all partitions, from their starts.
func (l *Load) readHot(ctx context.Context) {
	next := map[int32]int64{}
	for p := range l.c.History.Partitions {
		next[p] = 0
	}
	for ctx.Err() == nil {
		r := l.reader(next)
		for over := false; !over && ctx.Err() == nil; {
			_, over = r.poll(ctx, time.Second, func(p int32, _, last int64) { next[p] = last + 1 })
		}
		r.cl.Close()
		sleep(ctx, 100*time.Millisecond)
	}
}

// coldPass is how long one reader of the archive goes on.
const coldPass = 3 * time.Second

// readCold reads stretches of one partition that lie in the archive, each as a
// new reader, from the start or from anywhere.
func (l *Load) readCold(ctx context.Context, rng *rand.Rand) {
	for sleep(ctx, 300*time.Millisecond) {
		p := rng.Int32N(l.c.History.Partitions)
		local := l.watch.localStart(p)
		if local <= 0 {
			continue
		}
		var from int64
		if rng.IntN(3) > 0 {
			from = rng.Int64N(local)
		}
		r := l.reader(map[int32]int64{p: from}, kgo.FetchMaxPartitionBytes(256<<10))
		until := time.Now().Add(coldPass)
		for over, at := false, from; !over && at < local && time.Now().Before(until) && ctx.Err() == nil; {
			_, over = r.poll(ctx, time.Until(until), func(_ int32, first, last int64) {
				if first < local {
					l.ColdReads.Add(1)
				}
				at = last + 1
			})
		}
		l.Passes.Add(1)
		r.cl.Close()
	}
}
