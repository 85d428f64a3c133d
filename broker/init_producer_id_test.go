package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/segment/batch"
)

func (n *node) initProducer(change func(*kmsg.InitProducerIDRequest)) *kmsg.InitProducerIDResponse {
	n.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version = 5
	if change != nil {
		change(req)
	}
	return ask[*kmsg.InitProducerIDResponse](n, req)
}

func TestProducerIDsAreNewEveryTimeAlsoAfterARestart(t *testing.T) {
	n := startNode(t, t.TempDir())
	seen := map[int64]bool{}
	for range 3 {
		for range 5 {
			r := n.initProducer(nil)
			if r.ErrorCode != 0 || r.ProducerID < 0 || r.ProducerEpoch != 0 || seen[r.ProducerID] {
				t.Fatalf("%+v, seen: %v", r, seen[r.ProducerID])
			}
			seen[r.ProducerID] = true
		}
		n.restart()
	}
}

func TestInitProducerIDRefusals(t *testing.T) {
	n := startNode(t, t.TempDir())
	for name, c := range map[string]struct {
		change func(*kmsg.InitProducerIDRequest)
		want   *kerr.Error
	}{
		"transactional": {func(r *kmsg.InitProducerIDRequest) { r.TransactionalID = new("x") }, kerr.TransactionalIDAuthorizationFailed},
		"empty id":      {func(r *kmsg.InitProducerIDRequest) { r.TransactionalID = new("") }, kerr.InvalidRequest},
		"id, no epoch":  {func(r *kmsg.InitProducerIDRequest) { r.ProducerID = 5 }, kerr.InvalidRequest},
	} {
		if r := n.initProducer(c.change); r.ErrorCode != c.want.Code || r.ProducerID != -1 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestDescribeProducers(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	id := n.initProducer(nil).ProducerID
	b := n.batch(batch.Spec{Producer: &batch.Producer{ID: id, Epoch: 0, Sequence: 0}}, 10, 20)
	if _, err := n.tryAppend("t", 0, b); err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrDescribeProducersRequest()
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic, topic.Partitions = "t", []int32{0, 1}
	req.Topics = append(req.Topics, topic)
	got := ask[*kmsg.DescribeProducersResponse](n, req).Topics[0].Partitions
	if got[1].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("no such partition: %+v", got[1])
	}
	if len(got[0].ActiveProducers) != 1 {
		t.Fatalf("%+v", got[0])
	}
	p := got[0].ActiveProducers[0]
	if p.ProducerID != id || p.ProducerEpoch != 0 || p.LastSequence != 1 || p.CurrentTxnStartOffset != -1 {
		t.Errorf("%+v", p)
	}
}
