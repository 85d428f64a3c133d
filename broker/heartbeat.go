package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleHeartbeat answers Heartbeat: v0–4.
func handleHeartbeat(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.HeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	err := b.groups.heartbeat(ctx, req)
	if errors.Is(err, kerr.CoordinatorLoadInProgress) {
		err = nil // sessions begin when the load is done
	}
	resp.ErrorCode = errorCode(err)
	return resp
}

func (c *coordinator) heartbeat(ctx context.Context, req *kmsg.HeartbeatRequest) error {
	if req.Group == "" {
		return kerr.InvalidGroupID
	}
	s, err := c.shard(ctx, req.Group)
	if err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	h := s.mu.groups[req.Group]
	if h == nil {
		return kerr.UnknownMemberID
	}
	return asError(h.Heartbeat(c.now(), req))
}
