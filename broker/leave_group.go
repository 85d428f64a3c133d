package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication"
)

// handleLeaveGroup answers LeaveGroup: v0–5.
//
//	v3 many members, each with an answer of its own (before: one, whose error is
//	   the whole answer's)
func handleLeaveGroup(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.LeaveGroupRequest)
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	members := req.Members
	if r.version < 3 {
		one := kmsg.NewLeaveGroupRequestMember()
		one.MemberID = req.MemberID
		members = []kmsg.LeaveGroupRequestMember{one}
	}
	answers, err := b.groups.leave(ctx, req.Group, members)
	switch {
	case err != nil:
		resp.ErrorCode = errorCode(err)
	case r.version < 3:
		resp.ErrorCode = answers[0].ErrorCode
	default:
		resp.Members = answers
	}
	return resp
}

// leave answers when the group that is left behind is written: a member that was
// told good-bye doesn't come back with another coordinator.
func (c *coordinator) leave(ctx context.Context, groupID string, members []kmsg.LeaveGroupRequestMember) ([]kmsg.LeaveGroupResponseMember, error) {
	if groupID == "" {
		return nil, kerr.InvalidGroupID
	}
	s, err := c.shard(ctx, groupID)
	if err != nil {
		return nil, err
	}
	answers, written, err := s.leave(groupID, members)
	if err != nil {
		return nil, err
	}
	if written != nil {
		if err := s.committed(ctx, *written); err != nil && !errors.Is(err, kerr.CoordinatorNotAvailable) {
			return nil, err
		}
	}
	return answers, nil
}

func (s *shard) leave(groupID string, members []kmsg.LeaveGroupRequestMember) ([]kmsg.LeaveGroupResponseMember, *replication.Appended, error) {
	if err := s.enter(); err != nil {
		return nil, nil, err
	}
	defer s.mu.Unlock()
	h := s.mu.groups[groupID]
	if h == nil {
		answers := make([]kmsg.LeaveGroupResponseMember, len(members))
		for i := range members {
			answers[i].Default()
			answers[i].MemberID, answers[i].InstanceID = members[i].MemberID, members[i].InstanceID
			answers[i].ErrorCode = kerr.UnknownMemberID.Code
		}
		return answers, nil, nil
	}
	answers, e := h.Leave(s.c.now(), members)
	s.carryOutLocked(h, e)
	return answers, s.lastLocked(h), nil
}

// lastLocked is the last write of a group that is unsettled, nil for none.
func (s *shard) lastLocked(h *hosted) *replication.Appended {
	for i := len(s.mu.unsettled) - 1; i >= 0; i-- {
		if u := &s.mu.unsettled[i]; u.of == h {
			a := u.appended
			return &a
		}
	}
	return nil
}
