package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
	"firn/tiering"
)

// names: the state counts on a broker.
func names(s meta.PartitionState, id int32) bool {
	return slices.ContainsFunc(slices.Concat(s.ISR, s.Eligible), func(m meta.Member) bool { return m.ID == id })
}

// become has the replica take on s as soon as it can.
func (r *replica) become(s meta.PartitionState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want = &s
	if r.newer != nil {
		r.newer()
	}
	hint(r.kick)
}

// resign has the replica lead no more: its registration is over (R6).
func (r *replica) resign() {
	_, epoch, _ := r.part.Leader()
	r.mu.Lock()
	if r.want != nil {
		epoch = max(epoch, r.want.LeaderEpoch)
	}
	r.mu.Unlock()
	r.become(meta.PartitionState{Leader: meta.NoLeader, LeaderEpoch: epoch})
}

// roles takes on one state after the other.
func (r *replica) roles() {
	p := r.p
	what := fmt.Sprintf("role of %v", r.tp)
	for {
		select {
		case <-r.kick:
		case <-p.ctx.Done():
			return
		}
		for r.takeRole(what) {
			if p.pause(p.ctx, what, time.Second) != nil {
				return
			}
		}
	}
}

// takeRole takes on the state that is wanted, and tells whether to try again.
func (r *replica) takeRole(what string) (again bool) {
	p := r.p
	if p.pause(p.ctx, what, 50*time.Microsecond) != nil {
		return false
	}
	ctx, cancel := context.WithCancel(as(p.ctx, what))
	defer cancel()
	drain(r.kick)
	r.mu.Lock()
	want := r.want
	r.newer = cancel
	r.mu.Unlock()
	if want == nil {
		return false
	}
	err := r.part.Become(ctx, *want, p.self())
	p.log.note("%v takes epoch %d of %v, version %d: %v", r.tp, want.LeaderEpoch, want.Leader, want.Version, err)
	if errors.Is(err, tiering.ErrDiverged) || r.local.Err() != nil {
		p.giveUp(r)
	}
	done := err == nil || errors.Is(err, replication.ErrFencedEpoch) || errors.Is(err, replication.ErrNotLeader) || hopeless(err)
	r.mu.Lock()
	if done && r.want == want {
		r.want = nil
	}
	again = r.want != nil
	r.mu.Unlock()
	for _, m := range p.w.machines {
		if f := p.fetchers[m.id]; f != nil {
			f.wake()
		}
	}
	p.wantProposals()
	return again
}

func hopeless(err error) bool {
	for _, end := range []error{segment.ErrQuarantined, segment.ErrFailed, segment.ErrClosed, tiering.ErrDiverged, tiering.ErrRolledBack} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
