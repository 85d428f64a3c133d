package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// layout is where the partitions of topics are, and what to make of it.
type layout struct {
	topics  []string
	now     [][]int32
	racks   map[int32]string
	brokers []int32
}

func (l *layout) spread(factor int, seed uint64) [][]int32 {
	s := &spread{brokers: slices.Clone(l.brokers), rack: l.racks, random: rand.New(rand.NewPCG(seed, 1))}
	for i, now := range l.now {
		s.add(l.topics[i], now, factor)
	}
	return s.plan()
}

// uneven tells where counts of brokers differ by more than 1.
func uneven(brokers []int32, of map[int32]int) bool {
	lo, hi := of[brokers[0]], of[brokers[0]]
	for _, id := range brokers {
		lo, hi = min(lo, of[id]), max(hi, of[id])
	}
	return hi-lo > 1
}

func (l *layout) check(t *testing.T, placed [][]int32, factor int) {
	t.Helper()
	all, leads := map[int32]int{}, map[int32]int{}
	topics := map[string]map[int32]int{}
	for i, ids := range placed {
		if len(ids) != factor {
			t.Fatalf("%s on %v, want %d", l.topics[i], ids, factor)
		}
		if topics[l.topics[i]] == nil {
			topics[l.topics[i]] = map[int32]int{}
		}
		leads[ids[0]]++
		for j, id := range ids {
			if slices.Contains(ids[:j], id) || !slices.Contains(l.brokers, id) {
				t.Fatalf("%s on %v of %v", l.topics[i], ids, l.brokers)
			}
			all[id]++
			topics[l.topics[i]][id]++
		}
	}
	if uneven(l.brokers, all) || uneven(l.brokers, leads) {
		t.Errorf("replicas %v, leads %v", all, leads)
	}
	for name, of := range topics {
		if uneven(l.brokers, of) {
			t.Errorf("replicas of %s: %v", name, of)
		}
	}
}

func layoutOf(topics, partitions int, replicas func(n int) []int32, brokers ...int32) *layout {
	l := &layout{brokers: brokers}
	for i := range topics {
		for p := range partitions {
			l.topics, l.now = append(l.topics, fmt.Sprint("t", i)), append(l.now, replicas(i*partitions+p))
		}
	}
	return l
}

// TestSpreadLevelsAndThenLeaves: the same wish twice moves nothing the second time,
// from wherever it started.
func TestSpreadLevelsAndThenLeaves(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 2))
		anywhere := func(int) []int32 {
			ids := []int32{1, 2, 3, 4, 5, 6}
			r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			return ids[:1+r.IntN(4)]
		}
		for _, brokers := range [][]int32{{1, 2, 3}, {2, 4, 5, 6}, {7, 8, 9}, {1, 2, 3, 4, 5, 6}} {
			for factor := 1; factor <= 3; factor++ {
				for _, shape := range [][2]int{{1, 20}, {33, 3}, {25, 1}} {
					l := layoutOf(shape[0], shape[1], anywhere, brokers...)
					placed := l.spread(factor, seed)
					l.check(t, placed, factor)
					l.now = placed
					for i, again := range l.spread(factor, seed+1) {
						if !slices.Equal(again, placed[i]) {
							t.Fatalf("seed %d, %d of %v: %v becomes %v by the same wish", seed, factor, brokers, placed[i], again)
						}
					}
				}
			}
		}
	}
}

// TestSpreadLeavesWhatFits: one partition that doesn't fit moves alone, and a new
// replica comes to what is there.
func TestSpreadLeavesWhatFits(t *testing.T) {
	ring := func(n int) []int32 { return []int32{1 + int32(n)%3, 1 + int32(n+1)%3} }
	l := layoutOf(11, 3, ring, 1, 2, 3)
	l.now[7] = []int32{l.now[7][0], 4}
	for i, ids := range l.spread(2, 1) {
		if i != 7 && !slices.Equal(ids, l.now[i]) || i == 7 && ids[0] != l.now[i][0] {
			t.Errorf("partition %d goes from %v to %v", i, l.now[i], ids)
		}
	}
	l = layoutOf(33, 3, func(n int) []int32 { return [][]int32{{1, 3}, {3, 1}}[n%2] }, 1, 2, 3)
	placed, first := l.spread(3, 1), 0
	l.check(t, placed, 3)
	for i, ids := range placed {
		if ids[0] != l.now[i][0] {
			first++
		}
	}
	if first != 33 { // broker 2's third
		t.Errorf("%d of 99 get another preferred leader", first)
	}
}

// TestLeadsAreHandedOnOverOthers where the two have no partition in common.
func TestLeadsAreHandedOnOverOthers(t *testing.T) {
	l := &layout{brokers: []int32{1, 2, 3}}
	for _, ids := range [][]int32{{1, 3}, {1, 3}, {1, 3}, {3, 2}, {3, 2}, {2, 3}} {
		l.topics, l.now = append(l.topics, "t"), append(l.now, ids)
	}
	s := &spread{brokers: l.brokers, random: rand.New(rand.NewPCG(1, 1))}
	for _, ids := range l.now {
		s.add("t", ids, 2)
	}
	s.levelLeads()
	if leads := s.all.leads; leads[1] != 2 || leads[2] != 2 || leads[3] != 2 {
		t.Errorf("leads %v", leads)
	}
	for i, p := range s.slots {
		if !slices.Contains(p.to, l.now[i][0]) || !slices.Contains(p.to, l.now[i][1]) {
			t.Errorf("%v became %v", l.now[i], p.to)
		}
	}
}

func TestSpreadKeepsRacksApart(t *testing.T) {
	racks := map[int32]string{1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
	l := layoutOf(3, 7, func(int) []int32 { return []int32{1, 2} }, 1, 2, 3, 4, 5)
	l.racks = racks
	for seed := range uint64(10) {
		placed := l.spread(2, seed)
		for _, ids := range placed {
			if racks[ids[0]] == racks[ids[1]] {
				t.Fatalf("%v is one rack", ids)
			}
		}
		l.check(t, placed, 2)
		again := *l
		again.now = placed
		if got := again.spread(2, seed+1); !slices.EqualFunc(got, placed, slices.Equal) {
			t.Errorf("%v becomes %v by the same wish", placed, got)
		}
	}
}
