package broker

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/replication/meta"
)

func indexOfBrokers(ids ...int32) *topicIndex {
	x := &topicIndex{}
	for _, id := range ids {
		x.brokers = append(x.brokers, meta.Broker{ID: id})
	}
	return x
}

func TestReplicasAreSpreadEvenly(t *testing.T) {
	x := indexOfBrokers(1, 2, 5, 9)
	got, err := placeReplicas(x, 0, 40, 3)
	if err != nil {
		t.Fatal(err)
	}
	leads, hosts := map[int32]int{}, map[int32]int{}
	for p, rs := range got {
		leads[rs[0]]++
		for i, id := range rs {
			hosts[id]++
			if slices.Contains(rs[:i], id) {
				t.Fatalf("partition %d: %v", p, rs)
			}
		}
	}
	for _, b := range x.brokers {
		if leads[b.ID] != 10 || hosts[b.ID] < 24 || hosts[b.ID] > 36 {
			t.Errorf("broker %d leads %d and hosts %d of 40×3", b.ID, leads[b.ID], hosts[b.ID])
		}
	}
}

func TestOneBrokerTakesEverythingButNoSecondReplica(t *testing.T) {
	x := indexOfBrokers(7)
	got, err := placeReplicas(x, 3, 2, 1)
	if err != nil || len(got) != 2 || !slices.Equal(got[0], []int32{7}) || !slices.Equal(got[1], []int32{7}) {
		t.Fatalf("%v, %v", got, err)
	}
	if _, err := placeReplicas(x, 0, 1, 2); !errors.Is(err, kerr.InvalidReplicationFactor) {
		t.Fatalf("two replicas on one broker: %v", err)
	}
	if _, err := placeReplicas(indexOfBrokers(), 0, 1, 1); !errors.Is(err, kerr.InvalidReplicationFactor) {
		t.Fatalf("no broker: %v", err)
	}
}

func TestManualAssignments(t *testing.T) {
	x := indexOfBrokers(1, 2)
	for name, c := range map[string]struct {
		replicas [][]int32
		ok       bool
	}{
		"good":                {[][]int32{{1, 2}, {2, 1}}, true},
		"empty list":          {[][]int32{{}}, false},
		"unknown broker":      {[][]int32{{3}}, false},
		"a broker twice":      {[][]int32{{1, 1}}, false},
		"factors that differ": {[][]int32{{1}, {1, 2}}, false},
	} {
		err := checkAssignment(x, c.replicas, 0)
		if c.ok != (err == nil) || !c.ok && !errors.Is(err, kerr.InvalidReplicaAssignment) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
