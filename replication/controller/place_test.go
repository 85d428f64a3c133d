package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"firn/replication/meta"
)

// brokersOf are brokers from 1 on, in these racks.
func brokersOf(racks ...string) (all []meta.Broker) {
	for i, rack := range racks {
		all = append(all, meta.Broker{ID: int32(i + 1), Rack: rack})
	}
	return all
}

func TestPlacementSpreadsLeadersAndRacks(t *testing.T) {
	for _, c := range []struct {
		racks  []string
		factor int
	}{
		{[]string{""}, 1},
		{[]string{"", "", ""}, 3},
		{[]string{"", "", "", "", ""}, 3},
		{[]string{"a", "a", "b", "b", "c", "c"}, 3},
		{[]string{"a", "a", "a", "b", "b", "b"}, 2},
		{[]string{"a", "a", "b", "b"}, 3},
		{[]string{"a", "a", "a", "b", "c"}, 3},
		{[]string{"a", "b", "", ""}, 3},
	} {
		t.Run(fmt.Sprint(c.racks, c.factor), func(t *testing.T) {
			brokers := brokersOf(c.racks...)
			n := len(brokers) * 7
			for seed := range uint64(20) {
				leads, replicas := map[int32]int{}, map[int32]int{}
				together := map[[2]int32]int{}
				for p, ids := range Place(brokers, int(seed), n, c.factor, rand.New(rand.NewPCG(seed, 1))) {
					if len(ids) != c.factor {
						t.Fatalf("partition %d on %v", p, ids)
					}
					leads[ids[0]]++
					inRack := map[string]int{}
					for i, id := range ids {
						if slices.Contains(ids[:i], id) {
							t.Fatalf("partition %d on %v", p, ids)
						}
						replicas[id]++
						inRack[c.racks[id-1]]++
						together[[2]int32{ids[0], id}]++
					}
					if most := (c.factor + len(racksOf(c.racks)) - 1) / len(racksOf(c.racks)); !fits(c.racks, inRack, most) {
						t.Fatalf("partition %d on %v: racks %v", p, ids, inRack)
					}
				}
				for _, b := range brokers {
					if leads[b.ID] != 7 {
						t.Errorf("seed %d: broker %d leads %d of %d", seed, b.ID, leads[b.ID], n)
					}
					if replicas[b.ID] == 0 {
						t.Errorf("seed %d: broker %d has nothing", seed, b.ID)
					}
				}
			}
		})
	}
}

func racksOf(racks []string) []string { return slices.Compact(slices.Sorted(slices.Values(racks))) }

// fits: no rack has more than most replicas, unless the others are full.
func fits(racks []string, inRack map[string]int, most int) bool {
	size := map[string]int{}
	for _, r := range racks {
		size[r]++
	}
	over, room := false, false
	for r := range size {
		over = over || inRack[r] > most
		room = room || inRack[r] < min(size[r], most)
	}
	return !over || !room
}

func TestFollowersOfOneLeaderDiffer(t *testing.T) {
	brokers := brokersOf("", "", "", "", "")
	followers := map[int32]map[int32]bool{}
	for _, ids := range Place(brokers, 0, 50, 2, rand.New(rand.NewPCG(3, 4))) {
		if followers[ids[0]] == nil {
			followers[ids[0]] = map[int32]bool{}
		}
		followers[ids[0]][ids[1]] = true
	}
	for id, set := range followers {
		if len(set) != 4 {
			t.Errorf("broker %d is followed by %v only", id, set)
		}
	}
}

// Partitions added later go on where the first ones ended, in the same rounds.
func TestPlacementGoesOn(t *testing.T) {
	brokers := brokersOf("a", "b", "c", "a")
	all := Place(brokers, 0, 12, 3, rand.New(rand.NewPCG(1, 2)))
	later := Place(brokers, 5, 7, 3, rand.New(rand.NewPCG(1, 2)))
	for i, ids := range later {
		if !slices.Equal(ids, all[5+i]) {
			t.Errorf("partition %d: %v, want %v", 5+i, ids, all[5+i])
		}
	}
}
