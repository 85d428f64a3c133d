package controller

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"firn/replication/meta"
)

// Place chooses the replicas of n partitions from number first on, factor of
// each, out of at least as many brokers.
//
// The brokers stand in a ring in which neighbours are of different racks, as far
// as there are enough. Leaders go round it from a random start; followers too,
// begun one further in each round, so that the partitions of one leader don't all
// have the same followers. Of those who are next, a follower is the first whose
// rack has the fewest replicas of the partition.
//
//	racks a: 1 2   b: 3 4   c: 5        ring 1 3 5 2 4
//	                                     p0   1 3 5      p1   3 5 2      p2   5 2 4 …
func Place(brokers []meta.Broker, first, n, factor int, r *rand.Rand) [][]int32 {
	ring := ringOf(brokers)
	start, shift := r.IntN(len(ring)), r.IntN(len(ring))
	shift += first / len(ring)
	out := make([][]int32, n)
	for i := range out {
		p := first + i
		if i > 0 && p%len(ring) == 0 {
			shift++
		}
		out[i] = place(ring, (start+p)%len(ring), shift, factor)
	}
	return out
}

// place chooses one partition's replicas: the broker at lead, and followers.
func place(ring []meta.Broker, lead, shift, factor int) []int32 {
	ids := make([]int32, 1, factor)
	ids[0] = ring[lead].ID
	inRack := map[string]int{ring[lead].Rack: 1}
	for len(ids) < factor {
		best := -1
		for k := range len(ring) - 1 {
			i := (lead + 1 + (shift+k)%(len(ring)-1)) % len(ring)
			if slices.Contains(ids, ring[i].ID) {
				continue
			}
			if best < 0 || inRack[ring[i].Rack] < inRack[ring[best].Rack] {
				best = i
			}
		}
		ids = append(ids, ring[best].ID)
		inRack[ring[best].Rack]++
	}
	return ids
}

// ringOf is the brokers, one of each rack in turn.
func ringOf(brokers []meta.Broker) []meta.Broker {
	racks := map[string][]meta.Broker{}
	var names []string
	for _, b := range slices.SortedFunc(slices.Values(brokers), func(a, b meta.Broker) int { return cmp.Compare(a.ID, b.ID) }) {
		if racks[b.Rack] == nil {
			names = append(names, b.Rack)
		}
		racks[b.Rack] = append(racks[b.Rack], b)
	}
	ring := make([]meta.Broker, 0, len(brokers))
	for round := 0; len(ring) < len(brokers); round++ {
		for _, name := range names {
			if round < len(racks[name]) {
				ring = append(ring, racks[name][round])
			}
		}
	}
	return ring
}
