package broker

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeCluster(t *testing.T) {
	n := startNode(t, t.TempDir(), "broker.rack=r1")
	for version := int16(0); version <= 2; version++ {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.EndpointType = version, 1
		resp := ask[*kmsg.DescribeClusterResponse](n, req)
		if resp.ErrorCode != 0 || resp.ClusterID != n.clusterID || resp.ControllerID != 1 || len(resp.Brokers) != 1 || words(resp.Brokers[0].Rack) != "r1" {
			t.Errorf("v%d: %+v", version, resp)
		}
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	req.Version, req.EndpointType = 1, 2
	if resp := ask[*kmsg.DescribeClusterResponse](n, req); resp.ErrorCode != kerr.MismatchedEndpointType.Code {
		t.Errorf("controllers: %+v", resp)
	}
}

func TestDescribeLogDirs(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 2)
	n.create("u", 1)
	n.append("t", 1, 1, 2, 3)
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Version = 5
	resp := ask[*kmsg.DescribeLogDirsResponse](n, req)
	if len(resp.Dirs) != 1 || resp.ErrorCode != 0 {
		t.Fatalf("%+v", resp)
	}
	dir := resp.Dirs[0]
	if dir.Dir != filepath.Join(n.dir, "logs") || dir.TotalBytes <= 0 || dir.UsableBytes <= 0 || len(dir.Topics) != 2 {
		t.Fatalf("%+v", dir)
	}
	if p := dir.Topics[0].Partitions; len(p) != 2 || p[0].Size != 0 || p[1].Size == 0 || p[1].OffsetLag != 0 {
		t.Errorf("%+v", p)
	}
	req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "t", Partitions: []int32{1, 5}}, {Topic: "none", Partitions: []int32{0}}}
	dir = ask[*kmsg.DescribeLogDirsResponse](n, req).Dirs[0]
	if len(dir.Topics) != 1 || len(dir.Topics[0].Partitions) != 1 || dir.Topics[0].Partitions[0].Partition != 1 {
		t.Errorf("some: %+v", dir.Topics)
	}
}

func TestOffsetForLeaderEpochAcrossRestarts(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	first := n.describe("t").Partitions[0].LeaderEpoch
	n.append("t", 0, 1, 2, 3)
	n.restart()
	second := n.describe("t").Partitions[0].LeaderEpoch
	n.append("t", 0, 4, 5)
	for _, c := range []struct {
		ask, current int32
		epoch        int32
		end          int64
		code         int16
	}{
		{first, -1, first, 3, 0},
		{second, second, second, 5, 0},
		{second + 1, -1, -1, -1, 0},
		{first, first, -1, -1, kerr.FencedLeaderEpoch.Code},
		{first, second + 1, -1, -1, kerr.UnknownLeaderEpoch.Code},
	} {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version, req.ReplicaID = 4, -1
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.LeaderEpoch, p.CurrentLeaderEpoch = c.ask, c.current
		req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}}}
		got := ask[*kmsg.OffsetForLeaderEpochResponse](n, req).Topics[0].Partitions[0]
		if got.LeaderEpoch != c.epoch || got.EndOffset != c.end || got.ErrorCode != c.code {
			t.Errorf("epoch %d as of %d: %+v, want epoch %d, end %d, code %d", c.ask, c.current, got, c.epoch, c.end, c.code)
		}
	}
}

func TestDeleteTopicsByNameAndID(t *testing.T) {
	n := startNode(t, t.TempDir())
	a, b := n.create("a", 1), n.create("b", 1)
	topic := func(name string, id [16]byte) kmsg.DeleteTopicsRequestTopic {
		out := kmsg.NewDeleteTopicsRequestTopic()
		if name != "" {
			out.Topic = &name
		}
		out.TopicID = id
		return out
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = 6, waitMillis
	req.Topics = []kmsg.DeleteTopicsRequestTopic{
		topic("", a.TopicID), topic("b", b.TopicID), topic("", [16]byte{}), topic("none", [16]byte{}), topic("", [16]byte{9}), topic("b", [16]byte{}),
	}
	resp := ask[*kmsg.DeleteTopicsResponse](n, req)
	for i, want := range []int16{0, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code, kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, 0} {
		if got := resp.Topics[i]; got.ErrorCode != want {
			t.Errorf("topic %d: code %d %s, want %d", i, got.ErrorCode, words(got.ErrorMessage), want)
		}
	}
	if words(resp.Topics[0].Topic) != "a" || len(n.topics.Load().byName) != 0 {
		t.Errorf("%+v, left: %v", resp.Topics[0], n.topics.Load().byName)
	}
}

// offsetsTopic is the topic of the groups' offsets, which is made if need be; one
// request waits for it only so long.
func (n *node) offsetsTopic() (found *topic) {
	n.t.Helper()
	eventually(n.t, "the offsets' topic is there", func() (there bool) {
		var err error
		found, err = n.ensureOffsetsTopic(n.t.Context())
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			n.t.Fatal(err)
		}
		return err == nil
	})
	return found
}

func TestTheOffsetsTopicIsInternalAndKeepsEverything(t *testing.T) {
	n := startNode(t, t.TempDir(), "offsets.topic.num.partitions=3", "offsets.topic.replication.factor=3", "log.retention.ms=1", "log.retention.bytes=1")
	got := n.offsetsTopic()
	if len(got.Replicas) != 3 || len(got.Replicas[0]) != 1 || !got.internal {
		t.Errorf("%+v", got.Topic)
	}
	if again := n.offsetsTopic(); again.ID != got.ID {
		t.Errorf("again: %+v", again)
	}
	d := n.describe(offsetsTopic)
	if !d.IsInternal || d.ErrorCode != 0 {
		t.Errorf("described: %+v", d)
	}
	if c := n.config(offsetsTopic, "cleanup.policy"); words(c.Value) != "compact" {
		t.Errorf("cleanup.policy is %s", words(c.Value))
	}
	o := n.replicas.get(got.ID, 0).local.Options()
	if o.RetentionMs != -1 || o.RetentionBytes != -1 {
		t.Errorf("its logs have %+v", o)
	}
	if r := n.alter(offsetsTopic, "segment.bytes", "2048"); r.ErrorCode != 0 {
		t.Errorf("another of its configs: code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
}
