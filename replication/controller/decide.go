package controller

import (
	"maps"
	"slices"

	"firn/replication/isr"
	"firn/replication/meta"
)

// Snapshot is what decisions rest on.
type Snapshot struct {
	Image *meta.Image
	// Epoch is the controller epoch that is written into states.
	Epoch int32
	// Rules are a topic's; nil means those of its own configs, with Kafka's defaults.
	Rules func(*meta.TopicImage) Rules
}

// Rules are what a topic asks of elections.
type Rules struct {
	// MinInsync is min.insync.replicas.
	MinInsync int
	// Unclean is unclean.leader.election.enable.
	Unclean bool
}

// Plan is what is to be done.
type Plan struct {
	Changes []Change
	// Finish are topics whose deletion is to be finished.
	Finish []meta.Topic
}

// Change is a partition's next state, with the reason.
type Change struct {
	meta.StateChange
	Why Why
}

// Why a state changes.
type Why string

const (
	Created    Why = "created"
	Elected    Why = "elected"               // out of the ISR
	Eligible   Why = "elected, eligible"     // out of the eligible members
	Unclean    Why = "elected, unclean"      // may lack what was committed
	Recovered  Why = "elected, last that is" // the same; nobody else ever had it
	Leaderless Why = "nobody to lead"
)

// Unclean: records may have been lost.
func (w Why) Unclean() bool { return w == Unclean || w == Recovered }

// Decide decides what is to be done now; nothing, if all is as it should be. The
// order is that of topic names and partitions.
func Decide(s Snapshot) Plan {
	d := decider{Snapshot: s, live: s.Image.Registered()}
	if d.Rules == nil {
		d.Rules = topicRules
	}
	for _, name := range slices.Sorted(maps.Keys(s.Image.Topics)) {
		t := s.Image.Topics[name]
		if t.Deleting {
			d.plan.Finish = append(d.plan.Finish, t.Topic)
			continue
		}
		d.topic(t)
	}
	return d.plan
}

type decider struct {
	Snapshot
	live map[int32]meta.Registration
	plan Plan
}

func (d *decider) topic(t *meta.TopicImage) {
	rules := d.Rules(t)
	for p, state := range t.States {
		part := partition{
			decider:  d,
			id:       t.ID,
			index:    int32(p),
			replicas: t.Replicas[p],
			rules:    rules,
			state:    state,
		}
		next, why := part.decide()
		if why == "" {
			continue
		}
		next.ControllerEpoch = d.Epoch
		next.Version = state.Version
		d.plan.Changes = append(d.plan.Changes, Change{
			StateChange: meta.StateChange{Topic: t.Name, ID: t.ID, Partition: int32(p), State: next, Registrations: d.live},
			Why:         why,
		})
	}
}

// partition is one partition under decision.
type partition struct {
	*decider
	id       meta.TopicID
	index    int32
	replicas []int32
	rules    Rules
	state    meta.PartitionState
}

// decide returns the next state and why; no reason means that all is well.
func (p *partition) decide() (meta.PartitionState, Why) {
	switch {
	case p.state.Version == meta.Missing:
		return p.create()
	case !p.led():
		return p.elect()
	case p.draining(p.state.Leader.ID):
		return p.relieve()
	}
	return p.state, ""
}

// create makes the first state. All live replicas are in sync, for there is
// nothing yet to have; with none alive the partition has to wait for one.
func (p *partition) create() (meta.PartitionState, Why) {
	var s meta.PartitionState
	for _, id := range p.replicas {
		if r, ok := p.live[id]; ok && !p.givenUp(id) {
			s.ISR = append(s.ISR, r.Member())
		}
	}
	if len(s.ISR) == 0 {
		return s, ""
	}
	s.Leader = s.ISR[0]
	return s, Created
}

// led: the leader stands.
func (p *partition) led() bool {
	l := p.state.Leader
	r, ok := p.live[l.ID]
	return ok && r.Epoch == l.Epoch && slices.Contains(p.replicas, l.ID) && !p.givenUp(l.ID)
}

