package group

import (
	"bytes"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Loader makes groups of the records of a partition, taken in order.
type Loader struct {
	cfg    *Config
	groups map[string]*Group
}

// NewLoader makes a Loader of no groups.
func NewLoader(cfg *Config) *Loader { return &Loader{cfg: cfg, groups: map[string]*Group{}} }

// Take takes one entry. What a deletion names may never have been heard of.
func (l *Loader) Take(e Entry) {
	g := l.groups[e.Group]
	if g == nil {
		if e.Offset == nil && e.Metadata == nil {
			return
		}
		g = New(e.Group, l.cfg, time.Time{})
		l.groups[e.Group] = g
	}
	switch {
	case e.Commit && e.Offset == nil:
		g.DeleteOffset(e.Partition)
	case e.Commit:
		g.SetOffset(e.Partition, *e.Offset)
	default:
		g = g.reload(e.Metadata)
		l.groups[e.Group] = g
	}
	if g.Vacant() {
		delete(l.groups, e.Group)
	}
}

// Groups are the groups as of now, when the sessions of their members begin.
func (l *Loader) Groups(now time.Time) map[string]*Group {
	for _, g := range l.groups {
		g.now = now
		if g.since.IsZero() && g.protocolType == "" {
			g.since = now
		}
		for _, m := range g.members {
			g.alive(m, m.session)
		}
	}
	return l.groups
}

// reload is the group as its metadata says, with the offsets that it had; nil
// metadata leave the offsets alone.
func (g *Group) reload(v *kmsg.GroupMetadataValue) *Group {
	n := New(g.name, g.cfg, time.Time{})
	n.offsets = g.offsets
	if v == nil {
		return n
	}
	n.known = true
	n.protocolType, n.generation = v.ProtocolType, v.Generation
	if v.Protocol != nil {
		n.protocol = *v.Protocol
	}
	if v.CurrentStateTimestamp >= 0 {
		n.since = time.UnixMilli(v.CurrentStateTimestamp)
	}
	for i := range v.Members {
		n.restore(&v.Members[i])
	}
	if len(n.members) == 0 {
		n.protocol = ""
		return n
	}
	if v.Leader != nil && n.byID[*v.Leader] != nil {
		n.leader = *v.Leader
	}
	n.state, n.before = Stable, Stable
	n.topics = n.subscribed()
	return n
}

// restore adds a member as it was written. One that is named twice is taken once.
func (g *Group) restore(v *kmsg.GroupMetadataValueMember) {
	if g.byID[v.MemberID] != nil || v.InstanceID != nil && g.static[*v.InstanceID] != nil {
		return
	}
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = g.protocol, bytes.Clone(v.Subscription)
	m := &member{
		id: v.MemberID, instance: v.InstanceID, clientID: v.ClientID, host: v.ClientHost,
		session:    time.Duration(v.SessionTimeoutMillis) * time.Millisecond,
		rebalance:  time.Duration(v.RebalanceTimeoutMillis) * time.Millisecond,
		protocols:  []kmsg.JoinGroupRequestProtocol{p},
		assignment: bytes.Clone(v.Assignment),
	}
	if m.rebalance <= 0 {
		m.rebalance = m.session
	}
	g.add(m)
}
