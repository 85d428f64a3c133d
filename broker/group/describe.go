package group

import "github.com/twmb/franz-go/pkg/kmsg"

// Describe draws the group for DescribeGroups. What members said and got is
// shown only while it holds.
func (g *Group) Describe() kmsg.DescribeGroupsResponseGroup {
	d := kmsg.NewDescribeGroupsResponseGroup()
	d.Group, d.State, d.ProtocolType = g.name, g.state.String(), g.protocolType
	if g.state == Stable {
		d.Protocol = g.protocol
	}
	for _, m := range g.members {
		w := kmsg.NewDescribeGroupsResponseGroupMember()
		w.MemberID, w.InstanceID, w.ClientID, w.ClientHost = m.id, m.instance, m.clientID, m.host
		if g.state == Stable {
			w.ProtocolMetadata, w.MemberAssignment = m.metadata(g.protocol), m.assignment
		}
		d.Members = append(d.Members, w)
	}
	return d
}
