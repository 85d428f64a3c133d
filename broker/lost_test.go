package broker

import (
	"slices"
	"testing"

	"firn/replication/meta"
)

// S5, S7: damage is listed first; somebody else leads, and the replica is out of
// the ISR; only then is anything cut off here.
func TestADamagedReplicaIsGivenUpToTheOthers(t *testing.T) {
	c := startCluster(t, 2)
	tp := c.create("t", [][]int32{{1, 2}}, "segment.bytes=1024")
	n := c.leader("t", 0)
	if n.id != 1 {
		t.Fatalf("broker %d leads", n.id)
	}
	for range 100 {
		n.append("t", 0, 1)
	}
	n.meet("t", n.logFiles("t")[0], 0)
	eventually(t, "broker 2 leads", func() bool { return c.state("t", 0).Leader == c.node(2).self() })
	if s := c.state("t", 0); slices.ContainsFunc(s.ISR, func(m meta.Member) bool { return m.ID == 1 }) {
		t.Errorf("the state is %+v", s)
	}
	lists := func() bool {
		o, err := meta.LoadOffline(t.Context(), c.tree.Begin(), 1)
		return err == nil && o.Lists(tp.ID, 0)
	}
	if !lists() {
		t.Error("it isn't listed")
	}
	for _, m := range c.nodes {
		eventually(t, "clients see the replica as offline", func() bool {
			return slices.Equal(m.describe("t").Partitions[0].OfflineReplicas, []int32{1})
		})
	}
	eventually(t, "the damage is cut off", func() bool { return n.hosted("t").local.Err() == nil })
	if !lists() {
		t.Error("it was taken off the list before it is in sync again")
	}
}
