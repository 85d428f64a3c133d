package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
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
	r.mu.failed, r.mu.hopeless = err != nil, nil
	if hopeless(err) && !errors.Is(err, segment.ErrClosed) {
		r.mu.hopeless = err
	}
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

// cantServe is why this replica can't take its role, until somebody repairs it; nil
// if it can, or will try again.
func (r *replica) cantServe() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.hopeless
}

// unfit: the replica here is to lead, and can't until somebody repairs it.
func (rs *replicas) unfit(id meta.TopicID, p int32) bool {
	r := rs.get(id, p)
	return r != nil && r.cantServe() != nil
}

// outage is why a log doesn't serve, until it is repaired.
type outage struct {
	name segment.TopicPartition
	err  error
}

// outages lists the logs of picture x that are out of service here: failed,
// damaged, at odds with the archive, or not to be opened. By name.
func (rs *replicas) outages(x *topicIndex) (out []outage) {
	for _, r := range rs.list() {
		if err := cmp.Or(r.local.Err(), r.cantServe()); err != nil {
			out = append(out, outage{r.name, err})
		}
	}
	rs.mu.RLock()
	for name, err := range rs.mu.unopened {
		if t := x.byName[name.Topic]; t.has(name.Partition) && slices.Contains(t.Replicas[name.Partition], rs.node) {
			out = append(out, outage{name, err})
		}
	}
	rs.mu.RUnlock()
	slices.SortFunc(out, func(a, b outage) int {
		return cmp.Or(cmp.Compare(a.name.Topic, b.name.Topic), cmp.Compare(a.name.Partition, b.name.Partition))
	})
	return out
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
