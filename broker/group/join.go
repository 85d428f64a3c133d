package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Caller is who sends a JoinGroup.
type Caller struct {
	Ticket   Ticket
	ClientID string
	Host     string
	// Unique makes a new member's id unique.
	Unique string
}

// From this version of JoinGroup on …
const (
	requiresMemberID = 4 // a dynamic member comes twice: for its id, and with it
	supportsSkipping = 9 // a static leader that comes back needn't assign
)

// Join takes a JoinGroup request. Its answer is among these effects or, with the
// caller's ticket, later ones.
func (g *Group) Join(now time.Time, req *kmsg.JoinGroupRequest, c Caller) Effects {
	g.now = now
	if err := g.tryJoin(req, c); err != nil {
		id := req.MemberID
		if err == kerr.GroupMaxSizeReached {
			id = ""
		}
		g.refuseJoin(c.Ticket, id, err)
	}
	return g.effects()
}

func (g *Group) refuseJoin(to Ticket, id string, err *kerr.Error) {
	r := kmsg.NewPtrJoinGroupResponse()
	r.ErrorCode, r.MemberID, r.Generation = err.Code, id, -1
	g.reply(to, r)
}

func (g *Group) tryJoin(req *kmsg.JoinGroupRequest, c Caller) *kerr.Error {
	switch {
	case !g.cfg.AllowsSession(req.SessionTimeoutMillis):
		return kerr.InvalidSessionTimeout
	case g.state == Dead:
		return kerr.CoordinatorNotAvailable
	case !g.hasRoom(req.MemberID):
		g.forgetPending(req.MemberID)
		if m := g.byID[req.MemberID]; m != nil {
			g.lose(m)
		}
		return kerr.GroupMaxSizeReached
	case !g.accepts(req.ProtocolType, req.Protocols):
		return kerr.InconsistentGroupProtocol
	case req.MemberID == "":
		g.joinNew(req, c)
		return nil
	case g.isPending(req.MemberID):
		if req.InstanceID != nil {
			return kerr.InvalidRequest // it got its id as a dynamic member
		}
		g.admit(req, c, req.MemberID)
		return nil
	}
	m, err := g.identify(req.MemberID, req.InstanceID)
	if err != nil {
		return err
	}
	return g.rejoin(m, req, c)
}

// hasRoom: while a group gathers, those count who have come, so that the last to
// come back are left out where the limit was lowered; else all members do.
func (g *Group) hasRoom(id string) bool {
	m := g.byID[id]
	switch g.state {
	case PreparingRebalance:
		return m != nil && m.joining != 0 || g.joined() < g.cfg.MaxSize
	case CompletingRebalance, Stable:
		return m != nil || len(g.members) < g.cfg.MaxSize
	}
	return true
}

// joinNew takes a member without an id.
func (g *Group) joinNew(req *kmsg.JoinGroupRequest, c Caller) {
	if req.InstanceID != nil {
		id := *req.InstanceID + "-" + c.Unique
		if old := g.static[*req.InstanceID]; old != nil {
			g.replaceStatic(old, req, c, id)
			return
		}
		g.admit(req, c, id)
		return
	}
	id := c.ClientID + "-" + c.Unique
	if req.Version < requiresMemberID {
		g.admit(req, c, id)
		return
	}
	session := time.Duration(req.SessionTimeoutMillis) * time.Millisecond
	g.pending = append(g.pending, pending{id, g.by(g.now.Add(session))})
	g.refuseJoin(c.Ticket, id, kerr.MemberIDRequired)
}

// admit makes a member of who asks, and begins a rebalance.
func (g *Group) admit(req *kmsg.JoinGroupRequest, c Caller, id string) {
	m := &member{id: id, instance: req.InstanceID, clientID: c.ClientID, host: c.Host, fresh: true}
	m.update(req, c.Ticket)
	if g.state == PreparingRebalance && g.join.initial {
		g.join.more = true
	}
	if len(g.members) == 0 {
		g.protocolType = req.ProtocolType
	}
	g.add(m)
	g.alive(m, newMemberTimeout)
	g.rebalance()
}

// update takes over what a JoinGroup says.
func (m *member) update(req *kmsg.JoinGroupRequest, t Ticket) {
	m.session = time.Duration(req.SessionTimeoutMillis) * time.Millisecond
	m.rebalance = time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond
	if req.Version == 0 {
		m.rebalance = m.session
	}
	m.protocols, m.joining = req.Protocols, t
}

// updateAndRebalance takes the new request of a member that is there. One that
// still waited is answered: its connection is gone, or it wouldn't ask again.
func (g *Group) updateAndRebalance(m *member, req *kmsg.JoinGroupRequest, c Caller) {
	if m.joining != 0 {
		g.refuseJoin(m.joining, m.id, kerr.RebalanceInProgress)
	}
	m.update(req, c.Ticket)
	g.rebalance()
}

// rejoin takes a member that is there.
func (g *Group) rejoin(m *member, req *kmsg.JoinGroupRequest, c Caller) *kerr.Error {
	switch g.state {
	case PreparingRebalance:
		g.updateAndRebalance(m, req, c)
	case CompletingRebalance:
		if m.speaks(req.Protocols) { // it may not have got the answer
			g.reply(c.Ticket, g.joinedAs(m))
			return nil
		}
		g.updateAndRebalance(m, req, c)
	case Stable:
		// The leader asks for a rebalance where it sees a reason that members'
		// metadata don't show: a topic has got more partitions, say.
		if m.id != g.leader && m.speaks(req.Protocols) {
			g.reply(c.Ticket, g.joinedAs(m))
			return nil
		}
		g.updateAndRebalance(m, req, c)
	default:
		return kerr.UnknownMemberID
	}
	return nil
}

// joinedAs tells a member of the generation; the leader learns who is in it.
func (g *Group) joinedAs(m *member) *kmsg.JoinGroupResponse {
	r := kmsg.NewPtrJoinGroupResponse()
	r.Generation, r.LeaderID, r.MemberID = g.generation, g.leader, m.id
	protocolType, protocol := g.protocolType, g.protocol // later rebalances don't reach into an answer
	r.ProtocolType, r.Protocol = &protocolType, &protocol
	if m.id == g.leader {
		r.Members = g.roll()
	}
	return r
}

// roll is the list of members for the leader.
func (g *Group) roll() []kmsg.JoinGroupResponseMember {
	all := make([]kmsg.JoinGroupResponseMember, 0, len(g.members))
	for _, m := range g.members {
		r := kmsg.NewJoinGroupResponseMember()
		r.MemberID, r.InstanceID, r.ProtocolMetadata = m.id, m.instance, m.metadata(g.protocol)
		all = append(all, r)
	}
	return all
}
