package group

import "time"

// NextDeadline is when Tick should be called, at the latest; false: never. It may
// be too early, never too late: heartbeats put deadlines off, and only Tick looks
// which is next.
func (g *Group) NextDeadline() (time.Time, bool) { return g.next, !g.next.IsZero() }

// by notes a deadline.
func (g *Group) by(at time.Time) time.Time {
	if g.next.IsZero() || at.Before(g.next) {
		g.next = at
	}
	return at
}

// alive: a member has shown itself; its session lasts for d from now on.
func (g *Group) alive(m *member, d time.Duration) { m.deadline = g.by(g.now.Add(d)) }

func (g *Group) due(at time.Time) bool { return !at.IsZero() && !at.After(g.now) }

// Tick does what is due.
func (g *Group) Tick(now time.Time) Effects {
	g.now = now
	if g.due(g.join.deadline) {
		g.joinTimeout()
	}
	if g.due(g.syncBy) {
		g.syncTimeout()
	}
	for {
		i := g.duePending()
		if i < 0 {
			break
		}
		g.forgetPending(g.pending[i].id)
		g.maybeCompleteAfterLoss()
	}
	for {
		m := g.dueMember()
		if m == nil {
			break
		}
		m.deadline = time.Time{}
		if !m.excused() {
			g.lose(m)
		}
	}
	g.findNext()
	return g.effects()
}

func (g *Group) duePending() int {
	for i := range g.pending {
		if g.due(g.pending[i].deadline) {
			return i
		}
	}
	return -1
}

func (g *Group) dueMember() *member {
	for _, m := range g.members {
		if g.due(m.deadline) {
			return m
		}
	}
	return nil
}

func (g *Group) findNext() {
	g.next = time.Time{}
	note := func(at time.Time) {
		if !at.IsZero() {
			g.by(at)
		}
	}
	note(g.join.deadline)
	note(g.syncBy)
	for i := range g.pending {
		note(g.pending[i].deadline)
	}
	for _, m := range g.members {
		note(m.deadline)
	}
}
