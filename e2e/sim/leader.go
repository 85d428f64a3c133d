package main

import (
	"context"
	"fmt"
	"time"

	"firn/broker"
	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
	"firn/tiering"
)

// maxLag is replica.lag.time.max.ms.
const maxLag = 1500 * time.Millisecond

// wantProposals has the leaders look at their ISRs soon.
func (p *process) wantProposals() {
	hint(p.proposing)
}

// propose writes the changes of ISR that the leaders here ask for.
func (p *process) propose() {
	for {
		tick := time.NewTimer(maxLag / 3)
		select {
		case <-p.proposing:
		case <-tick.C:
		case <-p.ctx.Done():
		}
		tick.Stop()
		if p.pause(p.ctx, "looks at its ISRs", 200*time.Microsecond) != nil {
			return
		}
		drain(p.proposing)
		for _, r := range p.parts {
			p.proposeFor(r)
		}
		if p.reg.Load() != nil {
			states := make([]meta.PartitionState, len(p.parts))
			for i, r := range p.parts {
				states[i] = r.part.State()
			}
			p.readmitted(states)
		}
	}
}

func (p *process) proposeFor(r *replica) {
	reg := p.reg.Load()
	if reg == nil {
		return
	}
	p.cluster.Lock()
	live, offline := p.cluster.live, p.cluster.offline
	p.cluster.Unlock()
	pr, ok := r.part.Propose(replication.Cluster{
		Now: time.Now(), MaxLag: maxLag, Registered: live, Replicas: p.w.replicas,
		GivenUp: func(broker int32) bool { return offline[broker].Lists(meta.TopicID(r.tp.ID), r.tp.Num) },
	})
	if !ok {
		return
	}
	write, err := meta.ChangeState(pr.StateChange)
	if err != nil { // the picture has a member in another registration than the state
		err = &meta.Conflict{Err: meta.ErrVersion}
	} else {
		err = write.With(reg.Fence()...).Commit(p.ctx, p.zk)
	}
	p.log.note("%v proposes ISR %v: %v", r.tp, pr.State.ISR, err)
	r.part.Settle(pr, err, time.Now())
	if err == nil {
		p.w.counts.add("ISR changes", 1)
	}
}

// serveFetch answers a replica's fetch.
func (p *process) serveFetch(ctx context.Context, self meta.Member, q fetchRequest) (a replication.FetchAnswer) {
	if !p.opened.Load() {
		return replication.FetchAnswer{Err: errRefused}
	}
	if err := p.meet(self); err != nil {
		return replication.FetchAnswer{Err: err}
	}
	w := replication.NewWaiter()
	defer w.Reset(0)
	wait := time.NewTimer(q.wait)
	defer wait.Stop()
	for first := true; ; first = false {
		a.Partitions = a.Partitions[:0]
		w.Reset(1)
		empty := true
		for _, ask := range q.parts {
			one := p.fetchOne(self, ask, first)
			empty = empty && one.Err == nil && len(one.Records) == 0 && one.Diverging.Epoch < 0 &&
				one.HighWatermark <= ask.HighWatermark && one.LogStart <= ask.LogStart
			a.Partitions = append(a.Partitions, one)
			if part := p.parts[ask.Index].part; one.Err == nil {
				w.Add(part, ask.Offset, segment.UntilCounted)
				w.Add(part, ask.HighWatermark, segment.UntilHighWatermark)
			}
		}
		if !empty {
			return a
		}
		select {
		case <-w.C():
			if p.pause(ctx, fmt.Sprintf("has news for %v", self), 20*time.Microsecond) != nil {
				return a
			}
		case <-wait.C:
			return a
		case <-ctx.Done():
			return a
		}
	}
}

// meet judges who fetches: only the present registration of a broker counts, as
// far as we know it (A13, A22).
func (p *process) meet(m meta.Member) error {
	p.cluster.Lock()
	defer p.cluster.Unlock()
	if r, ok := p.cluster.live[m.ID]; !ok || r.Epoch != m.Epoch {
		return replication.ErrUnknownEpoch
	}
	return nil
}

