package broker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/peer"
	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/objstore"
)

// textBatch is a batch of one record.
func textBatch(t testing.TB, value string) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.Spec{})
	b.Add(time.Now().UnixMilli(), nil, []byte(value))
	out, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// produceAll sends a record with acks=all to whoever leads, until it is acknowledged.
func (c *cluster) produceAll(topic, value string) int64 {
	c.t.Helper()
	for end := time.Now().Add(patience); ; {
		n := c.leader(topic, 0)
		cl := n.dial()
		got := produced(cl.call(produceReq(12, acksAll, topic, 0, textBatch(c.t, value))))
		cl.c.Close()
		if got.ErrorCode == 0 {
			return got.BaseOffset
		}
		if err := kerr.TypedErrorForCode(got.ErrorCode); err == nil || !err.Retriable || time.Now().After(end) {
			c.t.Fatalf("produce: code %d", got.ErrorCode)
		}
	}
}

// contents are all bytes of a replica's log.
func (n *node) contents(topic string) []byte {
	n.t.Helper()
	x := n.topics.Load()
	r := n.replicas.get(x.byName[topic].ID, 0)
	var out []byte
	o := r.local.Offsets()
	for at := o.LocalStart; at < o.End; {
		res, err := r.local.Read(segment.ReadRequest{Offset: at, MaxBytes: 1 << 20, Until: segment.UntilCounted, MinOne: true, Whole: true})
		if err != nil {
			n.t.Fatal(err)
		}
		part, err := res.Records.AppendTo(nil)
		if err != nil {
			n.t.Fatal(err)
		}
		res.Records.Release()
		for rest := part; len(rest) > 0; {
			bt, more, err := batch.Next(rest)
			if err != nil {
				n.t.Fatal(err)
			}
			rest, at = more, bt.NextOffset()
		}
		out = append(out, part...)
	}
	return out
}

// sameOn waits until a replica of a topic has all that its leader has, and no more.
func (c *cluster) sameOn(topic string, n *node) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("broker %d has the same of %s as its leader", n.id, topic), func() bool {
		return bytes.Equal(n.contents(topic), c.leader(topic, 0).contents(topic))
	})
}

// inSyncWith waits until the ISR of a topic's partition 0 is these brokers.
func (c *cluster) inSyncWith(topic string, ids ...int32) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("ISR of %s is %v", topic, ids), func() bool {
		s := c.state(topic, 0)
		if len(s.ISR) != len(ids) {
			return false
		}
		for _, id := range ids {
			found := false
			for _, m := range s.ISR {
				found = found || m.ID == id && m == c.node(id).self()
			}
			if !found {
				return false
			}
		}
		return true
	})
}

// standStill has the broker follow nothing new, and p no more, until goOn.
func (n *node) standStill(p *replication.Partition) (goOn func()) {
	fs := n.followers
	var ctx context.Context
	eventually(n.t, "the broker follows", func() bool { // which it begins beside its start
		fs.mu.Lock()
		defer fs.mu.Unlock()
		ctx = fs.mu.ctx
		return ctx != nil
	})
	fs.mu.Lock()
	fs.mu.ctx = nil
	if s := fs.mu.of[p]; s != nil {
		s.change(func(f *replication.Fetcher) { f.Unfollow(p) })
		delete(fs.mu.of, p)
	}
	fs.mu.Unlock()
	return func() {
		fs.mu.Lock()
		fs.mu.ctx = ctx
		fs.mu.Unlock()
		fs.assign(p)
	}
}

func TestFollowersFollow(t *testing.T) {
	c := startCluster(t, 3)
	c.create("t", [][]int32{{1, 2, 3}}, "min.insync.replicas=2")
	c.inSyncWith("t", 1, 2, 3)
	for i := range 20 {
		if got := c.produceAll("t", fmt.Sprintf("record %d", i)); got != int64(i) {
			t.Fatalf("record %d at offset %d", i, got)
		}
	}
	want := c.node(1).contents("t")
	for id := int32(2); id <= 3; id++ {
		if got := c.node(id).contents("t"); !bytes.Equal(got, want) {
			t.Errorf("broker %d has %d bytes, the leader %d", id, len(got), len(want))
		}
	}
	for id := int32(1); id <= 3; id++ {
		eventually(t, "the high watermark arrives", func() bool {
			r := c.node(id).replicas.get(c.node(id).topics.Load().byName["t"].ID, 0)
			return r.local.Offsets().HighWatermark == 20
		})
	}
}

