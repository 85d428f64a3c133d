package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"firn/replication"
	"firn/replication/controller"
	"firn/segment"
)

// fetcher follows one other machine: replication's step machine, with a network.
type fetcher struct {
	p   *process
	src *machine
	f   *replication.Fetcher
	who string
	n   int // requests

	// proven is when the source sent the answer to our last fetch, by partition
	// and epoch: what the next one proves. The source keeps it in the broker.
	proven map[provenKey]time.Time
	// session is what the source knows of us (KIP-227), by partition.
	session map[int32]*fetchPart

	mu    sync.Mutex
	built []rebuilt
	kick  chan struct{}
}

type provenKey struct {
	index, epoch int32
}

type rebuilt struct {
	r   replication.Rebuild
	err error
}

// fetchRequest is a fetch as it goes over the network: always a full one.
type fetchRequest struct {
	wait  time.Duration
	parts []fetchPart
}

type fetchPart struct {
	replication.FetchPartition
	HighWatermark int64
	proven        time.Time
}

func newFetcher(p *process, src *machine) *fetcher {
	f := &fetcher{p: p, src: src, who: fmt.Sprintf("follows %v", src), kick: make(chan struct{}, 1), proven: map[provenKey]time.Time{}}
	f.f = replication.NewFetcher(replication.FetcherConfig{
		Self: p.m.id, PartitionBytes: 4096, AnswerBytes: 8192, MinBytes: 1, MaxWait: 300 * time.Millisecond, Backoff: 400 * time.Millisecond, Log: p.log.logger(),
		GivenUp: func(part *replication.Partition, err error) {
			p.log.note("%v-%d is given up: %v", part.Topic(), part.Index(), err)
			p.parts[part.Index()].doomed.Store(names(part.State(), p.m.id))
			p.giveUp(p.parts[part.Index()])
		},
	})
	p.run(f.run)
	return f
}

// wake has the fetcher look at whom it follows.
func (f *fetcher) wake() {
	hint(f.kick)
}

func (f *fetcher) run() {
	for {
		if f.p.pause(f.p.ctx, "follows "+f.src.String(), 20*time.Microsecond) != nil {
			return
		}
		drain(f.kick)
		f.settle()
		now := time.Now()
		ask := f.f.Next(now)
		switch {
		case ask.Fetch != nil:
			f.fetch(ask.Fetch)
		case len(ask.Ends) > 0:
			f.ends(ask.Ends)
		case len(ask.Starts) > 0:
			f.starts(ask.Starts)
		default:
			if !f.idle(ask.Until, now) {
				return
			}
		}
	}
}

// idle waits until there is something to do.
func (f *fetcher) idle(until, now time.Time) bool {
	d := time.Hour
	if !until.IsZero() {
		d = max(until.Sub(now), 0)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-f.kick:
	case <-f.f.Flushed():
	case <-t.C:
	case <-f.p.ctx.Done():
		return false
	}
	return true
}

// settle takes over whom to follow, and what has been rebuilt.
func (f *fetcher) settle() {
	for _, r := range f.p.parts {
		if leader, epoch, ok := r.part.Follows(); ok && leader.ID == f.src.id {
			f.f.Follow(r.part, epoch)
		} else {
			f.f.Unfollow(r.part)
		}
	}
	f.mu.Lock()
	built := f.built
	f.built = nil
	f.mu.Unlock()
	for _, b := range built {
		f.f.Rebuilt(b.r, b.err, time.Now())
	}
	for {
		r, ok := f.f.NextRebuild(time.Now())
		if !ok {
			return
		}
		f.p.run(func() {
			err := r.Partition.Rebuild(as(f.p.ctx, fmt.Sprintf("rebuilds %d", r.Partition.Index())), r.Epoch)
			f.p.log.note("%s-%d starts again at the archived end: %v", r.Partition.Topic(), r.Partition.Index(), err)
			if err == nil {
				f.p.w.counts.add("rebuilt from the archive", 1)
			}
			f.mu.Lock()
			f.built = append(f.built, rebuilt{r, err})
			f.mu.Unlock()
			f.wake()
		})
	}
}

