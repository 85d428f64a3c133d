package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication"
)

// handleDeleteRecords answers DeleteRecords: v0–2. It moves the log start, of
// both tiers at once (D11), durably before the answer; -1 means all that is
// committed.
func handleDeleteRecords(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond)
	defer cancel()
	x := b.topics.Load()
	for i := range req.Topics {
		in := &req.Topics[i]
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = in.Topic
		for _, p := range in.Partitions {
			answer := kmsg.NewDeleteRecordsResponseTopicPartition()
			answer.Partition = p.Partition
			low, err := b.deleteRecords(ctx, x, in.Topic, p.Partition, p.Offset)
			answer.LowWatermark = low
			answer.ErrorCode = errorCode(err)
			if err != nil {
				b.log.Warn("delete records", "topic", in.Topic, "partition", p.Partition, "offset", p.Offset, "err", err)
			}
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// deleteRecords moves a partition's log start up to offset and returns where it is then.
func (b *Broker) deleteRecords(ctx context.Context, x *topicIndex, name string, p int32, offset int64) (int64, error) {
	part, err := x.hosted(name, p)
	if err != nil {
		return -1, err
	}
	leader := replication.View{Epoch: replication.AnyEpoch}
	at, err := part.Offsets(leader)
	if err != nil {
		return -1, err
	}
	t := x.byName[name]
	switch {
	case t.internal:
		return -1, kerr.InvalidTopicException
	case !t.settings.CleanupDelete:
		return -1, kerr.PolicyViolation // only the policy "delete" lets records go
	}
	if offset == -1 {
		offset = at.HighWatermark
	}
	if offset < 0 || offset > at.HighWatermark {
		return -1, kerr.OffsetOutOfRange
	}
	if offset > at.LogStart {
		if err := part.SetLogStart(ctx, offset, leader); err != nil {
			return -1, err
		}
	}
	at, err = part.Offsets(leader)
	return at.LogStart, err
}
