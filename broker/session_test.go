package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication/meta"
	"firn/segment/batch"
)

// oneEach is a topic's replicas: one partition for each of n brokers.
func oneEach(n int32) (replicas [][]int32) {
	for id := int32(1); id <= n; id++ {
		replicas = append(replicas, []int32{id})
	}
	return replicas
}

func TestBrokersOfAClusterKnowEachOther(t *testing.T) {
	c := startCluster(t, 3, "broker.rack=r")
	c.create("t", oneEach(3))
	for p := range int32(3) {
		if got := c.leader("t", p); got != c.node(p+1) {
			t.Errorf("t-%d is led by broker %d", p, got.id)
		}
	}
	for _, n := range c.nodes {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 13
		got := ask[*kmsg.MetadataResponse](n, req)
		if len(got.Brokers) != 3 || got.ControllerID < 1 || got.ControllerID != n.topics.Load().controller {
			t.Errorf("broker %d shows %d brokers, controller %d", n.id, len(got.Brokers), got.ControllerID)
		}
		for _, b := range got.Brokers {
			if e := c.node(b.NodeID).Endpoints()[0]; b.Port != e.Port || b.Rack == nil || *b.Rack != "r" {
				t.Errorf("broker %d shows %d at %s:%d, rack %v", n.id, b.NodeID, b.Host, b.Port, b.Rack)
			}
		}
		part := n.describe("t").Partitions
		for p := range part {
			if part[p].Leader != int32(p)+1 || part[p].ErrorCode != 0 {
				t.Errorf("broker %d: t-%d is led by %d, code %d", n.id, p, part[p].Leader, part[p].ErrorCode)
			}
		}
		cl := kmsg.NewPtrDescribeClusterRequest()
		if d := ask[*kmsg.DescribeClusterResponse](n, cl); len(d.Brokers) != 3 || d.ControllerID != got.ControllerID {
			t.Errorf("DescribeCluster on %d: %+v", n.id, d)
		}
	}
}

// KIP-951: who asks the wrong broker is told who leads, and where.
func TestTheWrongBrokerTellsWhoLeads(t *testing.T) {
	c := startCluster(t, 2)
	tp := c.create("t", oneEach(2))
	wrong := c.node(1).dial()
	want := c.node(2).Endpoints()[0]
	req := produceReq(10, -1, "t", 1, batchOf(1, 1, 70))
	resp := wrong.call(req).(*kmsg.ProduceResponse)
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != 2 || len(resp.Brokers) != 1 || resp.Brokers[0].Port != want.Port {
		t.Errorf("produce: code %d, leader %+v, brokers %+v", p.ErrorCode, p.CurrentLeader, resp.Brokers)
	}
	fr := fetchReq(16, "t", 0, 1)
	fr.Topics[0].TopicID = tp.ID
	f := wrong.call(fr).(*kmsg.FetchResponse)
	fp := f.Topics[0].Partitions[0]
	if fp.ErrorCode != kerr.NotLeaderForPartition.Code || fp.CurrentLeader.LeaderID != 2 || len(f.Brokers) != 1 || f.Brokers[0].Port != want.Port {
		t.Errorf("fetch: code %d, leader %+v, brokers %+v", fp.ErrorCode, fp.CurrentLeader, f.Brokers)
	}
}

// R6, A19, Z1: the end of a session ends every leadership held in it, and the
// broker, which lives on, leads again only in a new epoch.
func TestABrokerLivesOnAfterItsSession(t *testing.T) {
	c := startCluster(t, 2)
	c.create("t", oneEach(2))
	before := c.state("t", 1)
	n := c.node(2)
	epoch := n.self().Epoch
	old := n.topics.Load().byName["t"].partition(1)
	for round := range int32(3) {
		c.store(2).Expire()
		eventually(t, "registered again", func() bool { return n.self().Epoch > epoch })
		epoch = n.self().Epoch
		eventually(t, "leads in the next epoch", func() bool {
			_, e, here := old.Leader()
			return here && e > before.LeaderEpoch+round
		})
		if s := c.state("t", 1); s.Leader != n.self() {
			t.Errorf("the state names %v, this broker is %v", s.Leader, n.self())
		}
		n.append("t", 1, 1, 2)
	}
	if got := n.list("t", 1, -1).Offset; got != 6 {
		t.Errorf("the log ends at %d, want 6", got)
	}
	c.await("both brokers are there", func(x *topicIndex) bool { return len(x.brokers) == 2 })
}

