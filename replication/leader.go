package replication

import (
	"slices"
	"time"

	"firn/replication/isr"
	"firn/replication/meta"
	"firn/segment"
)

// follower is what a leader knows of a replica that fetches from it.
type follower struct {
	meta.Member
	// end is where its log ends, leaderEnd where ours did when it said so.
	end, leaderEnd int64
	fetched        time.Time
	// caughtUp is when it last had all that we had.
	caughtUp time.Time
	// left: it has left the ISR, and has not fetched since.
	left bool
}

// ReplicaFetch is what a Fetch of a replica tells its leader about a partition.
// Who takes the request has made sure that it comes from that replica.
type ReplicaFetch struct {
	Member meta.Member
	// Epoch is the leader epoch in which the replica follows.
	Epoch int32
	// Offset is where its log ends, LastEpoch the epoch of its last record, -1 if
	// it knows none.
	Offset    int64
	LastEpoch int32
	Now       time.Time
	// Proven is when the answer was sent that this request follows; zero if that
	// isn't known.
	Proven time.Time
}

// Fetched takes what a replica's fetch tells, before it is answered:
//
//	replica ahead of our local start? ─→ same history? ─→ its end counts ─→ high watermark
//
// diverging is not of epoch -1 where the replica must first truncate: our end of
// the largest epoch that both may know (KIP-595); its end doesn't count then.
// due: the replica has come to follow, or to be in sync, so that it pays to Propose.
func (p *Partition) Fetched(f ReplicaFetch) (diverging segment.EpochEnd, due bool, err error) {
	diverging = noEpochEnd
	if f.Epoch < 0 {
		return diverging, false, ErrFencedEpoch
	}
	if err := p.role.Load().check(View{Epoch: f.Epoch}); err != nil {
		return diverging, false, err
	}
	o := p.log.Offsets()
	switch {
	case f.Offset < o.LocalStart && o.ArchivedEnd >= 0:
		return diverging, false, ErrMovedToArchive
	case f.Offset < o.LocalStart:
		return diverging, false, segment.ErrOffsetOutOfRange
	}
	if f.LastEpoch >= 0 {
		end := p.log.EpochEnd(f.LastEpoch)
		switch {
		case end.Epoch < 0 || end.End < 0:
			return diverging, false, segment.ErrOffsetOutOfRange
		case end.Epoch < f.LastEpoch || end.End < f.Offset:
			return end, false, nil
		}
	}
	if f.Offset > o.End {
		return diverging, false, segment.ErrOffsetOutOfRange
	}
	p.Proven(f.Member, f.Epoch, f.Proven)
	due, err = p.progress(f, o.Counted)
	p.wake()
	return diverging, due, err
}

// noEpochEnd is the end of no epoch.
var noEpochEnd = segment.EpochEnd{Epoch: -1, End: -1}

// progress notes where a replica is, and moves the high watermark.
func (p *Partition) progress(f ReplicaFetch, counted int64) (due bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.mu.tracker
	if t == nil || t.State().LeaderEpoch != f.Epoch {
		return false, ErrNotLeader // since we have looked
	}
	// A leader that was alone has committed what its tracker has not been told of.
	t.Counted(counted)
	w := p.followerLocked(f.Member)
	if w == nil {
		return false, nil // of an older registration than we have heard of
	}
	came := w.fetched.IsZero()
	// Kafka's rule: who reaches what we had when it fetched before, had caught
	// up then, even if we never stand still.
	switch {
	case f.Offset >= counted:
		w.caughtUp = later(w.caughtUp, f.Now)
	case f.Offset >= w.leaderEnd && !w.fetched.IsZero():
		w.caughtUp = later(w.caughtUp, w.fetched)
	}
	w.end, w.leaderEnd, w.fetched = f.Offset, max(w.leaderEnd, counted), f.Now
	w.left = false
	t.Fetched(f.Member, f.Offset)
	p.log.SetHighWatermark(t.HighWatermark())
	return came || !slices.Contains(t.State().ISR, f.Member) && t.InSync(f.Member, p.role.Load().start), nil
}

// followerLocked finds or makes the entry of m. A newer registration of a broker
// takes the place of an older one, which is nil from then on.
func (p *Partition) followerLocked(m meta.Member) *follower {
	for i := range p.mu.followers {
		w := &p.mu.followers[i]
		switch {
		case w.Member == m:
			return w
		case w.ID == m.ID && w.Epoch > m.Epoch:
			return nil
		case w.ID == m.ID:
			*w = follower{Member: m}
			return w
		}
	}
	p.mu.followers = append(p.mu.followers, follower{Member: m})
	return &p.mu.followers[len(p.mu.followers)-1]
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Progress is how far a replica is, as its leader knows it.
type Progress struct {
	meta.Member
	End int64
	// InSync: it is in the committed ISR.
	InSync bool
	// Fetched and CaughtUp are when it last fetched, and last had everything.
	Fetched, CaughtUp time.Time
}

// Followers appends to dst what this leader knows of the replicas that fetch from
// it; nothing if it doesn't lead.
func (p *Partition) Followers(dst []Progress) []Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.mu.tracker
	if t == nil {
		return dst
	}
	for _, w := range p.mu.followers {
		dst = append(dst, Progress{w.Member, w.end, slices.Contains(t.State().ISR, w.Member), w.fetched, w.caughtUp})
	}
	return dst
}

// Furthest is the last epoch that this replica's log knows, and its end, whether
// it leads or not.
func (p *Partition) Furthest() (segment.EpochEnd, error) {
	if err := p.log.Err(); err != nil {
		return noEpochEnd, err
	}
	return segment.EpochEnd{Epoch: p.log.LatestEpoch(), End: p.log.Offsets().End}, nil
}

// State is the state that this replica has last taken on, or, leading, knows to be
// committed.
func (p *Partition) State() meta.PartitionState {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.mu.tracker; t != nil {
		return t.State()
	}
	return p.mu.state
}

// InSync: the state that this replica knows names the broker in its ISR.
func (p *Partition) InSync(broker int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.mu.state
	if t := p.mu.tracker; t != nil {
		known := t.State()
		s = &known
	}
	return slices.ContainsFunc(s.ISR, func(m meta.Member) bool { return m.ID == broker })
}

// Rules are min.insync.replicas and the number of replicas.
func (p *Partition) Rules() isr.Rules {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.rules
}
