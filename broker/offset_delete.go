package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/group"
	"firn/replication"
)

// handleOffsetDelete answers OffsetDelete: v0.
func handleOffsetDelete(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.OffsetDeleteRequest)
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	if req.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp
	}
	s, err := b.groups.shard(ctx, req.Group)
	if err == nil {
		err = s.offsetDelete(ctx, b.topics.Load(), req, resp)
	}
	if err != nil {
		resp.ErrorCode, resp.Topics = errorCode(err), nil
	}
	return resp
}

func (s *shard) offsetDelete(ctx context.Context, x *topicIndex, req *kmsg.OffsetDeleteRequest, resp *kmsg.OffsetDeleteResponse) error {
	a, err := s.startOffsetDelete(x, req, resp)
	if err != nil || a == nil {
		return err
	}
	return s.committed(ctx, *a)
}

// startOffsetDelete deletes what may be deleted; nil: nothing.
func (s *shard) startOffsetDelete(x *topicIndex, req *kmsg.OffsetDeleteRequest, resp *kmsg.OffsetDeleteResponse) (*replication.Appended, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	h := s.mu.groups[req.Group]
	if h == nil {
		return nil, kerr.GroupIDNotFound
	}
	var gone []group.Partition
	for _, in := range req.Topics {
		out := kmsg.NewOffsetDeleteResponseTopic()
		out.Topic = in.Topic
		refused := h.CheckOffsetDelete(in.Topic)
		if refused == kerr.NonEmptyGroup || refused == kerr.GroupIDNotFound {
			return nil, refused
		}
		for _, p := range in.Partitions {
			answer := kmsg.NewOffsetDeleteResponseTopicPartition()
			answer.Partition = p.Partition
			name := group.Partition{Topic: in.Topic, Num: p.Partition}
			_, ok := h.Offset(name)
			switch {
			case refused != nil:
				answer.ErrorCode = refused.Code
			case ok:
				gone = append(gone, name)
			case !x.byName[in.Topic].has(p.Partition):
				answer.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(gone) == 0 {
		return nil, nil
	}
	a, err := s.dropLocked(h, gone)
	return &a, asError(groupError(err))
}