// fetchOne reads for a replica. tell: the fetch tells where it is, which a look
// again does not.
func (p *process) fetchOne(self meta.Member, ask fetchPart, tell bool) replication.PartitionAnswer {
	r := p.parts[ask.Index]
	a := replication.PartitionAnswer{TopicID: meta.TopicID(r.tp.ID), Index: ask.Index, Diverging: segment.EpochEnd{Epoch: -1, End: -1}}
	if tell {
		diverging, due, err := r.part.Fetched(replication.ReplicaFetch{
			Member: self, Epoch: ask.Epoch, Offset: ask.Offset, LastEpoch: ask.LastEpoch, Now: time.Now(), Proven: ask.proven,
		})
		if due {
			p.wantProposals()
		}
		if a.Diverging, a.Err = diverging, err; err != nil || diverging.Epoch >= 0 || diverging.End >= 0 {
			return a
		}
	}
	res, err := r.part.Read(segment.ReadRequest{Offset: ask.Offset, MaxBytes: 4096, Until: segment.UntilCounted, MinOne: true, Whole: true}, replication.View{Epoch: ask.Epoch, Replica: true})
	if err != nil {
		a.Err = err
		return a
	}
	a.Records = contents(&res.Records)
	a.HighWatermark, a.LogStart = res.Offsets.HighWatermark, res.Offsets.LogStart
	return a
}

// contents copies records, and releases them.
func contents(r *segment.Records) []byte {
	defer r.Release()
	b, _ := r.AppendTo(nil) // what could be read of them
	return b
}

// serveEnd answers OffsetForLeaderEpoch.
func (p *process) serveEnd(q replication.EpochQuestion) replication.EpochAnswer {
	a := replication.EpochAnswer{Topic: q.Topic, Index: q.Index}
	if !p.opened.Load() {
		a.Err = replication.ErrNotLeader
		return a
	}
	r := p.parts[q.Index]
	log, err := r.part.Lookup(replication.View{Epoch: q.CurrentEpoch, Replica: true})
	if err != nil {
		a.Err = err
		return a
	}
	a.End = log.EpochEnd(q.Epoch)
	return a
}

// serveStart answers where a log begins.
func (p *process) serveStart(k replication.FetchKey) replication.StartAnswer {
	a := replication.StartAnswer{Topic: k.Topic, Index: k.Index}
	if !p.opened.Load() {
		a.Err = replication.ErrNotLeader
		return a
	}
	r := p.parts[k.Index]
	o, err := r.part.Offsets(replication.View{Epoch: replication.AnyEpoch})
	a.LogStart, a.Err = o.LogStart, err
	return a
}

// pointers are the broker's own, whose reads take time here and may fail.
type pointers struct {
	broker.Pointers
	p *process
}

func (p *process) pointers() pointers {
	return pointers{broker.Pointers{Store: p.zk, Self: p.reg.Load}, p}
}

func (s pointers) LoadPointer(ctx context.Context, tp tiering.Partition) (tiering.Pointer, error) {
	if err := s.p.zk.answer(ctx, fmt.Sprintf("%s%s reads the pointer of %v", s.p.name, actor(ctx), tp)); err != nil {
		return tiering.Pointer{}, err
	}
	return s.Pointers.LoadPointer(ctx, tp)
}

// upload steps the partition's uploader, again and again.
func (p *process) upload(r *replica) {
	what := fmt.Sprintf("uploads %v", r.tp)
	ctx := as(p.ctx, what)
	for p.pause(p.ctx, what, 100*time.Millisecond) == nil {
		for {
			more, err := r.tiered.Step(ctx, p.m.now())
			if err != nil {
				p.log.note("%s: %s", what, withoutID(err.Error()))
			}
			if !more || err != nil || p.pause(p.ctx, what, time.Millisecond) != nil {
				break
			}
		}
	}
}

// keep applies retention, deletes what is due in the archive, and sweeps.
func (p *process) keep(r *replica) {
	what := fmt.Sprintf("keeps %v", r.tp)
	ctx := as(p.ctx, what)
	for n := 1; p.pause(p.ctx, what, 700*time.Millisecond) == nil; n++ {
		if err := r.tiered.Keep(ctx, p.m.now()); err != nil {
			p.log.note("%s: %s", what, withoutID(err.Error()))
		}
		if n%3 != 0 {
			continue
		}
		swept, err := r.tiered.Sweep(ctx, p.m.now())
		if err != nil {
			p.log.note("%s: sweep: %s", what, withoutID(err.Error()))
		}
		p.w.counts.add("orphans swept", swept)
	}
}

// evict deletes what the archive has from the disk.
func (p *process) evict(r *replica) {
	what := fmt.Sprintf("evicts %v", r.tp)
	ctx := as(p.ctx, what)
	for p.pause(p.ctx, what, 500*time.Millisecond) == nil {
		before := r.local.Offsets().LocalStart
		if err := r.tiered.Evict(ctx, p.m.now()); err != nil {
			p.log.note("%s: %s", what, withoutID(err.Error()))
		}
		if o := r.local.Offsets(); o.LocalStart > before {
			p.log.note("%s: to %d", what, o.LocalStart)
			p.w.counts.add("local deletions", 1)
		}
	}
}
