package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Sync takes a SyncGroup request. Its answer is among these effects or, with its
// ticket, later ones.
func (g *Group) Sync(now time.Time, req *kmsg.SyncGroupRequest, t Ticket) Effects {
	g.now = now
	if err := g.trySync(req, t); err != nil {
		g.refuseSync(t, err)
	}
	return g.effects()
}

func (g *Group) refuseSync(to Ticket, err *kerr.Error) {
	r := kmsg.NewPtrSyncGroupResponse()
	r.ErrorCode = err.Code
	g.reply(to, r)
}

func (g *Group) trySync(req *kmsg.SyncGroupRequest, t Ticket) *kerr.Error {
	if g.state == Dead {
		return kerr.CoordinatorNotAvailable
	}
	m, err := g.identify(req.MemberID, req.InstanceID)
	switch {
	case err != nil:
		return err
	case req.Generation != g.generation:
		return kerr.IllegalGeneration
	case req.ProtocolType != nil && *req.ProtocolType != g.protocolType,
		req.Protocol != nil && *req.Protocol != g.protocol:
		return kerr.InconsistentGroupProtocol
	}
	switch g.state {
	case PreparingRebalance:
		return kerr.RebalanceInProgress
	case CompletingRebalance:
		if m.syncing != 0 { // it asks again: its connection was lost
			g.refuseSync(m.syncing, kerr.RebalanceInProgress)
		}
		m.syncing = t
		g.synced(m)
		if m.id == g.leader {
			g.assign(req.GroupAssignment)
		}
	case Stable:
		g.synced(m)
		g.reply(t, g.assigned(m))
	default:
		return kerr.UnknownMemberID
	}
	return nil
}

// synced: a member has sent its SyncGroup.
func (g *Group) synced(m *member) {
	m.owesSync = false
	for _, o := range g.members {
		if o.owesSync {
			return
		}
	}
	g.syncBy = time.Time{}
}

// assign has the leader's assignment written. It is handed out after that.
func (g *Group) assign(from []kmsg.SyncGroupRequestGroupAssignment) {
	all := make(map[string][]byte, len(g.members))
	for _, m := range g.members {
		all[m.id] = []byte{} // whom the leader left out gets nothing
	}
	for i := range from {
		if _, ok := all[from[i].MemberID]; ok {
			all[from[i].MemberID] = from[i].MemberAssignment
		}
	}
	generation := g.generation
	g.write(all, func(err *kerr.Error) {
		if g.state != CompletingRebalance || g.generation != generation {
			return // a rebalance has begun meanwhile
		}
		if err != nil {
			g.refuseSyncs(err)
			g.prepareRebalance()
			return
		}
		g.enter(Stable)
		for _, m := range g.members {
			m.assignment = all[m.id]
			if m.syncing != 0 {
				g.reply(m.syncing, g.assigned(m))
				m.syncing = 0
				g.alive(m, m.session)
			}
		}
	})
}

func (g *Group) assigned(m *member) *kmsg.SyncGroupResponse {
	r := kmsg.NewPtrSyncGroupResponse()
	protocolType, protocol := g.protocolType, g.protocol
	r.ProtocolType, r.Protocol, r.MemberAssignment = &protocolType, &protocol, m.assignment
	return r
}

// refuseSyncs answers all who wait for their assignment.
func (g *Group) refuseSyncs(err *kerr.Error) {
	for _, m := range g.members {
		m.assignment = nil
		if m.syncing != 0 {
			g.refuseSync(m.syncing, err)
			m.syncing = 0
			g.alive(m, m.session)
		}
	}
}

func (g *Group) endSyncWait() {
	g.syncBy = time.Time{}
	for _, m := range g.members {
		m.owesSync = false
	}
}

// syncTimeout: who has not synced by now is out.
func (g *Group) syncTimeout() {
	g.syncBy = time.Time{}
	if g.state != CompletingRebalance && g.state != Stable {
		return
	}
	lost := false
	for i := 0; i < len(g.members); {
		if m := g.members[i]; m.owesSync {
			g.drop(m)
			lost = true
			continue
		}
		i++
	}
	if lost {
		g.prepareRebalance()
	}
}

// assignments is what each member has.
func (g *Group) assignments() map[string][]byte {
	all := make(map[string][]byte, len(g.members))
	for _, m := range g.members {
		all[m.id] = m.assignment
	}
	return all
}
