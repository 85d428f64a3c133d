package broker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication/meta"
)

// moving are the reassignments under way, as a broker lists them.
func (n *node) moving() []kmsg.ListPartitionReassignmentsResponseTopic {
	n.t.Helper()
	return ask[*kmsg.ListPartitionReassignmentsResponse](n, kmsg.NewPtrListPartitionReassignmentsRequest()).Topics
}

func (n *node) hasDir(name string) bool {
	_, err := os.Stat(filepath.Join(n.dir, "logs", name))
	return err == nil
}

func TestAPartitionMovesToOtherBrokers(t *testing.T) {
	c := startCluster(t, 4)
	c.create("t", [][]int32{{1, 2}}, "min.insync.replicas=1")
	c.inSyncWith("t", 1, 2)
	for i := range 20 {
		c.produceAll("t", fmt.Sprint("record ", i))
	}
	want := c.node(1).contents("t")
	if r := c.node(2).alterReplicas("t", 0, []int32{3, 4}); r.ErrorCode != 0 { // any broker takes the wish
		t.Fatalf("code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	c.inSyncWith("t", 3, 4)
	if l := c.leader("t", 0); l.id != 3 {
		t.Errorf("broker %d leads", l.id)
	}
	for _, id := range []int32{3, 4} {
		if got := c.node(id).contents("t"); !bytes.Equal(got, want) {
			t.Errorf("broker %d has %d bytes, broker 1 had %d", id, len(got), len(want))
		}
	}
	c.await("the reassignment is over", func(x *topicIndex) bool {
		t := x.byName["t"]
		return slices.Equal(t.Replicas[0], []int32{3, 4}) && !t.Moving(0)
	})
	if m := c.node(1).moving(); len(m) != 0 {
		t.Errorf("still listed: %+v", m)
	}
	for _, id := range []int32{1, 2} {
		eventually(t, "its log is gone where it was", func() bool { return !c.node(id).hasDir("t-0") })
	}
	c.produceAll("t", "goes on")
	moved := 0.0
	for _, n := range c.nodes {
		if n.topics.Load().controller == n.id {
			moved = n.metric("firn_controller_decisions_total", "why=moved")
		}
	}
	if moved != 1 {
		t.Errorf("%v moves counted", moved)
	}
}

func TestAReassignmentIsTakenBack(t *testing.T) {
	c := startCluster(t, 3)
	c.create("t", [][]int32{{1, 2}}, "min.insync.replicas=1")
	c.inSyncWith("t", 1, 2)
	// Broker 3 is away when it comes to copying, so that it can't end.
	if r := c.node(1).alterReplicas("t", 0, []int32{9}); r.ErrorCode != kerr.InvalidReplicaAssignment.Code {
		t.Fatalf("to a broker that doesn't exist: code %d", r.ErrorCode)
	}
	c.crash(3)
	if r := c.node(1).alterReplicas("t", 0, []int32{3, 1}); r.ErrorCode != kerr.InvalidReplicaAssignment.Code {
		// The picture may not yet show that it has gone: then the wish is taken.
		if r.ErrorCode != 0 {
			t.Fatalf("code %d %s", r.ErrorCode, words(r.ErrorMessage))
		}
	} else {
		grown := c.node(1).topics.Load().byName["t"].Topic.Reassign(0, []int32{3, 1})
		if err := c.node(1).commit(t.Context(), meta.SetTopic(grown)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "it is listed", func() bool {
		m := c.node(1).moving()
		return len(m) == 1 && slices.Equal(m[0].Partitions[0].AddingReplicas, []int32{3}) && slices.Equal(m[0].Partitions[0].RemovingReplicas, []int32{2})
	})
	if r := c.node(2).alterReplicas("t", 0, nil); r.ErrorCode != 0 {
		t.Fatalf("taken back: code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	if m := c.node(2).moving(); len(m) != 0 {
		t.Errorf("still listed when the answer comes: %+v", m)
	}
	c.inSyncWith("t", 1, 2)
	c.produceAll("t", "goes on")
}

func TestAMovedReplicaThatWasAwayIsDeletedWhenItComesBack(t *testing.T) {
	c := startCluster(t, 3)
	c.create("t", [][]int32{{1, 2}}, "min.insync.replicas=1")
	c.inSyncWith("t", 1, 2)
	c.produceAll("t", "a record")
	c.crash(2)
	c.node(1).alterReplicas("t", 0, []int32{1, 3})
	c.inSyncWith("t", 1, 3)
	c.await("the reassignment is over", func(x *topicIndex) bool { return !x.byName["t"].Moving(0) })
	if !c.node(2).hasDir("t-0") {
		t.Fatal("its log is gone already")
	}
	c.node(2).start()
	eventually(t, "its log is gone", func() bool { return !c.node(2).hasDir("t-0") })
	if len(c.node(1).contents("t")) == 0 || len(c.node(3).contents("t")) == 0 {
		t.Error("the others' logs are empty")
	}
}

func TestLeadersOnDemand(t *testing.T) {
	c := startCluster(t, 3)
	c.create("t", [][]int32{{1, 2, 3}}, "min.insync.replicas=1")
	c.inSyncWith("t", 1, 2, 3)
	c.crash(1)
	c.inSyncWith("t", 2, 3)
	c.await("broker 2 leads", leads(2)) // who doesn't know yet sees no need of an election
	if got := c.node(2).elect(0, "t", 0); got[0] != kerr.PreferredLeaderNotAvailable.Code {
		t.Errorf("while broker 1 is away: code %d", got[0])
	}
	c.node(1).start()
	c.inSyncWith("t", 1, 2, 3)
	if l := c.leader("t", 0); l.id == 1 {
		t.Fatal("broker 1 leads already")
	}
	if got := c.node(3).elect(0, "t", 0); got[0] != 0 {
		t.Errorf("code %d", got[0])
	}
	if l := c.leader("t", 0); l.id != 1 {
		t.Errorf("broker %d leads", l.id)
	}
	if n, err := c.tree.Begin().Children(t.Context(), "/firn/elections"); err != nil || len(n) != 0 {
		t.Errorf("wishes left: %v, %v", n, err)
	}
}

func TestAnUncleanLeaderOnDemand(t *testing.T) {
	c := startCluster(t, 2, "replica.lag.time.max.ms=500")
	c.create("t", [][]int32{{1, 2}}, "min.insync.replicas=1")
	c.inSyncWith("t", 1, 2)
	c.crash(2)
	c.inSyncWith("t", 1)
	c.produceAll("t", "only on 1")
	c.crash(1)
	c.node(2).start()
	c.await("nobody leads", func(x *topicIndex) bool { return x.byName["t"].states[0].Leader == meta.NoLeader })
	if got := c.node(2).elect(1, "t", 0); got[0] != 0 {
		t.Errorf("code %d", got[0])
	}
	if l := c.leader("t", 0); l.id != 2 {
		t.Errorf("broker %d leads", l.id)
	}
	if n := c.node(2).metric("kafka_controller_controllerstats_uncleanleaderelections_total"); n != 1 {
		t.Errorf("%v unclean elections counted", n)
	}
}

func TestABrokerIsEmptiedAndUnregistered(t *testing.T) {
	c := startCluster(t, 3)
	c.create("t", [][]int32{{3, 1}}, "min.insync.replicas=1")
	c.inSyncWith("t", 3, 1)
	unregister := func() int16 {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = 3
		return ask[*kmsg.UnregisterBrokerResponse](c.node(1), req).ErrorCode
	}
	if code := unregister(); code != kerr.InvalidRequest.Code {
		t.Errorf("while it runs: code %d", code)
	}
	c.crash(3)
	c.inSyncWith("t", 1)
	if code := unregister(); code != kerr.InvalidRequest.Code {
		t.Errorf("while it has replicas: code %d", code)
	}
	if r := c.node(1).alterReplicas("t", 0, []int32{1, 2}); r.ErrorCode != 0 {
		t.Fatalf("code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	c.inSyncWith("t", 1, 2)
	c.await("the reassignment is over", func(x *topicIndex) bool { return !x.byName["t"].Moving(0) })
	if code := unregister(); code != 0 {
		t.Fatalf("code %d", code)
	}
	if code := unregister(); code != kerr.BrokerIDNotRegistered.Code {
		t.Errorf("again: code %d", code)
	}
	c.await("it isn't even away", func(x *topicIndex) bool { return len(x.away()) == 0 })
	c.node(3).start() // it may always come back
	c.await("it is back", func(x *topicIndex) bool { return x.broker(3) != nil && !x.registrations[3].Retired })
}

// A20: a power cut of all brokers. Nobody can vouch for what it was counted for;
// the furthest log leads, and nothing that one of them still has is lost.
func TestAfterAPowerCutOfAllTheFurthestLogLeads(t *testing.T) {
	c := startCluster(t, 3)
	c.create("t", [][]int32{{1, 2, 3}}, "min.insync.replicas=2")
	c.inSyncWith("t", 1, 2, 3)
	for i := range 10 {
		c.produceAll("t", fmt.Sprint("record ", i))
	}
	want := c.node(1).contents("t")
	for _, n := range c.nodes {
		c.crash(n.id)
	}
	s := c.tree.Begin()
	for _, n := range c.nodes {
		r, err := meta.LoadRegistration(t.Context(), s, n.id)
		if err != nil {
			t.Fatal(err)
		}
		r.BootID = "before the power cut"
		if err := s.Commit(t.Context(), meta.Op{Kind: meta.Set, Path: meta.RegistrationPath(n.id), Value: meta.EncodeRegistration(r), Version: r.Version}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range c.nodes {
		n.start()
	}
	c.leader("t", 0)
	c.inSyncWith("t", 1, 2, 3)
	unclean := 0.0
	for _, n := range c.nodes {
		unclean += n.metric("kafka_controller_controllerstats_uncleanleaderelections_total")
		if got := n.contents("t"); !bytes.Equal(got, want) {
			t.Errorf("broker %d has %d bytes, want %d", n.id, len(got), len(want))
		}
	}
	if unclean != 1 {
		t.Errorf("%v unclean elections counted", unclean)
	}
}

func TestADeletionWaitsForWhoIsAway(t *testing.T) {
	c := startCluster(t, 2, "archive.delete.grace.ms=0")
	tp := c.create("t", [][]int32{{1, 2}}, "min.insync.replicas=1")
	c.inSyncWith("t", 1, 2)
	c.produceAll("t", "a record")
	c.crash(2)
	if code := c.node(1).delete("t"); code != 0 {
		t.Fatalf("code %d", code)
	}
	tombstone := func() (meta.Purge, error) {
		n, err := c.tree.Begin().Get(t.Context(), meta.PurgePath(tp.ID))
		if err != nil {
			return meta.Purge{}, err
		}
		return meta.DecodePurge(tp.ID, n)
	}
	eventually(t, "broker 1 has deleted its log", func() bool {
		p, err := tombstone()
		return err == nil && slices.Equal(p.Waiting, []int32{2}) && !c.node(1).hasDir("t-0")
	})
	c.node(2).start()
	if c.node(2).hasDir("t-0") {
		t.Error("broker 2 still has the log")
	}
	eventually(t, "the tombstone goes", func() bool { _, err := tombstone(); return errors.Is(err, meta.ErrNotFound) })
}
