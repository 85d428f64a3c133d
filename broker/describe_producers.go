package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication"
)

// handleDescribeProducers answers DescribeProducers v0: what a partition
// remembers of its idempotent producers.
func handleDescribeProducers(b *Broker, _ context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	x := b.topics.Load()
	for i := range req.Topics {
		in := &req.Topics[i]
		out := kmsg.NewDescribeProducersResponseTopic()
		out.Topic = in.Topic
		for _, p := range in.Partitions {
			answer := kmsg.NewDescribeProducersResponseTopicPartition()
			answer.Partition = p
			producers, err := b.activeProducers(x, in.Topic, p)
			if err != nil {
				answer.ErrorCode, answer.ErrorMessage = errorCode(err), errorMessage(err)
			}
			answer.ActiveProducers = producers
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (b *Broker) activeProducers(x *topicIndex, name string, p int32) ([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, error) {
	if words := checkTopicName(name); words != "" {
		return nil, refuse(kerr.InvalidTopicException, "%s", words)
	}
	part, err := x.hosted(name, p)
	if err != nil {
		return nil, err
	}
	if _, err := part.Offsets(replication.View{Epoch: replication.AnyEpoch}); err != nil {
		return nil, err // not the leader
	}
	r := b.replicas.get(x.byName[name].ID, p)
	if r == nil {
		return nil, kerr.NotLeaderForPartition
	}
	states := r.local.Producers()
	out := make([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, 0, len(states))
	for _, s := range states {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch = s.ID, int32(s.Epoch)
		a.LastSequence, a.LastTimestamp = s.LastSequence, s.LastTimestamp
		a.CoordinatorEpoch, a.CurrentTxnStartOffset = s.CoordinatorEpoch, s.TxnStart
		out = append(out, a)
	}
	return out, nil
}
