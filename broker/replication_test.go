package broker

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/segment"
	"firn/segment/batch"
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
	for end := time.Now().Add(20 * time.Second); ; {
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
		res, err := r.local.Read(segment.ReadRequest{Offset: at, MaxBytes: 1 << 20, Until: segment.UntilCounted, MinOne: true})
		if err != nil {
			n.t.Fatal(err)
		}
		var part []byte
		for i := range res.Records.Parts() {
			p := res.Records.Part(i)
			b := p.Mem
			if b == nil {
				b = make([]byte, p.Len)
				if _, err := p.File.ReadAt(b, p.Off); err != nil {
					n.t.Fatal(err)
				}
			}
			part = append(part, b...)
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
	c := startCluster(t, 3, "replica.lag.time.max.ms=2000")
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
	want := c.leader("t", 0).contents("t")
	for id := int32(1); id <= 3; id++ {
		got := c.node(id).contents("t")
		if !bytes.Equal(got, want) {
			t.Errorf("broker %d has another log", id)
		}
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
	follower.followers.drop(follower.topics.Load().byName["t"].parts[0])
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
