package broker

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxPartitionsPerAnswer bounds a DescribeTopicPartitions answer whatever the
// client asks for (Kafka: max.request.partition.size.limit).
const maxPartitionsPerAnswer = 2000

// handleDescribeTopicPartitions answers DescribeTopicPartitions v0 (KIP-966):
// Metadata in pages, by topic name and partition, with a cursor.
func handleDescribeTopicPartitions(b *Broker, _ context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	x := b.topics.Load()

	names := make([]string, 0, len(req.Topics))
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	fetchAll := len(names) == 0
	if fetchAll {
		names = slices.Collect(maps.Keys(x.byName))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	first := int32(0) // of the first topic
	if c := req.Cursor; c != nil {
		from, found := slices.BinarySearch(names, c.Topic)
		names = names[from:]
		if found {
			first = max(c.Partition, 0)
		}
	}

	m := metadataView{x: x, listener: r.listener, version: 13, unfit: b.replicas.unfit}
	left := int32(maxPartitionsPerAnswer)
	if req.ResponsePartitionLimit > 0 {
		left = min(left, req.ResponsePartitionLimit)
	}
	for _, name := range names {
		t := x.byName[name]
		if t == nil {
			out := kmsg.NewDescribeTopicPartitionsResponseTopic()
			out.Topic = new(name)
			out.ErrorCode = kerr.UnknownTopicOrPartition.Code
			if checkTopicName(name) != "" {
				out.ErrorCode = kerr.InvalidTopicException.Code
			}
			out.AuthorizedOperations = math.MinInt32
			resp.Topics = append(resp.Topics, out)
			continue
		}
		if left == 0 {
			resp.NextCursor = cursor(name, first)
			break
		}
		below := min(int32(len(t.Replicas)), first+left)
		resp.Topics = append(resp.Topics, m.describe(t, first, below))
		left -= max(below-first, 0)
		if below < int32(len(t.Replicas)) {
			resp.NextCursor = cursor(name, below)
			break
		}
		first = 0
	}
	return resp
}

func cursor(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}

// describe draws the partitions [from, below) of a topic.
func (m metadataView) describe(t *topic, from, below int32) kmsg.DescribeTopicPartitionsResponseTopic {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic = new(t.Name)
	out.TopicID = t.ID
	out.IsInternal = t.internal
	out.AuthorizedOperations = topicOperations
	for p := from; p < below; p++ {
		s := &t.states[p]
		part := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		part.Partition = p
		part.LeaderID, _ = m.leader(t, p)
		part.LeaderEpoch = s.LeaderEpoch
		part.Replicas = t.Replicas[p]
		part.ISR = ids(s.ISR)
		part.EligibleLeaderReplicas = ids(s.Eligible)
		part.LastKnownELR = []int32{}
		part.OfflineReplicas = m.offline(t, p)
		out.Partitions = append(out.Partitions, part)
	}
	return out
}
