package controller

import (
	"cmp"
	"slices"

	"firn/replication/isr"
	"firn/replication/meta"
)

// create makes the first state. All live replicas are in sync, for there is
// nothing yet to have; with none alive the partition has to wait for one.
func (p *partition) create() (meta.PartitionState, Why) {
	s := meta.PartitionState{ISR: p.there()}
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

// relieve elects another than a leader who is draining or whose disk is full; not if
// nobody else in sync wants to lead more than it does: it is still better than none.
// It stays in the ISR, for it still holds what it was counted for.
func (p *partition) relieve() (meta.PartitionState, Why) {
	now := p.reluctance(p.state.Leader.ID)
	if now == willing {
		return p.state, ""
	}
	in := p.holding(p.state.ISR)
	if len(in) == 0 || p.reluctance(in[0].ID) >= now {
		return p.state, ""
	}
	why := Elected
	if now == full {
		why = Relieved
	}
	s := p.state
	s.LeaderEpoch++
	return p.ledBy(s, in, why), why
}

// elect raises the epoch and looks for a leader.
func (p *partition) elect() (meta.PartitionState, Why) {
	s := p.state
	s.LeaderEpoch++
	if in := p.holding(s.ISR); len(in) > 0 {
		return p.ledBy(s, in, Elected), Elected
	}
	if el := p.holding(s.Eligible); len(el) > 0 {
		return p.ledBy(s, el[:1], Eligible), Eligible
	}
	if p.rules.Unclean || p.wished(meta.UncleanElection) {
		if there := p.there(); len(there) > 0 {
			return p.ledBy(s, there[:1], Unclean), Unclean
		}
	}
	if m, why := p.furthest(); why != "" {
		return p.ledBy(s, []meta.Member{m}, why), why
	}
	if s.Leader == meta.NoLeader {
		return s, "" // as it was
	}
	s.Leader = meta.NoLeader
	return s, Leaderless
}

// holding are those of set that could lead with all that they were counted for,
// in their present registrations, as there() sorts them.
func (p *partition) holding(set []meta.Member) []meta.Member {
	return slices.DeleteFunc(p.there(), func(m meta.Member) bool { return !slices.ContainsFunc(set, p.live[m.ID].Holds) })
}

// there are the replicas that are registered and haven't given the partition up, in
// the order of the replicas; who wants least to lead last.
func (p *partition) there() []meta.Member {
	var found []meta.Member
	for _, id := range p.replicas {
		if r, ok := p.live[id]; ok && !p.givenUp(id) {
			found = append(found, r.Member())
		}
	}
	slices.SortStableFunc(found, func(a, b meta.Member) int { return cmp.Compare(p.reluctance(a.ID), p.reluctance(b.ID)) })
	return found
}

// ledBy is s led by the first of in, its new ISR. Those who leave an ISR that now
// has fewer than min.insync.replicas stay eligible, with who was so before, as
// long as they are replicas and have not given the partition up.
func (p *partition) ledBy(s meta.PartitionState, in []meta.Member, why Why) meta.PartitionState {
	before := slices.Concat(s.Eligible, s.ISR)
	s.Leader, s.ISR, s.Eligible = in[0], in, nil
	need := isr.Rules{MinInsync: p.rules.MinInsync, Replicas: len(p.replicas)}
	if why.Unclean() || need.Enough(len(in)) {
		return s // what the others have no longer counts, or is had without them
	}
	for _, m := range before {
		if slices.Contains(p.replicas, m.ID) && !p.givenUp(m.ID) && !names(s.ISR, m.ID) && !names(s.Eligible, m.ID) {
			s.Eligible = append(s.Eligible, m)
		}
	}
	return s
}

// furthest is the one whose log goes furthest, once all who might have what was
// committed are back, though none of them holds (after a power cut, say); asked,
// if there is more than one. One that has given the partition up has to be
// repaired first: what it has lost may be what nobody else has.
func (p *partition) furthest() (best meta.Member, why Why) {
	var all []meta.Member
	for _, m := range slices.Concat(p.state.ISR, p.state.Eligible) {
		if !slices.Contains(p.replicas, m.ID) || names(all, m.ID) {
			continue
		}
		r, ok := p.live[m.ID]
		if !ok || p.givenUp(m.ID) {
			return meta.NoLeader, ""
		}
		all = append(all, r.Member())
	}
	switch {
	case len(all) == 0:
		return meta.NoLeader, ""
	case len(all) == 1:
		return all[0], Recovered
	case p.state.Leader != meta.NoLeader:
		return meta.NoLeader, "" // first all must know that nobody leads
	}
	var end LogEnd
	complete := true
	for _, m := range all {
		r := Replica{p.topic.ID, p.index, m, p.state.LeaderEpoch}
		e, ok := p.Ends[r]
		if !ok {
			complete = false
			p.plan.Ask = append(p.plan.Ask, Question{r, p.topic.Name})
			continue
		}
		if why == "" || e.after(end) {
			best, end, why = m, e, Furthest
		}
	}
	if !complete {
		return meta.NoLeader, ""
	}
	return best, why
}

func names(set []meta.Member, id int32) bool {
	return slices.ContainsFunc(set, func(m meta.Member) bool { return m.ID == id })
}
