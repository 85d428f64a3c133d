package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// spread is a plan for partitions over some brokers. It leaves as much as it can
// where it is: only what lies elsewhere moves, what is too much goes, what is too
// few is added; then, one replica at a time, what keeps racks apart, levels each
// topic, and levels all topics together, the first of these before the next. What
// is level already stays, so that the same wish twice moves nothing the second time.
type spread struct {
	brokers []int32
	rack    map[int32]string
	slots   []*slot
	topics  map[string]*counts
	all     counts
	random  *rand.Rand // decides between brokers that are as good as each other
}

// slot is a partition in a plan.
type slot struct {
	topic  string
	to     []int32 // its replicas by the plan, the preferred leader first
	factor int
}

// counts is how much each broker has.
type counts struct{ replicas, leads map[int32]int }

func newCounts() counts { return counts{map[int32]int{}, map[int32]int{}} }

// add plans for a partition whose replicas are now, of which there shall be factor.
func (s *spread) add(topic string, now []int32, factor int) {
	if s.topics == nil {
		s.topics, s.all = map[string]*counts{}, newCounts()
	}
	if s.topics[topic] == nil {
		s.topics[topic] = new(newCounts())
	}
	stay := slices.DeleteFunc(slices.Clone(now), func(id int32) bool { return !slices.Contains(s.brokers, id) })
	p := &slot{topic: topic, to: stay, factor: factor}
	s.slots = append(s.slots, p)
	for _, id := range stay {
		s.count(p, id, 1)
	}
}

// count notes that a replica of p comes to a broker, or leaves it.
func (s *spread) count(p *slot, id int32, n int) {
	s.topics[p.topic].replicas[id] += n
	s.all.replicas[id] += n
}

// plan is where each partition's replicas shall be, in the order of add.
func (s *spread) plan() [][]int32 {
	for _, p := range s.slots {
		for len(p.to) > p.factor {
			s.drop(p)
		}
	}
	for _, p := range s.slots {
		for len(p.to) < p.factor {
			id := s.best(p, p.to)
			p.to = append(p.to, id)
			s.count(p, id, 1)
		}
	}
	for moved := true; moved; {
		moved = false
		for _, p := range s.slots {
			for i := len(p.to) - 1; i >= 0; i-- { // the leader last
				moved = s.improve(p, i) || moved
			}
		}
	}
	s.levelLeads()
	out := make([][]int32, len(s.slots))
	for i, p := range s.slots {
		out[i] = p.to
	}
	return out
}

// inRack counts ids in the rack of a broker.
func (s *spread) inRack(ids []int32, of int32) (n int) {
	for _, id := range ids {
		if s.rack[id] == s.rack[of] {
			n++
		}
	}
	return n
}

// compare tells which of two brokers a replica of p lies better on, next to others.
func (s *spread) compare(p *slot, others []int32, a, b int32) int {
	t := s.topics[p.topic].replicas
	return cmp.Or(
		cmp.Compare(s.inRack(others, a), s.inRack(others, b)),
		cmp.Compare(t[a], t[b]),
		cmp.Compare(s.all.replicas[a], s.all.replicas[b]))
}

// drop takes the follower away that lies worst, the last of them first.
func (s *spread) drop(p *slot) {
	worst := len(p.to) - 1
	for i := worst - 1; i > 0; i-- {
		if s.compare(p, p.to, p.to[i], p.to[worst]) > 0 {
			worst = i
		}
	}
	s.count(p, p.to[worst], -1)
	p.to = slices.Delete(p.to, worst, worst+1)
}

// best is the broker that a replica of p lies best on, next to others; none of p's.
func (s *spread) best(p *slot, others []int32) int32 {
	s.random.Shuffle(len(s.brokers), func(i, j int) { s.brokers[i], s.brokers[j] = s.brokers[j], s.brokers[i] })
	best := int32(-1)
	for _, id := range s.brokers {
		if !slices.Contains(p.to, id) && (best < 0 || s.compare(p, others, id, best) < 0) {
			best = id
		}
	}
	return best
}

// improve moves one replica of p if that is worth it: if racks are apart more, or
// else as much, and the topic's replicas are more level, or else as much, and those
// of all are.
func (s *spread) improve(p *slot, i int) bool {
	from := p.to[i]
	others := slices.Delete(slices.Clone(p.to), i, i+1)
	to := s.best(p, others)
	if to < 0 {
		return false
	}
	racks := s.inRack(others, to) - s.inRack(others, from)
	t := s.topics[p.topic].replicas
	topic, all := t[to]-t[from], s.all.replicas[to]-s.all.replicas[from]
	if racks > 0 || racks == 0 && (topic > -1 || topic == -1 && all > -2) {
		return false
	}
	s.count(p, from, -1)
	s.count(p, to, 1)
	p.to[i] = to
	return true
}

// levelLeads has each topic's preferred leaders level, and then those of all, by
// nothing but the order of replicas.
func (s *spread) levelLeads() {
	slotsOf := map[string][]*slot{}
	var names []string
	for _, p := range s.slots {
		if slotsOf[p.topic] == nil {
			names = append(names, p.topic)
		}
		slotsOf[p.topic] = append(slotsOf[p.topic], p)
		s.topics[p.topic].leads[p.to[0]]++
		s.all.leads[p.to[0]]++
	}
	for again := true; again; {
		again = false
		for _, name := range names {
			for s.handOn(slotsOf[name], s.topics[name].leads, func(*slot, int32) bool { return true }) {
				again = true
			}
		}
		for s.handOn(s.slots, s.all.leads, func(p *slot, to int32) bool {
			leads := s.topics[p.topic].leads
			return leads[p.to[0]]-leads[to] == 1 // the topic is as level afterwards
		}) {
			again = true
		}
	}
}

// handOn hands one lead of a broker to one that has at least two less: in one step,
// where a partition has both, or over others that take one and give one.
func (s *spread) handOn(slots []*slot, leads map[int32]int, may func(p *slot, to int32) bool) bool {
	byLeads := slices.SortedFunc(slices.Values(s.brokers), func(a, b int32) int {
		return cmp.Or(cmp.Compare(leads[b], leads[a]), cmp.Compare(a, b))
	})
	led := map[int32][]*slot{}
	for _, p := range slots {
		led[p.to[0]] = append(led[p.to[0]], p)
	}
	for _, from := range byLeads {
		by := map[int32]*slot{from: nil} // how a broker is reached
		for queue := []int32{from}; len(queue) > 0; queue = queue[1:] {
			for _, p := range led[queue[0]] {
				for _, to := range p.to[1:] {
					if _, reached := by[to]; reached || !may(p, to) {
						continue
					}
					by[to], queue = p, append(queue, to)
					if leads[to] <= leads[from]-2 {
						s.takeOver(by, to)
						return true
					}
				}
			}
		}
	}
	return false
}

// takeOver has broker to lead what it is reached by, whose leader what that one is
// reached by, and so on.
func (s *spread) takeOver(by map[int32]*slot, to int32) {
	for p := by[to]; p != nil; p = by[to] {
		was, i := p.to[0], slices.Index(p.to, to)
		p.to[0], p.to[i] = to, was
		for _, leads := range []map[int32]int{s.topics[p.topic].leads, s.all.leads} {
			leads[was]--
			leads[to]++
		}
		to = was
	}
}
