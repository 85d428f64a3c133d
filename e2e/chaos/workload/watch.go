package workload

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// watch is what the watchers saw last.
type watch struct {
	mu     sync.Mutex
	id     [16]byte
	leads  []int32
	epochs []int32
	local  []int64
}

func (w *watch) init(partitions int32) {
	w.leads, w.epochs, w.local = make([]int32, partitions), make([]int32, partitions), make([]int64, partitions)
	for i := range w.leads {
		w.leads[i], w.epochs[i] = -1, -1
	}
}

// leader is who leads a partition, -1 for nobody, and the topic's id.
func (w *watch) leader(p int32) (int32, [16]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leads[p], w.id
}

func (w *watch) localStart(p int32) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.local[p]
}

// Leader is who leads a partition as far as is known, -1 for nobody.
func (l *Load) Leader(p int32) int32 {
	id, _ := l.watch.leader(p)
	return id
}

// watchLeaders asks every broker in turn who leads.
func (l *Load) watchLeaders(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, seed := range l.c.Seeds {
		// Each has a client of its own, and asks only the broker that it was given.
		cl := l.client("watch", kgo.SeedBrokers(seed))
		asked := fmt.Sprintf("b%d", i+1)
		wg.Go(func() {
			defer cl.Close()
			for sleep(ctx, 150*time.Millisecond) {
				actx, cancel := context.WithTimeout(ctx, 2*time.Second)
				req := kmsg.NewPtrMetadataRequest()
				t := kmsg.NewMetadataRequestTopic()
				t.Topic = new(l.c.History.Topic)
				req.Topics = append(req.Topics, t)
				resp, err := cl.SeedBrokers()[0].Request(actx, req)
				cancel()
				if err == nil {
					l.sawMetadata(asked, resp.(*kmsg.MetadataResponse))
				}
			}
		})
	}
}

func (l *Load) sawMetadata(asked string, m *kmsg.MetadataResponse) {
	w := &l.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range m.Topics {
		if t.ErrorCode != 0 {
			continue
		}
		w.id = t.TopicID
		for _, p := range t.Partitions {
			if p.Partition >= l.c.History.Partitions {
				continue
			}
			leader := "none"
			if p.Leader >= 0 {
				leader = fmt.Sprintf("b%d", p.Leader)
			}
			l.c.History.Of(p.Partition).Leader(l.now(), asked, leader, p.LeaderEpoch)
			old := w.epochs[p.Partition]
			if p.LeaderEpoch < old {
				continue // a slow broker
			}
			if p.LeaderEpoch > old && old >= 0 && p.Leader >= 0 {
				l.Elections.Add(1)
			}
			if was := w.leads[p.Partition]; p.Leader >= 0 && was >= 0 && was != p.Leader {
				l.LeaderChanges.Add(1)
			}
			w.epochs[p.Partition] = p.LeaderEpoch
			if p.Leader >= 0 || p.LeaderEpoch > old {
				w.leads[p.Partition] = p.Leader
			}
		}
	}
}

// watchOffsets asks where logs start and end.
func (l *Load) watchOffsets(ctx context.Context) {
	name := l.name("o")
	cl := l.client(name)
	defer cl.Close()
	a := kadm.NewClient(cl)
	note := func(verb string, more int64, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) {
		from := l.now()
		actx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		got, err := ask(actx, l.c.History.Topic)
		to := l.now()
		if err != nil {
			l.OffsetErrors.Add(1)
			// What came all the same counts.
		}
		got.Each(func(o kadm.ListedOffset) {
			if o.Err != nil || o.Offset < 0 {
				return
			}
			if verb == "local" {
				l.watch.mu.Lock()
				l.watch.local[o.Partition] = max(l.watch.local[o.Partition], o.Offset)
				l.watch.mu.Unlock()
				return
			}
			l.c.History.Of(o.Partition).Offset(verb, from, to, name, o.Offset+more)
		})
	}
	for sleep(ctx, 250*time.Millisecond) {
		note("latest", 0, a.ListEndOffsets)
		note("earliest", 0, a.ListStartOffsets)
		note("local", 0, a.ListLocalLogStartOffsets)
		note("archived", 1, a.ListLatestRemoteOffsets)
	}
}
