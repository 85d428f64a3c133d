package broker

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/group"
)

// handleDescribeGroups answers DescribeGroups: v0–6.
//
//	v6 GROUP_ID_NOT_FOUND for an unknown group (before: state Dead, no error)
func handleDescribeGroups(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, name := range req.Groups {
		d, err := b.groups.describe(ctx, name)
		if errors.Is(err, kerr.GroupIDNotFound) {
			d.State = group.Dead.String()
			if r.version < 6 {
				err = nil
			} else {
				d.ErrorMessage = new(fmt.Sprintf("group %s not found", name))
			}
		}
		d.Group, d.ErrorCode = name, errorCode(err)
		if req.IncludeAuthorizedOperations {
			d.AuthorizedOperations = groupOperations
		} else {
			d.AuthorizedOperations = math.MinInt32
		}
		resp.Groups = append(resp.Groups, d)
	}
	return resp
}

// groupOperations are the operations that there are on groups, as bits: without
// ACLs everybody may do them all (Read, Delete, Describe).
const groupOperations = 1<<3 | 1<<6 | 1<<8

func (c *coordinator) describe(ctx context.Context, name string) (kmsg.DescribeGroupsResponseGroup, error) {
	none := kmsg.NewDescribeGroupsResponseGroup()
	s, err := c.shard(ctx, name)
	if err != nil {
		return none, err
	}
	if err := s.enter(); err != nil {
		return none, err
	}
	defer s.mu.Unlock()
	h := s.mu.groups[name]
	if h == nil {
		return none, kerr.GroupIDNotFound
	}
	return h.Describe(), nil
}
