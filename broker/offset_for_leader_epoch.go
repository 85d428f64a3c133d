package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication"
	"firn/segment"
)

// handleOffsetForLeaderEpoch answers OffsetForLeaderEpoch: v2–4. A consumer asks
// where an epoch ended to learn whether what it has read was truncated (KIP-320);
// the answer comes from the whole epoch chain, archive included.
func handleOffsetForLeaderEpoch(b *Broker, _ context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	x := b.topics.Load()
	for i := range req.Topics {
		in := &req.Topics[i]
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(in.Partitions))
		for j := range in.Partitions {
			ask, answer := &in.Partitions[j], &out.Partitions[j]
			*answer = kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			answer.Partition, answer.LeaderEpoch, answer.EndOffset = ask.Partition, -1, -1
			if r.version >= 3 && req.ReplicaID >= 0 { // nobody follows a single broker
				answer.ErrorCode = kerr.ClusterAuthorizationFailed.Code
				continue
			}
			end, err := epochEnd(x, in.Topic, ask)
			answer.ErrorCode = errorCode(err)
			if err == nil {
				answer.LeaderEpoch, answer.EndOffset = end.Epoch, end.End
			}
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func epochEnd(x *topicIndex, topic string, ask *kmsg.OffsetForLeaderEpochRequestTopicPartition) (segment.EpochEnd, error) {
	part, err := x.hosted(topic, ask.Partition)
	if err != nil {
		return segment.EpochEnd{}, err
	}
	log, err := part.Lookup(replication.View{Epoch: ask.CurrentLeaderEpoch})
	if err != nil {
		return segment.EpochEnd{}, err
	}
	return log.EpochEnd(ask.LeaderEpoch), nil
}
