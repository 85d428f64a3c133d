package controller

import (
	"cmp"
	"slices"

	"firn/replication/meta"
)

// prefer gives the leadership back to the preferred leader, if somebody wishes it
// or its broker leads too little, and it is in sync.
func (p *partition) prefer() (meta.PartitionState, bool) {
	first := p.replicas[0] // of those that stay, too: those that leave are the last
	wanted := p.wished(meta.PreferredElection) || p.unbalanced[first] && !p.topic.Moving(p.index)
	if !wanted || p.state.Leader.ID == first || p.reluctance(first) != willing {
		return p.state, false
	}
	in := leaderFirst(p.holding(p.state.ISR), first)
	if len(in) == 0 || in[0].ID != first {
		return p.state, false
	}
	s := p.state
	s.LeaderEpoch++
	return p.ledBy(s, in, Preferred), true
}

// weigh finds the brokers of whose partitions too many are led by others.
func (d *decider) weigh() {
	type load struct{ all, away int }
	loads := map[int32]load{}
	for _, t := range d.Image.Topics {
		if t.Deleting {
			continue
		}
		for p := range t.States {
			l := loads[t.Replicas[p][0]]
			l.all++
			if id := t.States[p].Leader.ID; id != meta.NoLeader.ID && id != t.Replicas[p][0] {
				l.away++
			}
			loads[t.Replicas[p][0]] = l
		}
	}
	d.unbalanced = map[int32]bool{}
	for id, l := range loads {
		if _, ok := d.live[id]; ok && l.away*100 > l.all*d.Balance.Percent {
			d.unbalanced[id] = true
		}
	}
}

// readWishes sorts the wishes by partition.
func (d *decider) readWishes() {
	if len(d.Image.Elections) == 0 {
		return
	}
	d.wishes = map[meta.TopicPartition][]meta.Election{}
	for _, e := range d.Image.Elections {
		for topic, ps := range e.Partitions {
			for _, p := range ps {
				tp := meta.TopicPartition{Topic: topic, Partition: p}
				d.wishes[tp] = append(d.wishes[tp], e)
			}
		}
	}
}

// wishes are those that name the partition.
func (p *partition) wishes() []meta.Election {
	if p.decider.wishes == nil {
		return nil
	}
	return p.decider.wishes[meta.TopicPartition{Topic: p.topic.Name, Partition: p.index}]
}

func (p *partition) wished(kind meta.ElectionKind) bool {
	return slices.ContainsFunc(p.wishes(), func(e meta.Election) bool { return e.Kind == kind })
}

// grant ends the wishes for which nothing is left to be done, done or not.
func (d *decider) grant() {
	for name, e := range d.Image.Elections {
		if !d.busy[name] {
			d.plan.Granted = append(d.plan.Granted, e)
		}
	}
	slices.SortFunc(d.plan.Granted, func(a, b meta.Election) int { return cmp.Compare(a.Name, b.Name) })
}
