package replication

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"firn/replication/isr"
	"firn/replication/meta"
	"firn/segment"
)

// Become takes the partition's state as the metadata store has it; self is this
// broker in its current registration. It may wait for the log to make ready to
// lead, and for the archive behind it (T8), until ctx ends. The same state again
// is a no-op. After an error this replica serves nothing, and the same call may
// be made again (A14: the epoch is taken over only when all else is done).
func (p *Partition) Become(ctx context.Context, s meta.PartitionState, self meta.Member) error {
	p.endRebuild(s.LeaderEpoch)
	select {
	case p.becoming <- struct{}{}:
		defer func() { <-p.becoming }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.stopped {
		return ErrNotLeader
	}
	now := p.role.Load()
	leads := s.Leader == self // in another registration of ours, it isn't us (R6)
	switch {
	case s.LeaderEpoch < now.epoch:
		return ErrFencedEpoch // R2
	case s.LeaderEpoch == now.epoch && now.leading && leads:
		p.committed(s)
		return nil
	}
	if !leads {
		p.learn(s) // who waits is refused by resign, and asks who leads
		if now.leading {
			p.resign()
		}
		p.follow(s)
		return nil
	}
	if now.leading || now.leader != meta.NoLeader {
		p.resign() // what a former leader sends is taken no more (R2)
	}
	if err := p.log.Lead(ctx, s.LeaderEpoch); err != nil {
		if errors.Is(err, segment.ErrOtherHistory) {
			p.discards.Store(true) // before it follows another
		}
		return fmt.Errorf("replication: leading %s-%d in epoch %d: %w", p.topic, p.index, s.LeaderEpoch, err)
	}
	p.discards.Store(false)
	p.lead(s)
	return nil
}

// Stop ends whatever this replica does, for good: its topic was deleted, its
// broker shuts down, or it was moved away. Who waits is woken and refused.
func (p *Partition) Stop(ctx context.Context) error {
	p.endRebuild(math.MaxInt32)
	select {
	case p.becoming <- struct{}{}:
		defer func() { <-p.becoming }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.stopped = true
	p.resign()
	return nil
}

// resign ends a leadership or a following: first nothing more is appended or
// answered as leader, then the log stops what only a leader does.
func (p *Partition) resign() {
	now := p.role.Load()
	p.setRole(&role{epoch: now.epoch, leader: meta.NoLeader}, nil)
	if now.leading {
		p.log.StopLeading()
	}
}

// learn takes note of a state under which another broker leads.
func (p *Partition) learn(s meta.PartitionState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.LeaderEpoch > p.mu.state.LeaderEpoch || s.Version >= p.mu.state.Version {
		p.mu.state = s
	}
}

func (p *Partition) follow(s meta.PartitionState) {
	if now := p.role.Load(); *now == (role{epoch: s.LeaderEpoch, leader: s.Leader}) {
		return
	}
	p.setRole(&role{epoch: s.LeaderEpoch, leader: s.Leader}, nil)
}

// lead begins a leadership with a log that is ready.
func (p *Partition) lead(s meta.PartitionState) {
	o := p.log.Offsets()
	p.mu.Lock()
	t := isr.New(s, p.mu.rules, o.Counted, o.HighWatermark)
	p.mu.state, p.mu.asked, p.mu.began = s, asked{version: meta.Missing}, time.Time{}
	p.mu.followers, p.mu.readmitted = nil, nil
	p.mu.Unlock()
	p.setRole(leading(t, o.End), t)
}

// leading is the role of the leader whose log ended at start.
func leading(t *isr.Tracker, start int64) *role {
	s := t.State()
	return &role{
		leading: true,
		epoch:   s.LeaderEpoch,
		leader:  s.Leader,
		start:   start,
		enough:  t.Enough(),
		alone:   t.Alone(),
	}
}

// setRole publishes a role with its tracker, moves the high watermark as that
// allows, and wakes everybody: what they wait for may now never come.
func (p *Partition) setRole(r *role, t *isr.Tracker) {
	p.appending.Lock()
	p.mu.Lock()
	p.mu.tracker, p.mu.proofs = t, p.mu.proofs[:0]
	p.role.Store(r)
	p.vouchLocked()
	if t != nil {
		p.log.SetHighWatermark(t.HighWatermark())
	}
	p.mu.Unlock()
	p.appending.Unlock()
	p.wakeAll()
}

// committed takes a newer state of the epoch that this replica leads.
func (p *Partition) committed(s meta.PartitionState) {
	p.mu.Lock()
	same := p.mu.tracker.State().Version == s.Version
	p.mu.Unlock()
	if same {
		return
	}
	p.update(func(t *isr.Tracker) { p.committedLocked(t, s) })
}

// SetRules takes a changed min.insync.replicas or number of replicas.
func (p *Partition) SetRules(rules isr.Rules) {
	p.mu.Lock()
	same := p.mu.rules == rules
	p.mu.rules = rules
	p.mu.Unlock()
	if same {
		return
	}
	p.update(func(t *isr.Tracker) { t.SetRules(rules) })
}

// update changes the tracker of a leader. No append runs meanwhile: one that has
// found itself alone must have moved the high watermark before another replica
// counts (R3).
func (p *Partition) update(change func(*isr.Tracker)) {
	p.appending.Lock()
	p.mu.Lock()
	if t := p.mu.tracker; t != nil {
		t.Counted(p.log.Offsets().Counted) // a leader that is alone doesn't say so each time
		change(t)
		p.role.Store(leading(t, p.role.Load().start))
		p.vouchLocked()
		p.log.SetHighWatermark(t.HighWatermark())
	}
	p.mu.Unlock()
	p.appending.Unlock()
	p.wakeAll()
}
