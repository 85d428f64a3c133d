package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// replaceStatic puts a new process in the place of a static member, which is
// fenced from now on. In a stable group whose protocol stays, it takes over the
// assignment as well, and nobody else notices.
func (g *Group) replaceStatic(old *member, req *kmsg.JoinGroupRequest, c Caller, id string) {
	was, leader := *old, g.leader
	g.fence(old)
	g.rename(old, id)
	old.update(req, c.Ticket)
	old.clientID, old.host = c.ClientID, c.Host
	g.alive(old, old.session)
	switch g.state {
	case Stable:
		if g.elect() != g.protocol {
			g.rebalance()
			return
		}
		g.write(g.assignments(), func(err *kerr.Error) { g.replaced(old, was, leader, req, c, err) })
	case CompletingRebalance:
		// The leader may have been told of the old id, and assign to that.
		g.prepareRebalance()
	default:
		g.maybeCompleteJoin()
	}
}

// fence answers what a static member's former process waits for.
func (g *Group) fence(m *member) {
	if m.joining != 0 {
		g.refuseJoin(m.joining, m.id, kerr.FencedInstanceID)
		m.joining = 0
	}
	if m.syncing != 0 {
		g.refuseSync(m.syncing, kerr.FencedInstanceID)
		m.syncing = 0
	}
}

func (g *Group) rename(m *member, id string) {
	delete(g.byID, m.id)
	if g.leader == m.id {
		g.leader = id
	}
	m.id = id
	g.byID[id] = m
}

// replaced ends a replacement in a stable group, once it is written; a failure
// brings the former member back.
func (g *Group) replaced(m *member, was member, leader string, req *kmsg.JoinGroupRequest, c Caller, err *kerr.Error) {
	if m.joining != c.Ticket || g.byID[m.id] != m {
		return // another replacement, or a rebalance, has come in between
	}
	if g.state != Stable {
		return // the rebalance will answer
	}
	m.joining = 0
	if err != nil {
		g.refuseJoin(c.Ticket, "", err)
		g.rename(m, was.id)
		m.protocols, m.session, m.rebalance, m.clientID, m.host = was.protocols, was.session, was.rebalance, was.clientID, was.host
		g.alive(m, m.session)
		return
	}
	r := g.joinedAs(m)
	if req.Version >= supportsSkipping {
		r.SkipAssignment = m.id == g.leader
	} else {
		// An older client that finds itself leader would assign, and the others
		// would not listen: it is told of the leader that was.
		r.LeaderID, r.Members = leader, nil
	}
	g.reply(c.Ticket, r)
}
