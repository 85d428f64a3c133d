package broker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"firn/replication"
	"firn/replication/meta"
)

// inSync writes the changes of their ISRs that the partitions led here ask for:
//
//	a replica has come to be in sync         that partition   ┐
//	brokers came, went or gave something up  all              ├─▶ Propose ─▶ CommitAll ─▶ Settle
//	replica.lag.time.max.ms / 2              all              ┘
//
// What is asked for at the same time goes into few commits, each write on its own
// account.
type inSync struct {
	b    *Broker
	log  *slog.Logger
	kick chan struct{}

	mu  sync.Mutex
	due []*replication.Partition

	shrinks, expands atomic.Int64
}

func newInSync(b *Broker) *inSync {
	return &inSync{b: b, log: b.log, kick: make(chan struct{}, 1)}
}

// look asks for a look at a partition. It comes from the way of a fetch, and
// does next to nothing.
func (s *inSync) look(p *replication.Partition) {
	s.mu.Lock()
	s.due = append(s.due, p)
	s.mu.Unlock()
	s.lookAgain()
}

func (s *inSync) lookAgain() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// run looks until ctx ends.
func (s *inSync) run(ctx context.Context) error {
	var seen *topicIndex
	var lastAll time.Time
	for ctx.Err() == nil {
		changed := s.b.changed.wait()
		now := time.Now()
		x := s.b.topics.Load()
		every := max(x.settings.Millis("replica.lag.time.max.ms")/2, time.Millisecond)
		s.mu.Lock()
		due := s.due
		s.due = nil
		s.mu.Unlock()
		if seen != x || now.Sub(lastAll) >= every {
			seen, lastAll = x, now
			due = due[:0]
			for _, r := range s.b.replicas.list() {
				due = append(due, r.part)
			}
		}
		wait := every - now.Sub(lastAll)
		if s.propose(ctx, x, due, now) {
			wait = min(wait, proposeAgain)
			lastAll = time.Time{} // what has failed is asked for again
		}
		t := time.NewTimer(max(wait, 0))
		select {
		case <-t.C:
		case <-s.kick:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return nil
}

// proposeAgain is when what has failed is looked at again.
const proposeAgain = 250 * time.Millisecond

// propose asks for what these partitions want, and says whether some of it failed.
func (s *inSync) propose(ctx context.Context, x *topicIndex, parts []*replication.Partition, now time.Time) (failed bool) {
	var asked []replication.Proposal
	var writes []meta.Write
	fence := s.b.fence()
	maxLag := x.settings.Millis("replica.lag.time.max.ms")
	for _, p := range parts {
		t := x.byID[p.TopicID()]
		if !t.has(p.Index()) {
			continue
		}
		if _, _, here := p.Leader(); !here {
			continue
		}
		pr, ok := p.Propose(replication.Cluster{
			Now:        now,
			MaxLag:     maxLag,
			Registered: x.registered,
			Replicas:   t.Replicas[p.Index()],
			GivenUp:    func(id int32) bool { return x.offline[id].Lists(t.ID, p.Index()) },
			Draining:   func(id int32) bool { return x.offline[id].Drains(x.registered[id].Epoch) },
		})
		if !ok {
			continue
		}
		w, err := meta.ChangeState(pr.StateChange)
		if err != nil { // the picture has a member in another registration than the state
			p.Settle(pr, &meta.Conflict{Err: meta.ErrVersion}, now)
			failed = true
			continue
		}
		asked = append(asked, pr)
		writes = append(writes, w.With(fence...))
	}
	if len(writes) == 0 {
		return failed
	}
	for i, err := range meta.CommitAll(ctx, s.b.cfg.Meta, writes) {
		pr := &asked[i]
		t := x.byID[pr.ID]
		t.parts[pr.Partition].Settle(*pr, err, time.Now())
		if err != nil {
			failed = true
			s.log.Warn("ISR not changed; will retry", "topic", pr.Topic, "partition", pr.Partition, "joins", pr.Joined, "leaves", pr.Left, "err", err)
			continue
		}
		s.shrinks.Add(int64(len(pr.Left)))
		s.expands.Add(int64(len(pr.Joined)))
		s.log.Info("ISR changed", "topic", pr.Topic, "partition", pr.Partition, "epoch", pr.State.LeaderEpoch, "joins", pr.Joined, "leaves", pr.Left, "isr", pr.State.ISR)
	}
	return failed
}
