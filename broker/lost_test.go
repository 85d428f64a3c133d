package broker

import (
	"os"
	"path/filepath"
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
	eventually(t, "both have it", func() bool { return c.node(2).hosted("t").local.Offsets().End == 100 })
	goOn := n.standStill(n.topics.Load().byName["t"].partition(0)) // or it is in sync again before we have looked
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
	goOn()
	eventually(t, "the damage is cut off", func() bool { return n.hosted("t").local.Err() == nil })
	eventually(t, "it is in sync again", func() bool { return len(c.state("t", 0).ISR) == 2 })
	eventually(t, "it is taken off the list", func() bool { return !lists() })
	if got := n.hosted("t").local.Offsets().End; got != 100 {
		t.Errorf("its log ends at %d", got)
	}
}

// S7: a log that is missing is no reason to wait for an operator where others have
// what it held; it begins anew when nobody counts on it any more.
func TestAMissingLogComesFromTheOthers(t *testing.T) {
	c := startCluster(t, 3)
	c.create("t", [][]int32{{1, 2, 3}})
	n := c.leader("t", 0)
	for range 100 {
		n.append("t", 0, 1)
	}
	for _, m := range c.nodes {
		eventually(t, "all have it", func() bool { return m.hosted("t").local.Offsets().End == 100 })
	}
	lost := c.node(2)
	lost.stop()
	if err := os.RemoveAll(filepath.Join(lost.dir, "logs", "t-0")); err != nil {
		t.Fatal(err)
	}
	lost.start()
	eventually(t, "all are in sync", func() bool { return len(c.state("t", 0).ISR) == 3 })
	if got := lost.hosted("t").local.Offsets().End; got != 100 {
		t.Errorf("its log ends at %d", got)
	}
	eventually(t, "nothing is listed", func() bool {
		o, err := meta.LoadOffline(t.Context(), c.tree.Begin(), 2)
		return err == nil && len(o.Partitions) == 0
	})
	if s := c.state("t", 0); s.LeaderEpoch > 1 {
		t.Errorf("state %+v", s)
	}
}