func TestNothingAcknowledgedIsLostWithTheLeader(t *testing.T) {
	c := startCluster(t, 3)
	c.create("t", [][]int32{{1, 2, 3}}, "min.insync.replicas=2")
	c.inSyncWith("t", 1, 2, 3)
	var acked []string
	write := func(n int) {
		for range n {
			v := fmt.Sprintf("record %d;", len(acked))
			c.produceAll("t", v)
			acked = append(acked, v)
		}
	}
	for round := range 3 {
		write(20)
		l := c.leader("t", 0)
		c.crash(l.id)
		write(20)
		l.start()
		c.inSyncWith("t", 1, 2, 3)
		if round == 0 && c.leader("t", 0) == l {
			t.Fatal("the leader did not change")
		}
	}
	write(5)
	for id := int32(1); id <= 3; id++ {
		c.sameOn("t", c.node(id))
		got := c.node(id).contents("t")
		for _, v := range acked {
			if !bytes.Contains(got, []byte(v)) {
				t.Errorf("broker %d has lost %q", id, v)
			}
		}
	}
}

// A follower that stands still leaves the ISR, and joins again when it goes on.
func TestALaggingFollowerLeavesAndComesBack(t *testing.T) {
	c := startCluster(t, 3, "replica.lag.time.max.ms=500")
	c.create("t", [][]int32{{1, 2, 3}}, "min.insync.replicas=2")
	c.inSyncWith("t", 1, 2, 3)
	c.crash(3)
	c.inSyncWith("t", 1, 2)
	c.produceAll("t", "without 3")
	c.node(3).start()
	c.inSyncWith("t", 1, 2, 3)
}

// A22: a plain client can't move the high watermark.
func TestAPlainClientDoesntPassForAReplica(t *testing.T) {
	c := startCluster(t, 2)
	c.create("t", [][]int32{{1, 2}}, "min.insync.replicas=1")
	c.inSyncWith("t", 1, 2)
	c.produceAll("t", "seen by all")
	leader, follower := c.node(1), c.node(2)
	epoch := follower.self().Epoch
	x := leader.topics.Load()
	part := x.byName["t"].parts[0]
	_, leaderEpoch, _ := part.Leader()
	// The follower stands still.
	follower.standStill(follower.topics.Load().byName["t"].parts[0])
	cl := leader.dial()
	one := produceReq(12, acksOne, "t", 0, textBatch(t, "not seen by the follower"))
	if got := produced(cl.call(one)); got.ErrorCode != 0 {
		t.Fatalf("produce: code %d", got.ErrorCode)
	}
	hw := func() int64 {
		r := leader.replicas.get(x.byName["t"].ID, 0)
		return r.local.Offsets().HighWatermark
	}
	before := hw()
	for _, try := range []struct {
		name     string
		listener int
		version  int16
		replica  int32
		epoch    int64
		code     *kerr.Error
	}{
		{"the clients' listener, all else right", 0, 17, 2, epoch, kerr.ClusterAuthorizationFailed},
		{"too old a version", 1, 14, 2, -1, kerr.ClusterAuthorizationFailed},
		{"no broker epoch", 1, 17, 2, -1, kerr.ClusterAuthorizationFailed},
		{"an old broker epoch", 1, 17, 2, epoch - 1, kerr.ClusterAuthorizationFailed},
		{"a newer broker epoch", 1, 17, 2, epoch + 1, kerr.UnknownLeaderEpoch},
		{"a broker that isn't assigned", 1, 17, 7, 1, kerr.ClusterAuthorizationFailed},
	} {
		for _, session := range []int32{-1, 0} {
			req := fetchReq(try.version, "t", 2, 0)
			req.Topics[0].TopicID = x.byName["t"].ID
			req.Topics[0].Partitions[0].CurrentLeaderEpoch = leaderEpoch
			req.SessionEpoch = session
			if try.version >= 15 {
				req.ReplicaState.ID, req.ReplicaState.Epoch = try.replica, try.epoch
			} else {
				req.ReplicaID = try.replica
			}
			cl := (&testBroker{t: t, b: leader.Broker, addr: leader.server.listeners[try.listener].Addr().String()}).dial()
			resp := cl.call(req).(*kmsg.FetchResponse)
			if got := resp.Topics[0].Partitions[0].ErrorCode; got != try.code.Code {
				t.Errorf("%s: code %d, want %d", try.name, got, try.code.Code)
			}
			if resp.SessionID != 0 {
				t.Errorf("%s: it got a session", try.name)
			}
			if hw() != before {
				t.Fatalf("%s: the high watermark has moved", try.name)
			}
		}
	}
}

