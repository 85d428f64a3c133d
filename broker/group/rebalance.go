package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rebalance begins a rebalance, or, where one has begun, ends its first half if
// that was the last member to come.
func (g *Group) rebalance() {
	if g.state == PreparingRebalance {
		g.maybeCompleteJoin()
		return
	}
	g.prepareRebalance()
}

// prepareRebalance has all members come again.
func (g *Group) prepareRebalance() {
	if g.state == CompletingRebalance {
		g.refuseSyncs(kerr.RebalanceInProgress)
	}
	g.endSyncWait()
	if g.state == Empty {
		// More may be starting right now: one rebalance for all is cheaper.
		d := g.cfg.InitialDelay
		g.join.initial, g.join.more = true, false
		g.join.delay, g.join.remaining = d, max(g.rebalanceTimeout()-d, 0)
		g.join.deadline = g.by(g.now.Add(d))
		g.enter(PreparingRebalance)
		return
	}
	g.enter(PreparingRebalance)
	g.join.initial = false
	if g.allJoined() {
		g.completeJoin()
		return
	}
	g.join.deadline = g.by(g.now.Add(g.rebalanceTimeout()))
}

// maybeCompleteJoin ends the gathering of members if all are there; that of an
// empty group lasts until its time is up.
func (g *Group) maybeCompleteJoin() {
	if g.state == PreparingRebalance && !g.join.initial && g.allJoined() {
		g.completeJoin()
	}
}

// maybeCompleteAfterLoss is maybeCompleteJoin where a member that was waited for
// is gone: in an empty group's first rebalance as well.
func (g *Group) maybeCompleteAfterLoss() {
	if g.state == PreparingRebalance && g.allJoined() {
		g.completeJoin()
	}
}

// joinTimeout: the time for members to come is up.
func (g *Group) joinTimeout() {
	if j := &g.join; j.initial && j.more && j.remaining > 0 {
		delay := min(g.cfg.InitialDelay, j.remaining)
		j.more = false
		j.remaining = max(j.remaining-j.delay, 0)
		j.delay = delay
		j.deadline = g.by(g.now.Add(delay))
		return
	}
	g.completeJoin()
}

// completeJoin begins the next generation with the members that have come.
// Dynamic ones that have not are out; static ones stay until their session ends.
func (g *Group) completeJoin() {
	g.join.deadline = time.Time{}
	for i := 0; i < len(g.members); {
		if m := g.members[i]; m.joining == 0 && !m.isStatic() {
			g.remove(m)
			continue
		}
		i++
	}
	if len(g.members) > 0 && !g.electLeader() {
		// Static members alone, none of which has come: wait for them, or for
		// the end of their sessions.
		g.join.deadline = g.by(g.now.Add(g.rebalanceTimeout()))
		g.join.initial = false
		return
	}
	g.generation++
	g.join.initial = false
	g.endSyncWait()
	if len(g.members) == 0 {
		g.protocol, g.leader, g.topics = "", "", nil
		g.enter(Empty)
		g.write(nil, nil)
		return
	}
	g.protocol = g.elect()
	g.topics = g.subscribed()
	g.enter(CompletingRebalance)
	for _, m := range g.members {
		m.assignment = nil
		if m.joining != 0 {
			g.reply(m.joining, g.joinedAs(m))
			m.joining = 0
		}
		m.fresh = false
		m.owesSync = true
		g.alive(m, m.session)
	}
	g.syncBy = g.by(g.now.Add(g.rebalanceTimeout()))
}

// electLeader keeps the leader if it has come, or takes the first who has.
func (g *Group) electLeader() bool {
	if l := g.byID[g.leader]; l != nil && l.joining != 0 {
		return true
	}
	for _, m := range g.members {
		if m.joining != 0 {
			g.leader = m.id
			return true
		}
	}
	return false
}

// subscribed is the topics that the members want, nil if they don't say so in
// the way of consumers.
func (g *Group) subscribed() map[string]bool {
	if g.protocolType != consumerProtocol {
		return nil
	}
	topics := map[string]bool{}
	for _, m := range g.members {
		var meta kmsg.ConsumerMemberMetadata
		if err := meta.ReadFrom(m.metadata(g.protocol)); err != nil {
			return nil
		}
		for _, t := range meta.Topics {
			topics[t] = true
		}
	}
	return topics
}

// consumerProtocol is the protocol type of consumers.
const consumerProtocol = "consumer"

// lose takes out a member whose session has ended.
func (g *Group) lose(m *member) {
	g.drop(m)
	g.afterLoss()
}

// drop answers what a member waits for, and takes it out. If it is alive after
// all, it joins anew.
func (g *Group) drop(m *member) {
	if m.joining != 0 {
		g.refuseJoin(m.joining, "", kerr.UnknownMemberID)
		m.joining = 0
	}
	if m.syncing != 0 {
		g.refuseSync(m.syncing, kerr.UnknownMemberID)
		m.syncing = 0
	}
	g.remove(m)
}

func (g *Group) afterLoss() {
	switch g.state {
	case Stable, CompletingRebalance:
		g.prepareRebalance()
	case PreparingRebalance:
		g.maybeCompleteAfterLoss()
	}
}

// Abandon ends the group here: another broker is its coordinator, or it is
// deleted. Whoever waits is told err.
func (g *Group) Abandon(err *kerr.Error) Effects {
	for _, m := range g.members {
		if m.joining != 0 {
			g.refuseJoin(m.joining, m.id, err)
		}
		if m.syncing != 0 {
			g.refuseSync(m.syncing, err)
		}
		m.joining, m.syncing = 0, 0
	}
	g.state = Dead
	return g.effects()
}
