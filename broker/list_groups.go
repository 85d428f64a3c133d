package broker

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// classicType is the one type of groups that there is.
const classicType = "classic"

// handleListGroups answers ListGroups: v0–5, with the groups coordinated here.
// While one of this broker's partitions is loading, the list isn't whole, and
// says so.
//
//	v4 a filter by state, v5 by type
func handleListGroups(b *Broker, _ context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.ListGroupsRequest)
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	if len(req.TypesFilter) > 0 && !hasFold(req.TypesFilter, classicType) {
		return resp
	}
	for _, s := range b.groups.list() {
		groups, err := s.describeAll()
		if err != nil {
			resp.ErrorCode = errorCode(err)
			continue
		}
		for _, g := range groups {
			if len(req.StatesFilter) == 0 || hasFold(req.StatesFilter, g.GroupState) {
				resp.Groups = append(resp.Groups, g)
			}
		}
	}
	slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	return resp
}

func hasFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(e string) bool { return strings.EqualFold(e, s) })
}

func (s *shard) describeAll() ([]kmsg.ListGroupsResponseGroup, error) {
	if err := s.enter(); err != nil {
		if !s.leads() {
			return nil, nil // another broker lists them
		}
		return nil, err
	}
	defer s.mu.Unlock()
	all := make([]kmsg.ListGroupsResponseGroup, 0, len(s.mu.groups))
	for name, h := range s.mu.groups {
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = name, h.ProtocolType(), h.State().String(), classicType
		all = append(all, g)
	}
	return all, nil
}
