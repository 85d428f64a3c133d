package broker

import (
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication/meta"
)

// metadata asks for topics by name, nil for the null list.
func (n *node) metadata(version int16, names []string, change func(*kmsg.MetadataRequest)) *kmsg.MetadataResponse {
	n.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = version
	if names != nil {
		req.Topics = []kmsg.MetadataRequestTopic{}
	}
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	if change != nil {
		change(req)
	}
	return ask[*kmsg.MetadataResponse](n, req)
}

func TestMetadataAllAndNone(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("b", 1)
	n.create("a", 1)
	for name, c := range map[string]struct {
		version int16
		names   []string
		want    int
	}{
		"v0, empty: all":  {0, []string{}, 2},
		"v1, empty: none": {1, []string{}, 0},
		"v1, null: all":   {1, nil, 2},
		"v13, null: all":  {13, nil, 2},
		"v13, twice":      {13, []string{"a", "a"}, 1},
	} {
		resp := n.metadata(c.version, c.names, nil)
		if len(resp.Topics) != c.want {
			t.Errorf("%s: %d topics, want %d", name, len(resp.Topics), c.want)
		}
		if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 1 || resp.ControllerID != 1 || words(resp.ClusterID) != n.clusterID {
			t.Errorf("%s: %+v", name, resp)
		}
	}
	if resp := n.metadata(13, nil, nil); *resp.Topics[0].Topic != "a" {
		t.Errorf("the first topic is %s", *resp.Topics[0].Topic)
	}
}

func TestMetadataByTopicID(t *testing.T) {
	n := startNode(t, t.TempDir())
	id := n.create("t", 1).TopicID
	byID := func(id meta.TopicID) kmsg.MetadataResponseTopic {
		return n.metadata(12, []string{}, func(r *kmsg.MetadataRequest) {
			topic := kmsg.NewMetadataRequestTopic()
			topic.TopicID = id
			r.Topics = append(r.Topics, topic)
		}).Topics[0]
	}
	if got := byID(id); got.ErrorCode != 0 || words(got.Topic) != "t" || got.TopicID != id {
		t.Errorf("by id: %+v", got)
	}
	if got := byID(meta.TopicID{1}); got.ErrorCode != kerr.UnknownTopicID.Code || got.TopicID != (meta.TopicID{1}) {
		t.Errorf("by an unknown id: %+v", got)
	}
}

func TestTopicsAreCreatedOnDemandIfAllowed(t *testing.T) {
	n := startNode(t, t.TempDir(), "num.partitions=3", "offsets.topic.num.partitions=5")
	auto := func(allow bool) func(*kmsg.MetadataRequest) {
		return func(r *kmsg.MetadataRequest) { r.AllowAutoTopicCreation = allow }
	}
	for name, c := range map[string]struct {
		topic      string
		version    int16
		allow      bool
		want       int16
		partitions int
	}{
		"not allowed":            {"no", 4, false, kerr.UnknownTopicOrPartition.Code, 0},
		"allowed":                {"yes", 4, true, 0, 3},
		"v3 knows no such field": {"old", 3, false, 0, 3},
		"bad name":               {"a/b", 4, true, kerr.InvalidTopicException.Code, 0},
		"internal":               {offsetsTopic, 4, true, 0, 5},
		"internal, not yet":      {transactionTopic, 4, true, kerr.UnknownTopicOrPartition.Code, 0},
	} {
		got := n.metadata(c.version, []string{c.topic}, auto(c.allow)).Topics[0]
		if c.partitions > 0 { // the first answer only says that it is on its way
			if got.ErrorCode != kerr.LeaderNotAvailable.Code || len(got.Partitions) != 0 {
				t.Errorf("%s, at first: %+v", name, got)
			}
			eventually(t, c.topic, func() bool {
				got = n.metadata(c.version, []string{c.topic}, auto(c.allow)).Topics[0]
				return got.ErrorCode == 0
			})
		}
		if got.ErrorCode != c.want || len(got.Partitions) != c.partitions {
			t.Errorf("%s: code %d, %d partitions", name, got.ErrorCode, len(got.Partitions))
		}
	}
	if c := n.config(offsetsTopic, "cleanup.policy"); words(c.Value) != "compact" {
		t.Errorf("%s has cleanup.policy=%s", offsetsTopic, words(c.Value))
	}
	if r := n.alter("", "auto.create.topics.enable", "false"); r.ErrorCode == 0 {
		t.Error("auto.create.topics.enable is dynamic, which it isn't in Kafka")
	}
}

