package controller

import (
	"slices"

	"firn/replication/isr"
	"firn/replication/meta"
)

// finish ends a reassignment: those that leave are dropped, once all that come
// are in sync, and enough of those that stay. The leader changes if it is one
// that leaves. The epoch is raised in any case, so that a leader which still goes
// by the old replicas can add none of them again.
func (p *partition) finish() (meta.PartitionState, bool) {
	if !p.topic.Moving(p.index) {
		return p.state, false
	}
	q := *p
	q.replicas = p.topic.Target(p.index)
	in := q.holding(p.state.ISR)
	if len(in) == 0 {
		return p.state, false
	}
	for _, id := range p.topic.Adding[p.index] {
		if !names(in, id) {
			return p.state, false
		}
	}
	leaves := slices.ContainsFunc(p.state.ISR, func(m meta.Member) bool { return !slices.Contains(q.replicas, m.ID) })
	need := isr.Rules{MinInsync: p.rules.MinInsync, Replicas: len(q.replicas)}
	if leaves && !need.Enough(len(in)) {
		return p.state, false
	}
	s := p.state
	s.LeaderEpoch++
	return q.ledBy(s, leaderFirst(in, p.state.Leader.ID), Moved), true
}

// expel takes out of the ISR who is no replica any more: a leader that didn't
// know yet has added it.
func (p *partition) expel() (meta.PartitionState, bool) {
	if !slices.ContainsFunc(p.state.ISR, func(m meta.Member) bool { return !slices.Contains(p.replicas, m.ID) }) {
		return p.state, false
	}
	in := p.holding(p.state.ISR)
	if len(in) == 0 {
		return p.state, false
	}
	s := p.state
	s.LeaderEpoch++
	return p.ledBy(s, leaderFirst(in, p.state.Leader.ID), Expelled), true
}

// leaderFirst is in with the leader first, if it is among them.
func leaderFirst(in []meta.Member, leader int32) []meta.Member {
	i := slices.IndexFunc(in, func(m meta.Member) bool { return m.ID == leader })
	if i <= 0 {
		return in
	}
	m := in[i]
	return slices.Insert(slices.Delete(slices.Clone(in), i, i+1), 0, m)
}
