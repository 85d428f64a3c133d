package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/peer"
	"firn/replication"
	"firn/segment"
)

// handleOffsetForLeaderEpoch answers OffsetForLeaderEpoch: v2–4. A consumer asks
// where an epoch ended to learn whether what it has read was truncated (KIP-320),
// a replica to learn where to cut its log (R5); the answer comes from the whole
// epoch chain, archive included. The controller, before it elects the furthest
// log, asks each for its last epoch and end, led or not (R6).
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
			var end segment.EpochEnd
			var err error
			switch who := req.ReplicaID; {
			case r.version >= 3 && who >= 0 && !b.fromReplica(x, r.listener, who, in.Topic, ask.Partition):
				err = kerr.ClusterAuthorizationFailed
			case r.version >= 3 && who == peer.AnyReplica && ask.LeaderEpoch == peer.AnyEpochEnd && r.listener == b.interBroker:
				end, err = furthest(x, in.Topic, ask.Partition)
			default:
				end, err = epochEnd(x, in.Topic, ask, r.version >= 3 && who >= 0)
			}
			answer.ErrorCode = errorCode(err)
			if err == nil {
				answer.LeaderEpoch, answer.EndOffset = end.Epoch, end.End
			}
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func epochEnd(x *topicIndex, topic string, ask *kmsg.OffsetForLeaderEpochRequestTopicPartition, replica bool) (segment.EpochEnd, error) {
	part, err := x.hosted(topic, ask.Partition)
	if err != nil {
		return segment.EpochEnd{}, err
	}
	log, err := part.Lookup(replication.View{Epoch: ask.CurrentLeaderEpoch, Replica: replica})
	if err != nil {
		return segment.EpochEnd{}, err
	}
	return log.EpochEnd(ask.LeaderEpoch), nil
}

// furthest is the last epoch and the end of the log here, whoever leads.
func furthest(x *topicIndex, topic string, p int32) (segment.EpochEnd, error) {
	part, err := x.hosted(topic, p)
	if err != nil {
		return segment.EpochEnd{}, err
	}
	return part.Furthest()
}

// fromReplica: a request that names a replica came in between brokers, and the
// partition is assigned to that replica.
func (b *Broker) fromReplica(x *topicIndex, listener string, replica int32, topic string, p int32) bool {
	t := x.byName[topic]
	return listener == b.interBroker && x.broker(replica) != nil && (!t.has(p) || slices.Contains(t.Replicas[p], replica))
}
