package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleSyncGroup answers SyncGroup: v0–5. It blocks until the leader's
// assignment is written.
func handleSyncGroup(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.SyncGroupRequest)
	resp, err := b.groups.sync(ctx, req)
	if err != nil {
		resp = req.ResponseKind().(*kmsg.SyncGroupResponse)
		resp.ErrorCode = errorCode(err)
	}
	return resp
}

func (c *coordinator) sync(ctx context.Context, req *kmsg.SyncGroupRequest) (*kmsg.SyncGroupResponse, error) {
	if req.Group == "" {
		return nil, kerr.InvalidGroupID
	}
	if (req.ProtocolType == nil || req.Protocol == nil) && req.Version >= 5 {
		return nil, kerr.InconsistentGroupProtocol
	}
	s, err := c.shard(ctx, req.Group)
	if errors.Is(err, kerr.CoordinatorLoadInProgress) {
		err = kerr.RebalanceInProgress // it says "join again", which every client does
	}
	if err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	h := s.mu.groups[req.Group]
	if h == nil {
		s.mu.Unlock()
		return nil, kerr.UnknownMemberID
	}
	ticket, answer := s.parkLocked()
	s.carryOutLocked(h, h.Sync(c.now(), req, ticket))
	s.mu.Unlock()

	if resp, ok := s.await(ctx, ticket, answer).(*kmsg.SyncGroupResponse); ok {
		return resp, nil
	}
	return nil, kerr.CoordinatorNotAvailable
}