func TestATopicThatCannotBeCreatedOnDemandSaysWhy(t *testing.T) {
	n := startNode(t, t.TempDir(), "default.replication.factor=3")
	got := n.metadata(4, []string{"t"}, func(r *kmsg.MetadataRequest) { r.AllowAutoTopicCreation = true }).Topics[0]
	if got.ErrorCode != kerr.InvalidReplicationFactor.Code {
		t.Errorf("code %d", got.ErrorCode)
	}
}

func TestMetadataTellsAuthorizedOperationsOnlyIfAsked(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	resp := n.metadata(8, []string{"t"}, nil)
	if resp.AuthorizedOperations != math.MinInt32 || resp.Topics[0].AuthorizedOperations != math.MinInt32 {
		t.Errorf("unasked: %d, %d", resp.AuthorizedOperations, resp.Topics[0].AuthorizedOperations)
	}
	resp = n.metadata(8, []string{"t"}, func(r *kmsg.MetadataRequest) {
		r.IncludeClusterAuthorizedOperations, r.IncludeTopicAuthorizedOperations = true, true
	})
	if resp.AuthorizedOperations != 0b1_1111_1010_0000 || resp.Topics[0].AuthorizedOperations != 0b1101_1111_1000 {
		t.Errorf("asked: %b, %b", resp.AuthorizedOperations, resp.Topics[0].AuthorizedOperations)
	}
}

// view is a picture of brokers 1 and 2, of which only 1 has the listener OUT,
// and a topic of two replicas led by 2.
func view(version int16) metadataView {
	x := &topicIndex{brokers: []meta.Broker{
		{ID: 1, Endpoints: []meta.Endpoint{{Listener: "OUT", Host: "a", Port: 1}, {Listener: "IN", Host: "a", Port: 2}}},
		{ID: 2, Endpoints: []meta.Endpoint{{Listener: "IN", Host: "b", Port: 2}}},
	}}
	return metadataView{x: x, listener: "OUT", version: version}
}

func TestALeaderWithoutTheClientsListener(t *testing.T) {
	tp := &topic{
		Topic:  meta.Topic{Name: "t", Replicas: [][]int32{{2, 1, 3}}},
		states: []meta.PartitionState{{Leader: meta.Member{ID: 2, Epoch: 1}, LeaderEpoch: 7, ISR: []meta.Member{{ID: 2, Epoch: 1}, {ID: 1, Epoch: 1}}}},
	}
	for version, want := range map[int16]*kerr.Error{5: kerr.LeaderNotAvailable, 6: kerr.ListenerNotFound, 13: kerr.ListenerNotFound} {
		got := view(version).partition(tp, 0)
		if got.ErrorCode != want.Code || got.Leader != -1 || got.LeaderEpoch != 7 {
			t.Errorf("v%d: %+v", version, got)
		}
		if len(got.Replicas) != 3 || len(got.OfflineReplicas) != 2 {
			t.Errorf("v%d: replicas %v, offline %v", version, got.Replicas, got.OfflineReplicas)
		}
	}
	tp.states[0].Leader = meta.Member{ID: 3, Epoch: 1}
	if got := view(13).partition(tp, 0); got.ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Errorf("an unregistered leader: %+v", got)
	}
	tp.states[0].Leader = meta.Member{ID: 1, Epoch: 1}
	if got := view(0).partition(tp, 0); got.ErrorCode != kerr.ReplicaNotAvailable.Code || len(got.Replicas) != 1 || got.Leader != 1 {
		t.Errorf("v0, replicas away: %+v", got)
	}
	if got := view(1).partition(tp, 0); got.ErrorCode != 0 || len(got.Replicas) != 3 {
		t.Errorf("v1, replicas away: %+v", got)
	}
}