// KIP-392: a consumer with a rack is sent to a replica there, which answers it up
// to its own high watermark.
func TestConsumersReadFromTheirOwnRack(t *testing.T) {
	c := startCluster(t, 3, "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector", "replica.fetch.wait.max.ms=50")
	for _, n := range c.nodes {
		n.set["broker.rack"] = fmt.Sprintf("rack%d", n.id)
		n.restart()
	}
	c.await("all brokers are known with their racks", func(x *topicIndex) bool {
		return len(x.brokers) == 3 && !slices.ContainsFunc(x.brokers, func(b meta.Broker) bool { return b.Rack == "" })
	})
	c.create("t", [][]int32{{1, 2, 3}})
	c.inSyncWith("t", 1, 2, 3)
	for i := range 5 {
		c.produceAll("t", fmt.Sprint(i))
	}
	l := c.leader("t", 0)
	x := l.topics.Load()
	fetch := func(n *node, version int16, rack string, offset int64) kmsg.FetchResponseTopicPartition {
		req := fetchReq(version, "t", offset, 0)
		req.Topics[0].TopicID, req.Rack, req.MaxWaitMillis = x.byName["t"].ID, rack, waitMillis
		cl := n.dial()
		defer cl.c.Close()
		return fetched(cl.call(req))
	}
	for id := int32(1); id <= 3; id++ {
		rack := fmt.Sprintf("rack%d", id)
		got := fetch(l, 13, rack, 0)
		want := id
		if id == l.id {
			want = -1
		}
		if got.PreferredReadReplica != want || got.ErrorCode != 0 || (want >= 0) != (len(got.RecordBatches) == 0) {
			t.Errorf("%s: preferred %d, code %d, %d bytes", rack, got.PreferredReadReplica, got.ErrorCode, len(got.RecordBatches))
		}
	}
	if got := fetch(l, 13, "elsewhere", 0); got.PreferredReadReplica != -1 || len(got.RecordBatches) == 0 {
		t.Errorf("a rack without a replica: preferred %d, %d bytes", got.PreferredReadReplica, len(got.RecordBatches))
	}
	f := c.node(l.id%3 + 1)
	eventually(t, "the follower knows the high watermark", func() bool { return fetch(f, 13, "", 0).HighWatermark == 5 })
	if got := fetch(f, 13, "", 0); got.ErrorCode != 0 || !bytes.Equal(got.RecordBatches, l.contents("t")) {
		t.Errorf("from the follower: code %d, %d bytes", got.ErrorCode, len(got.RecordBatches))
	}
	// One that waits there is woken by what arrives.
	woken := make(chan kmsg.FetchResponseTopicPartition, 1)
	go func() { woken <- fetch(f, 13, "", 5) }()
	c.produceAll("t", "more")
	if got := <-woken; got.ErrorCode != 0 || len(got.RecordBatches) == 0 {
		t.Errorf("woken with code %d and %d bytes", got.ErrorCode, len(got.RecordBatches))
	}
	if got := fetch(f, 13, "", 100); got.ErrorCode != kerr.OffsetNotAvailable.Code { // T7
		t.Errorf("past the follower's end: code %d", got.ErrorCode)
	}
	if got := fetch(f, 10, "", 0); got.ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Errorf("a client from before KIP-392: code %d", got.ErrorCode)
	}
}

