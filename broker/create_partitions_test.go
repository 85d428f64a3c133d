package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (n *node) grow(topic string, count int32, assignment ...[]int32) kmsg.CreatePartitionsResponseTopic {
	n.t.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version, req.TimeoutMillis = 3, waitMillis
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, count
	for _, a := range assignment {
		t.Assignment = append(t.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: a})
	}
	req.Topics = append(req.Topics, t)
	return ask[*kmsg.CreatePartitionsResponse](n, req).Topics[0]
}

func TestAddedPartitionsAreServedWhenTheAnswerComes(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 2)
	n.append("t", 1, 1)
	if r := n.grow("t", 5); r.ErrorCode != 0 {
		t.Fatalf("code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	n.append("t", 4, 1)
	if got := n.list("t", 1, -1).Offset; got != 1 {
		t.Errorf("partition 1 ends at %d", got)
	}
	if r := n.grow("t", 6, []int32{1}); r.ErrorCode != 0 {
		t.Errorf("with an assignment: code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	for name, c := range map[string]struct {
		topic      string
		count      int32
		assignment [][]int32
		want       *kerr.Error
	}{
		"as many":             {"t", 6, nil, kerr.InvalidPartitions},
		"fewer":               {"t", 3, nil, kerr.InvalidPartitions},
		"too many":            {"t", maxPartitions + 1, nil, kerr.InvalidPartitions},
		"no such topic":       {"u", 3, nil, kerr.UnknownTopicOrPartition},
		"too few assignments": {"t", 8, [][]int32{{1}}, kerr.InvalidReplicaAssignment},
		"an unknown broker":   {"t", 7, [][]int32{{2}}, kerr.InvalidReplicaAssignment},
		"another factor":      {"t", 7, [][]int32{{1, 1}}, kerr.InvalidReplicaAssignment},
	} {
		if r := n.grow(c.topic, c.count, c.assignment...); r.ErrorCode != c.want.Code {
			t.Errorf("%s: code %d %s, want %v", name, r.ErrorCode, words(r.ErrorMessage), c.want)
		}
	}
}
