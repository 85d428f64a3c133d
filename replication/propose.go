package replication

import (
	"errors"
	"slices"
	"time"

	"firn/replication/isr"
	"firn/replication/meta"
)

// Cluster is what a leader must know of the others to judge its replicas.
type Cluster struct {
	Now time.Time
	// MaxLag is replica.lag.time.max.ms.
	MaxLag time.Duration
	// Registered are the brokers that are registered now.
	Registered map[int32]meta.Registration
	// Replicas are those that the partition is assigned to.
	Replicas []int32
	// GivenUp: the broker lists the partition as lost (S7); nil: none does.
	GivenUp func(broker int32) bool
	// Draining: the broker is about to go; it need not come in, and is let go before
	// acks would wait for it where enough stay, as soon as it is known to follow: a
	// leader that has not heard of the next one yet still answers as leader, and must
	// not be passed by acks meanwhile. nil: none is.
	Draining func(broker int32) bool
}

// Proposal is a change of its ISR for which a leader asks the metadata store.
// The writer adds its fence, and tells by Settle what came of it.
type Proposal struct {
	meta.StateChange
	Joined, Left []meta.Member
	p            *Partition
}

// asked is what a leader has asked the store for and does not know the outcome of.
// All of it is over the same version of the state.
type asked struct {
	version int32
	// pending: a proposal is on its way. stale: the version is known not to be
	// the store's any more. unknown: some proposal over it may have gone through
	// all the same, or may still (Z3).
	pending, stale, unknown bool
	joining                 []meta.Member
	retryAt                 time.Time
}

// proposeAgain is how long a leader waits after a proposal that has failed.
const proposeAgain = 200 * time.Millisecond

// Propose says what change of its ISR this leader asks for now: who is too far
// behind leaves, and at once who is no longer registered, assigned, or holds (R4);
// who is in sync joins; the eligible go where nothing asks for them any more (R1).
// One proposal at a time is under way. Who is to join counts from here on (R3).
func (p *Partition) Propose(c Cluster) (Proposal, bool) {
	p.mu.Lock()
	// Who has taken itself off the list leaves when it is on it again.
	p.mu.readmitted = slices.DeleteFunc(p.mu.readmitted, func(m meta.Member) bool { return !c.givenUp(m.ID) })
	if t := p.mu.tracker; t != nil {
		t.Counted(p.log.Offsets().Counted)
		if p.mu.began.IsZero() {
			p.mu.began = c.Now
		}
	}
	_, ok := p.nextLocked(&c)
	p.mu.Unlock()
	if !ok {
		return Proposal{}, false
	}
	var out Proposal
	p.update(func(t *isr.Tracker) {
		if out, ok = p.nextLocked(&c); !ok {
			return
		}
		a := &p.mu.asked
		if a.version != out.State.Version {
			*a = asked{version: out.State.Version}
		}
		a.pending = true
		for _, m := range out.Joined {
			t.Join(m)
			if c.givenUp(m.ID) && !slices.Contains(p.mu.readmitted, m) {
				p.mu.readmitted = append(p.mu.readmitted, m)
			}
			if !slices.Contains(a.joining, m) {
				a.joining = append(a.joining, m)
			}
			if w := p.followerLocked(m); w != nil {
				w.caughtUp = later(w.caughtUp, c.Now) // or it would have to leave again
			}
		}
	})
	return out, ok
}

// nextLocked makes the proposal that is due.
func (p *Partition) nextLocked(c *Cluster) (Proposal, bool) {
	t := p.mu.tracker
	if t == nil {
		return Proposal{}, false
	}
	s := t.State()
	if a := &p.mu.asked; a.version == s.Version && (a.pending || a.stale || c.Now.Before(a.retryAt)) {
		return Proposal{}, false
	}
	if r, ok := c.Registered[s.Leader.ID]; !ok || r.Epoch != s.Leader.Epoch {
		return Proposal{}, false // an election is to come (R6)
	}
	next := s
	left := p.leavingLocked(t, c)
	if len(left) > 0 {
		ids := make([]int32, len(left))
		for i, m := range left {
			ids[i] = m.ID
		}
		next = isr.Shrunk(next, p.mu.rules, ids...)
	}
	joined := p.joiningLocked(t, c)
	if len(joined) > 0 {
		next = isr.Grown(next, p.mu.rules, joined...)
	}
	if kept := slices.DeleteFunc(slices.Clone(next.Eligible), func(m meta.Member) bool {
		return c.givenUp(m.ID) || !slices.Contains(c.Replicas, m.ID)
	}); len(kept) < len(next.Eligible) {
		next.Eligible = kept
	}
	next, _ = isr.Cleared(next, p.mu.rules)
	if len(left) == 0 && len(joined) == 0 && len(next.Eligible) == len(s.Eligible) {
		return Proposal{}, false
	}
	return Proposal{
		StateChange: meta.StateChange{Topic: p.topic, ID: p.topicID, Partition: p.index, State: next, Registrations: c.Registered},
		Joined:      joined,
		Left:        left,
		p:           p,
	}, true
}