// The controller's session ends: another decides, and this one campaigns again.
func TestTheControllersOfficeMovesWithItsSession(t *testing.T) {
	c := startCluster(t, 3)
	for range 3 {
		was := c.node(1).topics.Load().controller
		epoch := c.node(was).self().Epoch
		c.store(was).Expire()
		eventually(t, "registered again", func() bool { return c.node(was).self().Epoch > epoch })
		// Not the picture of before the session ended, which had a controller, too.
		c.await("there is a controller, and it is back", func(x *topicIndex) bool {
			b := x.broker(was)
			return x.controller > 0 && len(x.brokers) == 3 && b != nil && b.Epoch > epoch
		})
		name := fmt.Sprintf("t%d-%d", was, epoch)
		c.create(name, oneEach(3))
		for p := range int32(3) {
			c.leader(name, p)
		}
	}
}

func TestABrokerThatIsCutOffLeadsAsLongAsItsLease(t *testing.T) {
	c := startCluster(t, 2, shortSession)
	c.create("t", oneEach(2), "unclean.leader.election.enable=true")
	n := c.node(2)
	part := n.topics.Load().byName["t"].partition(1)
	c.leader("t", 1)
	eventually(t, "the lease is held", part.Answers)
	c.store(2).Cut()
	eventually(t, "the lease is over", func() bool { return !part.Answers() })
	try := func(acks int16) int16 {
		return produced(n.dial().call(produceReq(9, acks, "t", 1, n.batch(batch.Spec{}, 1)))).ErrorCode
	}
	for _, acks := range []int16{1, -1} {
		if code := try(acks); code != kerr.NotLeaderForPartition.Code {
			t.Errorf("acks=%d past the lease: code %d", acks, code)
		}
	}
	if got := n.list("t", 1, -1).ErrorCode; got != kerr.NotLeaderForPartition.Code {
		t.Errorf("ListOffsets past the lease: code %d", got)
	}
	c.store(2).Heal()
	eventually(t, "acks=1 is answered after it has healed", func() bool { return try(1) == 0 })
}

// Z1, B9: nothing of an older metadata store is obeyed.
func TestABrokerEndsWhenTheMetadataWasRolledBack(t *testing.T) {
	for name, spoil := range map[string]func(c *cluster) error{
		"controller epoch": func(c *cluster) error {
			return c.tree.Begin().Commit(t.Context(), meta.Op{Kind: meta.Set, Path: "/controller_epoch", Value: []byte("0"), Version: meta.AnyVersion})
		},
		"leader epoch": func(c *cluster) error {
			s := c.state("t", 1)
			s.LeaderEpoch, s.Leader = 0, meta.NoLeader
			return c.tree.Begin().Commit(t.Context(), meta.Op{Kind: meta.Set, Path: meta.StatePath("t", 1), Value: meta.AppendState(nil, s), Version: meta.AnyVersion})
		},
		"another cluster": func(c *cluster) error {
			return c.tree.Begin().Commit(t.Context(), meta.Op{Kind: meta.Set, Path: "/cluster/id", Value: []byte(`{"version":"1","id":"other"}`), Version: meta.AnyVersion})
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			c := startCluster(t, 2)
			c.create("t", oneEach(2))
			n := c.node(2)
			c.store(2).Expire() // so that its epochs are above the first
			eventually(t, "leads again", func() bool { return c.state("t", 1).Leader == n.self() && n.self().Epoch == 2 })
			c.leader("t", 1)
			c.crash(1)
			c.store(2).Cut()
			c.store(2).Expire()
			if err := spoil(c); err != nil {
				t.Fatal(err)
			}
			c.store(2).Heal()
			select {
			case err := <-n.ended:
				n.ended <- nil
				if err == nil || !final(err) {
					t.Errorf("Run = %v", err)
				}
			case <-time.After(patience):
				t.Fatal("the broker goes on")
			}
			if _, err := os.Stat(filepath.Join(n.dir, "logs", "t-1", "00000000000000000000.log")); err != nil {
				t.Errorf("its log: %v", err)
			}
		})
	}
}

