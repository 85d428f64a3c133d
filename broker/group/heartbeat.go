package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Heartbeat takes a Heartbeat request.
func (g *Group) Heartbeat(now time.Time, req *kmsg.HeartbeatRequest) *kerr.Error {
	g.now = now
	if g.state == Dead {
		return kerr.CoordinatorNotAvailable
	}
	m, err := g.identify(req.MemberID, req.InstanceID)
	switch {
	case err != nil:
		return err
	case req.Generation != g.generation:
		return kerr.IllegalGeneration
	case g.state == Empty:
		return kerr.UnknownMemberID
	}
	g.alive(m, m.session)
	if g.state == PreparingRebalance {
		return kerr.RebalanceInProgress
	}
	return nil
}

// Leave takes out members: one that says good-bye, or those that an operator
// names by member id or by group.instance.id.
func (g *Group) Leave(now time.Time, members []kmsg.LeaveGroupRequestMember) ([]kmsg.LeaveGroupResponseMember, Effects) {
	g.now = now
	answers := make([]kmsg.LeaveGroupResponseMember, 0, len(members))
	left := false
	for i := range members {
		a := kmsg.NewLeaveGroupResponseMember()
		a.MemberID, a.InstanceID = members[i].MemberID, members[i].InstanceID
		if err := g.leave(&members[i]); err != nil {
			a.ErrorCode = err.Code
		} else {
			left = true
		}
		answers = append(answers, a)
	}
	if left {
		switch g.state {
		case Stable, CompletingRebalance:
			g.prepareRebalance()
		case PreparingRebalance:
			g.maybeCompleteJoin()
		}
	}
	return answers, g.effects()
}

func (g *Group) leave(who *kmsg.LeaveGroupRequestMember) *kerr.Error {
	switch {
	case g.state == Dead:
		return kerr.CoordinatorNotAvailable
	case who.MemberID == "":
		if who.InstanceID == nil || g.static[*who.InstanceID] == nil {
			return kerr.UnknownMemberID
		}
		g.drop(g.static[*who.InstanceID])
		return nil
	case g.isPending(who.MemberID):
		g.forgetPending(who.MemberID)
		return nil
	}
	m, err := g.identify(who.MemberID, who.InstanceID)
	if err != nil {
		return err
	}
	g.drop(m)
	return nil
}