// A broker whose disk was lost, and a new replica, start at the archived end, and
// lead as well as any other.
func TestAWipedReplicaStartsAtTheArchivedEnd(t *testing.T) {
	c := startClusterWith(t, 3, objstore.NewMem())
	c.create("t", [][]int32{{1, 2, 3}}, "min.insync.replicas=2", "segment.bytes=1024", "local.retention.bytes=2048", "file.delete.delay.ms=0")
	c.inSyncWith("t", 1, 2, 3)
	var acked []string
	write := func(n int) {
		for range n {
			v := fmt.Sprintf("record %d;", len(acked))
			c.produceAll("t", v)
			acked = append(acked, v)
		}
	}
	write(100)
	l := c.leader("t", 0)
	replicaOf := func(n *node) *replica { return n.replicas.get(n.topics.Load().byName["t"].ID, 0) }
	eventually(t, "old segments have left the leader's disk", func() bool {
		l.retain(t.Context())
		return replicaOf(l).part.State().Leader == l.self() && replicaOf(l).local.Offsets().LocalStart > 40
	})
	f := c.node(l.id%3 + 1)
	// T4: a follower lets go only of what the pointer lets it.
	eventually(t, "and the follower's", func() bool {
		if err := replicaOf(f).tiered.Evict(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		return replicaOf(f).local.Offsets().LocalStart > 40
	})
	c.crash(f.id)
	if err := os.RemoveAll(filepath.Join(f.dir, "logs")); err != nil {
		t.Fatal(err)
	}
	f.start()
	c.inSyncWith("t", 1, 2, 3)
	if o := replicaOf(f).tiered.Offsets(); o.LocalStart <= 40 || o.LogStart != 0 {
		t.Errorf("the wiped replica: %+v", o)
	}
	write(10)
	// The next leader is the one that was wiped, once the others are gone from the ISR's front.
	for c.leader("t", 0) != f {
		l := c.leader("t", 0)
		c.crash(l.id)
		write(3)
		l.start()
		c.inSyncWith("t", 1, 2, 3)
	}
	write(5)
	var all []byte
	cl := f.dial()
	for at := int64(0); at < int64(len(acked)); {
		req := fetchReq(13, "t", at, 0)
		req.Topics[0].TopicID, req.MaxWaitMillis = f.topics.Load().byName["t"].ID, 5000
		got := fetched(cl.call(req))
		if got.ErrorCode != 0 {
			t.Fatalf("at %d: code %d", at, got.ErrorCode)
		}
		for rest := got.RecordBatches; len(rest) > 0; {
			bt, more, err := batch.Next(rest)
			if err != nil {
				break
			}
			if bt.LastOffset() >= at {
				all = append(all, bt...)
				at = bt.NextOffset()
			}
			rest = more
		}
	}
	for _, v := range acked {
		if n := bytes.Count(all, []byte(v)); n != 1 {
			t.Fatalf("%q is there %d times", v, n)
		}
	}
}

// A follower that catches up gets every batch once, though what a fetch takes is no
// multiple of them.
func TestNothingIsReplicatedTwice(t *testing.T) {
	c := startCluster(t, 2, "replica.lag.time.max.ms=500")
	c.create("t", [][]int32{{1, 2}})
	c.inSyncWith("t", 1, 2)
	f := c.node(2)
	goOn := f.standStill(f.topics.Load().byName["t"].parts[0])
	value := strings.Repeat("0123456789", 70_000)
	cl := c.node(1).dial()
	for range 10 {
		if got := produced(cl.call(produceReq(12, acksOne, "t", 0, textBatch(t, value)))); got.ErrorCode != 0 {
			t.Fatalf("produce: code %d", got.ErrorCode)
		}
	}
	before := f.followers.bytesIn.Load()
	goOn()
	want := int64(len(c.node(1).contents("t")))
	eventually(t, "all of it has come", func() bool { return int64(len(f.contents("t"))) == want })
	came := func() int64 { return f.followers.bytesIn.Load() - before }
	eventually(t, "all of it is counted", func() bool { return came() >= want }) // once it is in the log
	if got := came(); got != want {
		t.Errorf("%d bytes have come for a log of %d", got, want)
	}
}

// A follower that was away while its leader archived and let go of what it lacks is
// told so, and goes on at the archived end.
func TestAFollowerThatWasAwayGoesOnAtTheArchivedEnd(t *testing.T) {
	c := startClusterWith(t, 2, objstore.NewMem(), "replica.lag.time.max.ms=500")
	c.create("t", [][]int32{{1, 2}}, "segment.bytes=1024", "local.retention.bytes=1024", "file.delete.delay.ms=0")
	c.inSyncWith("t", 1, 2)
	c.produceAll("t", "the first")
	l, f := c.node(1), c.node(2)
	replicaOf := func(n *node) *replica { return n.replicas.get(n.topics.Load().byName["t"].ID, 0) }
	part := replicaOf(f).part
	goOn := f.standStill(part)
	cl := l.dial()
	if got := produced(cl.call(produceReq(12, acksOne, "t", 0, textBatch(t, "what it lacks first")))); got.ErrorCode != 0 {
		t.Fatalf("produce: code %d", got.ErrorCode)
	}
	c.inSyncWith("t", 1)
	for i := range 100 {
		c.produceAll("t", fmt.Sprintf("record %d", i))
	}
	eventually(t, "what it lacks has left the leader's disk", func() bool {
		l.retain(t.Context())
		return replicaOf(l).local.Offsets().LocalStart > 10
	})
	goOn()
	c.inSyncWith("t", 1, 2)
	o := replicaOf(f).tiered.Offsets()
	if o.LocalStart <= 10 || o.LogStart != 0 {
		t.Errorf("the follower's log: %+v", o)
	}
	if got, want := replicaOf(f).local.Epochs(), replicaOf(l).local.Epochs(); len(got) != len(want) {
		t.Errorf("epochs %v, the leader's %v", got, want)
	}
}

// Producers' sequences and the groups' offsets go where the partition goes.
func TestProducersAndGroupsSurviveTheMoveOfTheLeader(t *testing.T) {
	c := startCluster(t, 3, "group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1", "offsets.topic.replication.factor=3",
		"min.insync.replicas=2")
	c.create("t", [][]int32{{1, 2, 3}})
	c.inSyncWith("t", 1, 2, 3)
	sequenced := func(seq int32) []byte {
		b := batch.NewBuilder(batch.Spec{Producer: &batch.Producer{ID: 77, Sequence: seq}})
		b.Add(time.Now().UnixMilli(), nil, []byte("once"))
		out, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	send := func(seq int32) (offset int64) {
		for {
			cl := c.leader("t", 0).dial()
			got := produced(cl.call(produceReq(12, acksAll, "t", 0, sequenced(seq))))
			cl.c.Close()
			if got.ErrorCode == 0 {
				return got.BaseOffset
			}
			if err := kerr.TypedErrorForCode(got.ErrorCode); !err.Retriable {
				t.Fatalf("sequence %d: %v", seq, err)
			}
		}
	}
	for seq := range int32(3) {
		send(seq)
	}
	coordinator := func() *node {
		var found *node
		eventually(t, "the group has a coordinator", func() bool {
			for _, n := range c.nodes {
				if n.running {
					if f := n.findCoordinator("g"); f.ErrorCode == 0 && c.node(f.NodeID).running {
						found = c.node(f.NodeID)
						return true
					}
				}
			}
			return false
		})
		return found
	}
	g := coordinator()
	eventually(t, "a commit is taken", func() bool {
		g = coordinator()
		return g.commitOffset(9, "g", "", -1, "t", 2) == 0
	})
	c.inSyncWith("__consumer_offsets", 1, 2, 3)
	for _, down := range []*node{c.leader("t", 0), nil, g} {
		if down == nil {
			continue
		}
		if !down.running {
			continue
		}
		c.crash(down.id)
		if got := send(2); got != 2 { // a repetition
			t.Fatalf("a repetition is at %d", got)
		}
		var got kmsg.OffsetFetchResponseGroup
		eventually(t, "the group's offsets are loaded", func() bool {
			got = coordinator().askOffset("g", "t")
			return got.ErrorCode == 0
		})
		if at := got.Topics[0].Partitions[0].Offset; at != 2 {
			t.Errorf("broker %d is down: the commit of 2 is %d", down.id, at)
		}
		down.start()
		c.inSyncWith("t", 1, 2, 3)
		c.inSyncWith("__consumer_offsets", 1, 2, 3)
	}
	if got := send(3); got != 3 {
		t.Fatalf("the next one is at %d", got)
	}
}

// The controller's question for the furthest log is answered between brokers alone,
// led or not.
func TestFurthestLogIsToldBetweenBrokers(t *testing.T) {
	c := startCluster(t, 2)
	c.create("t", [][]int32{{1, 2}})
	c.inSyncWith("t", 1, 2)
	c.produceAll("t", "x")
	for _, n := range c.nodes {
		cl := peer.New(peer.Config{Self: c.node(1).self, Address: func() (string, error) { return c.node(1).peerAddress(n.id) }, Timeout: patience})
		got, err := cl.FurthestLogs(t.Context(), []replication.FetchKey{{Topic: "t"}}, nil)
		cl.Close()
		if err != nil || len(got) != 1 || got[0].Err != nil || got[0].End.End != 1 {
			t.Errorf("broker %d: %+v, %v", n.id, got, err)
		}
		public := n.server.listeners[0].Addr().String()
		cl = peer.New(peer.Config{Self: c.node(1).self, Address: func() (string, error) { return public, nil }, Timeout: patience})
		got, err = cl.FurthestLogs(t.Context(), []replication.FetchKey{{Topic: "t"}}, nil)
		cl.Close()
		if err != nil || got[0].Err == nil && got[0].End.End >= 0 {
			t.Errorf("broker %d tells its clients: %+v, %v", n.id, got, err)
		}
	}
}
