package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDeleteGroups answers DeleteGroups: v0–2.
func handleDeleteGroups(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.DeleteGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, name := range req.Groups {
		out := kmsg.NewDeleteGroupsResponseGroup()
		out.Group, out.ErrorCode = name, errorCode(b.groups.deleteGroup(ctx, name))
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}
