package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"firn/replication/meta"
	"firn/segment"
)

// What a follower does with its log. Each call names the leader epoch in which
// the caller follows, and is refused once the replica has another role: what was
// asked for in one epoch is not done in the next (R2).

// Replicated is what a leader has answered to a replica's fetch.
type Replicated struct {
	// Records are batches as they stand in the leader's log; the last may be cut off.
	Records       []byte
	HighWatermark int64
	LogStart      int64
}

// ErrNotFollowing: this replica no longer follows in the epoch that the caller names.
var ErrNotFollowing = errors.New("replication: not following in this leader epoch")

// following is an error unless r follows in epoch.
func (r *role) following(epoch int32) error {
	if r.leading || r.epoch != epoch || r.leader == meta.NoLeader {
		return ErrNotFollowing
	}
	return nil
}

// Follows tells whom this replica follows, and in which epoch; nobody if it leads
// or there is no leader.
func (p *Partition) Follows() (leader meta.Member, epoch int32, ok bool) {
	r := p.role.Load()
	return r.leader, r.epoch, !r.leading && r.leader != meta.NoLeader
}

// Replicate appends what the leader of epoch has sent, and takes over its high
// watermark, as far as this log reaches (A15), and its log start.
func (p *Partition) Replicate(ctx context.Context, epoch int32, r Replicated) error {
	p.appending.Lock()
	if err := p.role.Load().following(epoch); err != nil {
		p.appending.Unlock()
		return err
	}
	if len(r.Records) > 0 {
		if _, err := p.log.AppendReplica(r.Records); err != nil {
			p.appending.Unlock()
			return err
		}
		p.waiting.bytes.Add(int64(len(r.Records)))
	}
	p.log.SetHighWatermark(r.HighWatermark)
	p.appending.Unlock()
	p.wake()
	o := p.log.Offsets()
	if start := min(r.LogStart, o.HighWatermark); start > o.LogStart {
		// What goes with it lies below what the leader, or its archive, keeps (T4).
		if err := p.log.SetLogStart(ctx, start); err != nil {
			return fmt.Errorf("replication: log start %d of %s-%d: %w", start, p.topic, p.index, err)
		}
	}
	return nil
}

// cut says where a log that ends at end is to be cut, once its leader has told
// where an epoch ends there (R5, KIP-279). done: what remains is the leader's
// history too; else the leader is to be asked again, about an older epoch.
func cut(log Lookup, end int64, theirs segment.EpochEnd) (at int64, done bool) {
	mine := log.EpochEnd(theirs.Epoch)
	switch {
	case mine.Epoch < 0:
		return min(theirs.End, end), true
	case mine.Epoch != theirs.Epoch:
		return min(mine.End, end), false
	}
	return min(mine.End, theirs.End, end), true
}

// Truncate cuts the log to what the leader of epoch has of it, theirs being where
// an epoch ends there. It cuts off epochs even where no record goes (A2). ok: what
// remains is the leader's history.
func (p *Partition) Truncate(epoch int32, theirs segment.EpochEnd) (at int64, ok bool, err error) {
	p.appending.Lock()
	defer p.appending.Unlock()
	if err := p.role.Load().following(epoch); err != nil {
		return 0, false, err
	}
	at, ok = cut(p.log, p.log.Offsets().End, theirs)
	if err := p.log.TruncateTo(at); err != nil {
		return at, false, err
	}
	return at, ok, nil
}

// BeginAt starts the log again at offset, where the log of the leader of epoch
// begins.
func (p *Partition) BeginAt(epoch int32, offset int64) error {
	p.appending.Lock()
	defer p.appending.Unlock()
	if err := p.role.Load().following(epoch); err != nil {
		return err
	}
	if err := p.log.BeginAt(offset); err != nil {
		return err
	}
	p.discards.Store(false)
	return nil
}

// Discards: what this replica's log holds is of another history than its leader's,
// or the archive's, and must go. It is given up first (S7).
func (p *Partition) Discards() bool { return p.discards.Load() }

// Rebuild starts the log again at the archived end (T8), as a follower in epoch.
// It waits for the store; a change of role ends it.
func (p *Partition) Rebuild(ctx context.Context, epoch int32) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	p.mu.rebuild = cancel
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.mu.rebuild = nil
		p.mu.Unlock()
	}()
	select {
	case p.becoming <- struct{}{}:
		defer func() { <-p.becoming }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.stopped {
		return ErrNotFollowing
	}
	if err := p.role.Load().following(epoch); err != nil {
		return err
	}
	if err := p.log.RestartAtArchivedEnd(ctx); err != nil {
		return err
	}
	p.discards.Store(false)
	return nil
}

// endRebuild makes way for a change of role to another epoch.
func (p *Partition) endRebuild(epoch int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.rebuild != nil && epoch > p.role.Load().epoch {
		p.mu.rebuild()
	}
}

// countedOn: the state that was last taken on names the broker in its ISR, or as
// eligible, so that its replica must not discard anything (S7).
func (p *Partition) countedOn(broker int32) bool {
	s := p.State()
	is := func(m meta.Member) bool { return m.ID == broker }
	return slices.ContainsFunc(s.ISR, is) || slices.ContainsFunc(s.Eligible, is)
}