// givenUp: the broker has lost this partition, or must discard what it has (S7).
func (p *partition) givenUp(id int32) bool { return p.Image.Offline[id].Lists(p.id, p.index) }

// draining: the broker wants to lead nothing, if somebody else can.
func (p *partition) draining(id int32) bool {
	until := p.Image.Offline[id].Draining
	return until != 0 && until == p.live[id].Epoch
}

// relieve elects another than the leader, who is draining; not if nobody else
// is in sync: it is still better than none.
func (p *partition) relieve() (meta.PartitionState, Why) {
	in := p.holding(p.state.ISR)
	if len(in) == 0 || p.draining(in[0].ID) {
		return p.state, ""
	}
	s := p.state
	s.LeaderEpoch++
	return p.ledBy(s, in, Elected)
}

// elect raises the epoch and looks for a leader.
func (p *partition) elect() (meta.PartitionState, Why) {
	s := p.state
	s.LeaderEpoch++
	if in := p.holding(s.ISR); len(in) > 0 {
		return p.ledBy(s, in, Elected)
	}
	if el := p.holding(s.Eligible); len(el) > 0 {
		return p.ledBy(s, el[:1], Eligible)
	}
	if p.rules.Unclean {
		for _, id := range p.replicas {
			if r, ok := p.live[id]; ok && !p.givenUp(id) {
				return p.ledBy(s, []meta.Member{r.Member()}, Unclean)
			}
		}
	}
	if m, ok := p.last(); ok {
		return p.ledBy(s, []meta.Member{m}, Recovered)
	}
	if s.Leader == meta.NoLeader {
		return s, "" // as it was
	}
	s.Leader = meta.NoLeader
	return s, Leaderless
}

// holding are those of set that could lead with all that they were counted for,
// in their present registrations, in the order of the replicas; who is draining last.
func (p *partition) holding(set []meta.Member) []meta.Member {
	var found []meta.Member
	for _, id := range p.replicas {
		r, ok := p.live[id]
		if ok && !p.givenUp(id) && slices.ContainsFunc(set, r.Holds) {
			found = append(found, r.Member())
		}
	}
	slices.SortStableFunc(found, func(a, b meta.Member) int {
		switch x, y := p.draining(a.ID), p.draining(b.ID); {
		case x == y:
			return 0
		case x:
			return 1
		}
		return -1
	})
	return found
}

// ledBy is s led by the first of in, its new ISR. Those who leave an ISR that now
// has fewer than min.insync.replicas stay eligible, with who was so before, as
// long as they are replicas and have not given the partition up.
func (p *partition) ledBy(s meta.PartitionState, in []meta.Member, why Why) (meta.PartitionState, Why) {
	before := slices.Concat(s.Eligible, s.ISR)
	s.Leader, s.ISR, s.Eligible = in[0], in, nil
	need := isr.Rules{MinInsync: p.rules.MinInsync, Replicas: len(p.replicas)}
	if why.Unclean() || need.Enough(len(in)) {
		return s, why // what the others have no longer counts, or is had without them
	}
	for _, m := range before {
		if slices.Contains(p.replicas, m.ID) && !p.givenUp(m.ID) && !names(s.ISR, m.ID) && !names(s.Eligible, m.ID) {
			s.Eligible = append(s.Eligible, m)
		}
	}
	return s, why
}

// last is the one broker that was in the ISR or eligible, if there was just one,
// and it is back but no longer holds (after a power cut, say).
func (p *partition) last() (meta.Member, bool) {
	all := slices.Concat(p.state.ISR, p.state.Eligible)
	if len(all) == 0 || slices.ContainsFunc(all, func(m meta.Member) bool { return m.ID != all[0].ID }) {
		return meta.Member{}, false
	}
	r, ok := p.live[all[0].ID]
	if !ok || p.givenUp(r.ID) || !slices.Contains(p.replicas, r.ID) {
		return meta.Member{}, false
	}
	return r.Member(), true
}

func names(set []meta.Member, id int32) bool {
	return slices.ContainsFunc(set, func(m meta.Member) bool { return m.ID == id })
}
