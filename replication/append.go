package replication

import (
	"context"

	"firn/segment"
)

// AppendOptions goes with an append as leader.
type AppendOptions struct {
	// Epoch is the leader epoch that the caller relies on (a coordinator), or
	// AnyEpoch (a client).
	Epoch int32
	// All: the caller waits until the records are committed, so that the append
	// is refused where they can't be now.
	All bool
	// Origin and Now are the log's; see segment.AppendOptions.
	Origin segment.Origin
	Now    int64
}

// Appended tells where batches went, and in which leadership: what Acked needs.
type Appended struct {
	segment.Appended
	Epoch int32
}

// Append appends the batches in b, stamped in place, if this replica leads. It
// doesn't wait for other replicas: see Acked.
func (p *Partition) Append(b []byte, o AppendOptions) (Appended, error) {
	p.appending.Lock()
	r := p.role.Load()
	if !r.leading || o.Epoch != AnyEpoch && o.Epoch != r.epoch || !p.takes(r, o.All) {
		p.appending.Unlock()
		return Appended{}, ErrNotLeader
	}
	if o.All && !r.enough {
		p.appending.Unlock()
		return Appended{}, ErrNotEnoughReplicas
	}
	a, err := p.log.Append(b, segment.AppendOptions{Epoch: r.epoch, Origin: o.Origin, Now: o.Now})
	if err != nil {
		p.appending.Unlock()
		return Appended{}, err
	}
	if !a.Duplicate {
		p.waiting.bytes.Add(int64(len(b)))
		p.advanceLocked(r)
	}
	p.appending.Unlock()
	p.wake()
	return Appended{a, r.epoch}, nil
}

// takes: what is appended now, or acknowledged, can't be lost for want of a lease.
// For acks=all that is the other members' to see to: where there are some, a rival
// has at least one of them, which follows us no more.
func (p *Partition) takes(r *role, all bool) bool {
	return p.lease == nil || all && !r.alone || p.surely()
}

// advanceLocked tells the tracker what the log counts and moves the high
// watermark. With appending held r is the current role, and a leader that is
// alone needs no tracker: everything that it counts is committed.
func (p *Partition) advanceLocked(r *role) {
	counted := p.log.Offsets().Counted
	if r.alone {
		p.log.SetHighWatermark(counted)
		return
	}
	p.mu.Lock()
	p.mu.tracker.Counted(counted)
	p.log.SetHighWatermark(p.mu.tracker.HighWatermark())
	p.mu.Unlock()
}

// counted is called by the log when a flush has moved what it counts, or it has failed. It takes
// mu alone, not appending: an append may be under way for as long as the disk
// takes, and acks must not wait for it.
func (p *Partition) counted() {
	p.mu.Lock()
	if t := p.mu.tracker; t != nil {
		t.Counted(p.log.Offsets().Counted)
		p.log.SetHighWatermark(t.HighWatermark())
	}
	p.mu.Unlock()
	if p.log.Err() != nil {
		p.wakeAll() // what they wait for will never come
		return
	}
	p.wake()
}

// Committed: the record at offset is committed.
func (p *Partition) Committed(offset int64) bool {
	return p.log.Offsets().HighWatermark > offset
}

// Acked says whether an append has been committed by the leadership that made
// it. With an error the wait is over: another leadership may have dropped the
// records (ErrNotLeader), the ISR fell below what was asked for, which is checked
// again here (A9), or the log has failed (S4).
func (p *Partition) Acked(a Appended) (bool, error) {
	r := p.role.Load()
	switch {
	case !r.leading || r.epoch != a.Epoch:
		return false, ErrNotLeader
	case !p.Committed(a.Last):
		return false, p.log.Err()
	case !p.takes(r, true):
		return false, ErrNotLeader
	case !r.enough:
		return false, ErrNotEnoughReplicasAfterAppend
	}
	return true, nil
}

// Counted says whether the leader itself vouches for an append, as acks=1 asks
// (S6). With an error the wait is over, as in Acked.
func (p *Partition) Counted(a Appended) (bool, error) {
	r := p.role.Load()
	switch {
	case !r.leading || r.epoch != a.Epoch:
		return false, ErrNotLeader
	case p.log.Offsets().Counted <= a.Last:
		return false, p.log.Err()
	case !p.takes(r, false):
		return false, ErrNotLeader
	}
	return true, nil
}

// SetLogStart moves the log start up, durably, if this replica answers v: what
// DeleteRecords and retention do. Fetches that wait below it are woken.
func (p *Partition) SetLogStart(ctx context.Context, offset int64, v View) error {
	if _, err := p.check(v); err != nil {
		return err
	}
	if err := p.log.SetLogStart(ctx, offset); err != nil {
		return err
	}
	p.wake()
	return nil
}