// leavingLocked are the members that must leave the ISR.
func (p *Partition) leavingLocked(t *isr.Tracker, c *Cluster) (left []meta.Member) {
	s := t.State()
	counted := p.log.Offsets().Counted
	for _, m := range s.ISR {
		if m.ID == s.Leader.ID {
			continue
		}
		r, ok := c.Registered[m.ID]
		if !ok || r.Epoch != m.Epoch || !slices.Contains(c.Replicas, m.ID) ||
			c.givenUp(m.ID) && !slices.Contains(p.mu.readmitted, m) || p.laggingLocked(m, counted, c) {
			left = append(left, m)
		}
	}
	for _, m := range s.ISR { // when it is known who stays
		if m.ID != s.Leader.ID && c.Draining != nil && c.Draining(m.ID) && p.followsLocked(m) && !slices.Contains(left, m) && p.mu.rules.Enough(len(s.ISR)-len(left)-1) {
			left = append(left, m)
		}
	}
	return left
}

// followsLocked: m has fetched in this leadership, so it knows of no older one any more.
func (p *Partition) followsLocked(m meta.Member) bool {
	return slices.ContainsFunc(p.mu.followers, func(w follower) bool { return w.Member == m && !w.fetched.IsZero() })
}

// laggingLocked: m has not had all that we have for too long.
func (p *Partition) laggingLocked(m meta.Member, counted int64, c *Cluster) bool {
	caughtUp := p.mu.began
	for _, w := range p.mu.followers {
		if w.Member != m {
			continue
		}
		if w.end >= counted {
			return false
		}
		caughtUp = later(caughtUp, w.caughtUp)
	}
	return c.Now.Sub(caughtUp) > c.MaxLag
}

// joiningLocked are the replicas that may join. All that is judged comes from one
// snapshot of the replica: its registration, and what that has told (A7).
func (p *Partition) joiningLocked(t *isr.Tracker, c *Cluster) (joined []meta.Member) {
	s, start := t.State(), p.role.Load().start
	for _, w := range p.mu.followers {
		r, ok := c.Registered[w.ID]
		if w.ID == s.Leader.ID || w.left || !ok || r.Epoch != w.Epoch || slices.Contains(s.ISR, w.Member) ||
			!slices.Contains(c.Replicas, w.ID) || c.Draining != nil && c.Draining(w.ID) || !t.InSync(w.Member, start) {
			continue
		}
		joined = append(joined, w.Member)
	}
	return joined
}

func (c *Cluster) givenUp(id int32) bool { return c.GivenUp != nil && c.GivenUp(id) }

// Settle tells what came of a proposal: err is what meta.CommitAll says of its write.
func (p *Partition) Settle(pr Proposal, err error, now time.Time) {
	refused := (*meta.Conflict)(nil)
	switch {
	case err == nil:
		s := pr.State
		s.Version++
		p.update(func(t *isr.Tracker) {
			if t.State().LeaderEpoch == s.LeaderEpoch {
				p.committedLocked(t, s)
			}
		})
	case errors.As(err, &refused):
		p.update(func(t *isr.Tracker) {
			a := &p.mu.asked
			if !p.oursLocked(t, &pr) {
				return
			}
			a.pending, a.retryAt = false, now.Add(proposeAgain)
			a.stale = refused.Op.Path == meta.StatePath(pr.Topic, pr.Partition)
			// This write was not applied. One before it over the same version
			// may have been: then only a newer version tells.
			if !a.unknown {
				for _, m := range a.joining {
					t.Refused(m)
				}
				a.joining = nil
			}
		})
	default:
		p.update(func(t *isr.Tracker) {
			if a := &p.mu.asked; p.oursLocked(t, &pr) {
				a.pending, a.unknown, a.retryAt = false, true, now.Add(proposeAgain)
			}
		})
	}
}

// oursLocked: pr is what was asked last, in this leadership.
func (p *Partition) oursLocked(t *isr.Tracker, pr *Proposal) bool {
	return t.State().LeaderEpoch == pr.State.LeaderEpoch && p.mu.asked.version == pr.State.Version && p.mu.asked.pending
}

// committedLocked takes a newer state of the same epoch. With it all that was
// asked over an older version is settled: it has been done, or never will be. Who
// has left must fetch again before it may join; who has come in though it is
// listed as having lost the partition takes itself off the list now (S7).
func (p *Partition) committedLocked(t *isr.Tracker, s meta.PartitionState) {
	before := t.State()
	if s.Version <= before.Version {
		return
	}
	if a := &p.mu.asked; s.Version > a.version {
		for _, m := range a.joining {
			if !slices.Contains(s.ISR, m) {
				t.Refused(m)
			}
		}
		*a = asked{version: meta.Missing}
	}
	for i := range p.mu.followers {
		w := &p.mu.followers[i]
		w.left = w.left || slices.Contains(before.ISR, w.Member) && !slices.Contains(s.ISR, w.Member)
	}
	p.mu.readmitted = slices.DeleteFunc(p.mu.readmitted, func(m meta.Member) bool { return !slices.Contains(s.ISR, m) })
	t.Committed(s)
}