// B1: a copy of the log directory, made while the broker was stopped, has its id.
func TestABrokerEndsWhenACopyOfItRegisters(t *testing.T) {
	c := startCluster(t, 2, shortSession)
	n := c.node(2)
	r, err := meta.LoadRegistration(t.Context(), c.tree.Begin(), 2)
	if err != nil {
		t.Fatal(err)
	}
	r.Epoch++
	if err := c.tree.Begin().Commit(t.Context(), meta.Op{Kind: meta.Set, Path: meta.RegistrationPath(2), Value: meta.EncodeRegistration(r), Version: r.Version}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-n.ended:
		n.ended <- nil
		if err == nil || !final(err) || !strings.Contains(err.Error(), "copy") {
			t.Errorf("Run = %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the broker goes on")
	}
}

// B10: only a tombstone is proof that a topic was deleted.
func TestATopicThatVanishesLeavesItsLogs(t *testing.T) {
	c := startCluster(t, 2, "log.segment.delete.delay.ms=0")
	c.create("deleted", oneEach(2))
	tp := c.create("gone", oneEach(2))
	n := c.node(2)
	c.leader("gone", 1)
	c.leader("deleted", 1)
	c.store(2).Cut()
	if code := c.node(1).delete("deleted"); code != 0 {
		t.Fatalf("delete: code %d", code)
	}
	ops := []meta.Op{
		{Kind: meta.Delete, Path: meta.TopicIDPath(tp.ID), Version: meta.AnyVersion},
		{Kind: meta.Delete, Path: meta.ConfigPath(meta.TopicConfig, "gone"), Version: meta.AnyVersion},
	}
	for p := range int32(2) {
		state := meta.StatePath("gone", p)
		ops = append(ops, meta.Op{Kind: meta.Delete, Path: state, Version: meta.AnyVersion},
			meta.Op{Kind: meta.Delete, Path: filepath.Dir(state), Version: meta.AnyVersion})
	}
	ops = append(ops, meta.Op{Kind: meta.Delete, Path: meta.TopicPath("gone") + "/partitions", Version: meta.AnyVersion},
		meta.Op{Kind: meta.Delete, Path: meta.TopicPath("gone"), Version: meta.AnyVersion},
		meta.Op{Kind: meta.Announce, Value: meta.Note{Topics: []string{"gone"}}.Encode()})
	if err := c.tree.Begin().Commit(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	c.store(2).Expire()
	c.store(2).Heal()
	c.await("both topics are gone", func(x *topicIndex) bool { return len(x.byName) == 0 })
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(n.dir, "logs", name+"-1", "00000000000000000000.log"))
		return err == nil
	}
	eventually(t, "the deleted topic's log is gone", func() bool { return !there("deleted") })
	if !there("gone") {
		t.Error("the log of a topic that nobody has deleted is gone")
	}
	c.create("gone", oneEach(2)) // its name is free
	c.leader("gone", 1)
}

// A11: past the lease followers vouch for their leader; when one is silent for as
// long as a lease, nothing is answered any more that another might know better.
func TestPastTheLeaseFollowersVouch(t *testing.T) {
	c := startCluster(t, 2, shortSession, "offsets.topic.num.partitions=1", "offsets.topic.replication.factor=2")
	found := c.node(1).findCoordinator("g")
	if found.ErrorCode != 0 {
		t.Fatalf("coordinator: code %d", found.ErrorCode)
	}
	n, other := c.node(found.NodeID), 3-found.NodeID
	c.create("t", [][]int32{{n.id, other}})
	c.leader("t", 0)
	eventually(t, "the group is coordinated", func() bool { return n.heartbeat("g", "nobody", 1) == kerr.UnknownMemberID.Code })
	for _, topic := range []string{"t", offsetsTopic} {
		eventually(t, topic+" is in sync", func() bool { return len(c.state(topic, 0).ISR) == 2 })
	}
	part := n.topics.Load().byName["t"].partition(0)
	c.store(n.id).Cut()
	n.lease.End()
	produce := func() int16 {
		return produced(n.dial().call(produceReq(9, 1, "t", 0, n.batch(batch.Spec{}, 1)))).ErrorCode
	}
	offsets := n.topics.Load().byName[offsetsTopic].partition(0)
	eventually(t, "the other vouches for a record", func() bool { return produce() == 0 })
	eventually(t, "the other vouches for a group", func() bool { return n.heartbeat("g", "nobody", 1) == kerr.UnknownMemberID.Code })
	c.crash(other)
	eventually(t, "nobody vouches", func() bool { return !part.Answers() && !offsets.Answers() })
	if code := produce(); code != kerr.NotLeaderForPartition.Code {
		t.Errorf("acks=1 when nobody vouches: code %d", code)
	}
	if code := n.heartbeat("g", "nobody", 1); code != kerr.NotCoordinator.Code {
		t.Errorf("heartbeat when nobody vouches: code %d", code)
	}
	c.store(n.id).Heal()
	eventually(t, "it answers again", part.Answers)
}
