package broker

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterReplicas asks for the replicas of one partition, nil to take that back.
func (n *node) alterReplicas(topic string, p int32, replicas []int32) kmsg.AlterPartitionAssignmentsResponseTopicPartition {
	n.t.Helper()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Version, req.TimeoutMillis = 1, waitMillis
	req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{
		Topic: topic, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: p, Replicas: replicas}},
	}}
	return ask[*kmsg.AlterPartitionAssignmentsResponse](n, req).Topics[0].Partitions[0]
}

func TestReassignmentsThatAreRefused(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	for name, c := range map[string]struct {
		topic    string
		p        int32
		replicas []int32
		want     int16
	}{
		"as it is":            {"t", 0, []int32{1}, 0},
		"an unknown broker":   {"t", 0, []int32{2}, kerr.InvalidReplicaAssignment.Code},
		"one twice":           {"t", 0, []int32{1, 1}, kerr.InvalidReplicaAssignment.Code},
		"nobody":              {"t", 0, []int32{}, kerr.InvalidReplicaAssignment.Code},
		"nothing to cancel":   {"t", 0, nil, kerr.NoReassignmentInProgress.Code},
		"no such partition":   {"t", 1, []int32{1}, kerr.UnknownTopicOrPartition.Code},
		"no such topic":       {"u", 0, []int32{1}, kerr.UnknownTopicOrPartition.Code},
		"no name for a topic": {"../u", 0, []int32{1}, kerr.UnknownTopicOrPartition.Code},
	} {
		if r := n.alterReplicas(c.topic, c.p, c.replicas); r.ErrorCode != c.want {
			t.Errorf("%s: code %d %s, want %d", name, r.ErrorCode, words(r.ErrorMessage), c.want)
		}
	}
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	if r := ask[*kmsg.ListPartitionReassignmentsResponse](n, req); r.ErrorCode != 0 || len(r.Topics) != 0 {
		t.Errorf("reassignments under way: %+v", r)
	}
}

// elect asks for elections of partitions of a topic; none: of all topics.
func (n *node) elect(kind int8, topic string, partitions ...int32) map[int32]int16 {
	n.t.Helper()
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.TimeoutMillis, req.ElectionType = 2, waitMillis, kind
	if partitions != nil {
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: topic, Partitions: partitions}}
	}
	codes := map[int32]int16{}
	for _, t := range ask[*kmsg.ElectLeadersResponse](n, req).Topics {
		for _, p := range t.Partitions {
			codes[p.Partition] = p.ErrorCode
		}
	}
	return codes
}

func TestElectionsThatAreNotNeeded(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 2)
	for _, kind := range []int8{0, 1} {
		if got := n.elect(kind, "t", 0, 7); got[0] != kerr.ElectionNotNeeded.Code || got[7] != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("kind %d: %v", kind, got)
		}
		if got := n.elect(kind, ""); len(got) != 0 {
			t.Errorf("kind %d, all topics: %v", kind, got)
		}
	}
}

func TestABrokerThatRunsIsNotUnregistered(t *testing.T) {
	n := startNode(t, t.TempDir())
	req := kmsg.NewPtrUnregisterBrokerRequest()
	for id, want := range map[int32]*kerr.Error{1: kerr.InvalidRequest, 9: kerr.BrokerIDNotRegistered} {
		req.BrokerID = id
		if r := ask[*kmsg.UnregisterBrokerResponse](n, req); r.ErrorCode != want.Code {
			t.Errorf("broker %d: code %d %s", id, r.ErrorCode, words(r.ErrorMessage))
		}
	}
	describe := kmsg.NewPtrDescribeClusterRequest()
	describe.Version, describe.IncludeFencedBrokers, describe.EndpointType = 2, true, 1
	r := ask[*kmsg.DescribeClusterResponse](n, describe)
	if !slices.ContainsFunc(r.Brokers, func(b kmsg.DescribeClusterResponseBroker) bool { return b.NodeID == 1 && !b.IsFenced }) || len(r.Brokers) != 1 {
		t.Errorf("brokers %+v", r.Brokers)
	}
}
