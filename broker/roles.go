package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
	"firn/tiering"
)

// become makes r take on state s, in the background: to lead may mean to wait
// for the archive (T8). done is called after the first try, or when one was under
// way already; then it tries again until it has succeeded, or until another state
// or the replica's end comes first.
func (rs *replicas) become(r *replica, s meta.PartitionState, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.want = &s
	if r.mu.busy {
		r.mu.newer()
		done()
		return
	}
	r.mu.busy, r.mu.newer = true, func() {}
	rs.roles.Go(func() {
		more := rs.step(r)
		done()
		for more {
			more = rs.step(r)
		}
	})
}

// step takes on the state that r wants, if any; false: there is nothing to do.
func (rs *replicas) step(r *replica) bool {
	ctx, cancel := context.WithCancel(rs.ctx)
	defer cancel()
	r.mu.Lock()
	want := r.mu.want
	if want == nil || rs.ctx.Err() != nil {
		r.mu.busy = false
		r.mu.Unlock()
		return false
	}
	r.mu.newer = cancel
	r.mu.Unlock()

	err := r.part.Become(ctx, *want, rs.self())
	r.mu.Lock()
	r.mu.failed = err != nil
	r.mu.Unlock()
	if rs.moved != nil {
		rs.moved(r.part)
	}
	rs.changed.raise()
	if err == nil || errors.Is(err, replication.ErrFencedEpoch) || errors.Is(err, replication.ErrNotLeader) { // fenced; or stopped for good
		r.mu.Lock()
		if r.mu.want == want {
			r.mu.want = nil
		}
		r.mu.Unlock()
		return true
	}
	if ctx.Err() != nil {
		return true
	}
	if hopeless(err) {
		if !errors.Is(err, segment.ErrQuarantined) { // of that the mender tells
			rs.log.Error("partition is out of service until somebody repairs it and restarts the broker",
				"topic", r.name.Topic, "partition", r.name.Partition, "epoch", want.LeaderEpoch, "err", err)
		}
		r.mu.Lock()
		if r.mu.want == want {
			r.mu.want = nil
		}
		r.mu.Unlock()
		return true
	}
	rs.log.Warn("partition can't take its role yet; will retry", "topic", r.name.Topic, "partition", r.name.Partition, "epoch", want.LeaderEpoch, "err", err)
	sleep(ctx, roleRetry)
	return true
}

// resignAll has every replica that leads, or is about to, lead no more: the
// registration under which it did has ended (R6).
func (rs *replicas) resignAll() {
	for _, r := range rs.list() {
		_, epoch, here := r.part.Leader()
		r.mu.Lock()
		if r.mu.want != nil {
			epoch = max(epoch, r.mu.want.LeaderEpoch)
		}
		busy := r.mu.busy
		r.mu.Unlock()
		if here || busy {
			rs.become(r, meta.PartitionState{Leader: meta.NoLeader, LeaderEpoch: epoch}, func() {})
		}
	}
}

// stuck: it has failed to take its role, and will try again.
func (r *replica) stuck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.failed
}

// roleRetry is how long a replica waits before it tries again to take its role.
const roleRetry = 2 * time.Second

// hopeless: trying again changes nothing.
func hopeless(err error) bool {
	for _, final := range []error{segment.ErrQuarantined, segment.ErrFailed, segment.ErrClosed, tiering.ErrDiverged, tiering.ErrRolledBack} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// abandon makes a change of role under way end.
func (r *replica) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.want = nil
	if r.mu.busy {
		r.mu.newer()
	}
}

// waitAtMost waits for wg, but no longer than d.
func waitAtMost(ctx context.Context, wg *sync.WaitGroup, d time.Duration) {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(d):
	case <-ctx.Done():
	}
}
