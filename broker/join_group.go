package broker

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/group"
)

// handleJoinGroup answers JoinGroup: v0–9. It blocks until the group has gathered.
//
//	v1 a rebalance timeout of its own (before: the session timeout)
//	v4 MEMBER_ID_REQUIRED: a new dynamic member comes twice
//	v5 static members
//	v9 a static leader that comes back need not assign (SkipAssignment)
func handleJoinGroup(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.JoinGroupRequest)
	resp, err := b.groups.join(ctx, req, r.clientID, r.host)
	if err != nil {
		resp = req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode, resp.Generation, resp.MemberID = errorCode(err), -1, req.MemberID
	}
	return resp
}

func (c *coordinator) join(ctx context.Context, req *kmsg.JoinGroupRequest, clientID, host string) (*kmsg.JoinGroupResponse, error) {
	if req.Group == "" {
		return nil, kerr.InvalidGroupID
	}
	if !c.config.AllowsSession(req.SessionTimeoutMillis) {
		return nil, kerr.InvalidSessionTimeout // whoever asks, and wherever the group is
	}
	s, err := c.shard(ctx, req.Group)
	if err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	h := s.mu.groups[req.Group]
	if h == nil && req.MemberID != "" {
		s.mu.Unlock()
		return nil, kerr.UnknownMemberID
	}
	if h == nil {
		h = s.groupLocked(req.Group)
	}
	ticket, answer := s.parkLocked()
	who := group.Caller{Ticket: ticket, ClientID: clientID, Host: "/" + host, Unique: newUUID()}
	s.carryOutLocked(h, h.Join(c.now(), req, who))
	s.mu.Unlock()

	if resp, ok := s.await(ctx, ticket, answer).(*kmsg.JoinGroupResponse); ok {
		return resp, nil
	}
	return nil, kerr.CoordinatorNotAvailable
}

// newUUID is a random UUID (v4), in text.
func newUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