func (f *fetcher) request(what string) string {
	f.n++
	return fmt.Sprintf("%s #%d", what, f.n)
}

// patience is how long an answer is waited for.
const patience = 2 * time.Second

func (f *fetcher) fetch(q *replication.FetchRequest) {
	self := f.p.self()
	if f.session == nil || q.SessionEpoch == 0 {
		f.session = map[int32]*fetchPart{}
	}
	for _, part := range q.Partitions {
		old := f.session[part.Index]
		next := &fetchPart{FetchPartition: part}
		if old != nil {
			next.HighWatermark = old.HighWatermark
		}
		f.session[part.Index] = next
	}
	for _, k := range q.Forgotten { // what is named is forgotten again, as in Kafka
		delete(f.session, k.Index)
	}
	out := fetchRequest{wait: q.MaxWait}
	for _, r := range f.p.parts {
		if part := f.session[r.tp.Num]; part != nil {
			part.LogStart = r.tiered.Offsets().LogStart
			part.HighWatermark = r.tiered.Offsets().HighWatermark
			part.proven = f.proven[provenKey{part.Index, part.Epoch}]
			out.parts = append(out.parts, *part)
		}
	}
	type answered struct {
		replication.FetchAnswer
		at time.Time
	}
	a, err := call(f.p.ctx, f.p.w, f.p, f.p.name, f.src, f.request("fetch"), patience, func(ctx context.Context, p *process) answered {
		return answered{p.serveFetch(ctx, self, out), time.Now()}
	})
	now := time.Now()
	if err != nil {
		f.f.Unreachable(now)
		clear(f.proven)
		return
	}
	a.Session = 1
	for _, part := range a.Partitions {
		if s := f.session[part.Index]; s != nil && part.Err == nil {
			f.proven[provenKey{part.Index, s.Epoch}] = a.at
		}
	}
	f.f.TakeFetch(as(f.p.ctx, f.who), &a.FetchAnswer, now)
}

func (f *fetcher) ends(qs []replication.EpochQuestion) {
	asked := append([]replication.EpochQuestion(nil), qs...)
	a, err := call(f.p.ctx, f.p.w, f.p, f.p.name, f.src, f.request("epoch ends"), patience, func(_ context.Context, p *process) (all []replication.EpochAnswer) {
		for _, q := range asked {
			all = append(all, p.serveEnd(q))
		}
		return all
	})
	if err != nil {
		f.f.Unreachable(time.Now())
		return
	}
	f.f.TakeEnds(a, time.Now())
}

func (f *fetcher) starts(ks []replication.FetchKey) {
	asked := append([]replication.FetchKey(nil), ks...)
	a, err := call(f.p.ctx, f.p.w, f.p, f.p.name, f.src, f.request("log starts"), patience, func(_ context.Context, p *process) (all []replication.StartAnswer) {
		for _, k := range asked {
			all = append(all, p.serveStart(k))
		}
		return all
	})
	if err != nil {
		f.f.Unreachable(time.Now())
		return
	}
	f.f.TakeStarts(a, time.Now())
}

// askEnds asks brokers where replicas end that nobody leads, for the controller.
func (p *process) askEnds(ctx context.Context, qs []controller.Question) map[controller.Replica]controller.LogEnd {
	all := map[controller.Replica]controller.LogEnd{}
	for n, q := range qs {
		type answer struct {
			end segment.EpochEnd
			err error
		}
		what := fmt.Sprintf("controller asks the end of %d in epoch %d #%d", q.Partition, q.Epoch, n)
		a, err := call(ctx, p.w, p, p.name, p.w.machines[q.Member.ID], what, patience, func(_ context.Context, p *process) answer {
			if !p.opened.Load() {
				return answer{err: errRefused}
			}
			end, err := p.parts[q.Partition].part.Furthest()
			return answer{end, err}
		})
		if err == nil && a.err == nil {
			all[q.Replica] = controller.LogEnd{Epoch: a.end.Epoch, End: a.end.End}
		}
	}
	return all
}
