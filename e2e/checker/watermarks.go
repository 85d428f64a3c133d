package checker

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// seenOffset is an offset that somebody was told, or asked for.
type seenOffset struct {
	from, to, offset int64
	who              string
}

// watermarks are the offsets that clients were told, and what they depend on.
type watermarks struct {
	acks                       []seenOffset // of writes that must last
	latest, earliest, archived []seenOffset
	ranges                     []seenOffset
	trims                      []seenOffset
	commits, committed         []seenOffset
	pasts                      []seenOffset // the offset is the time
}

func (w *watermarks) ack(x *write) {
	w.acks = append(w.acks, seenOffset{x.from, x.to, x.offset, ""})
}

func (w *watermarks) note(o *op) {
	list := map[string]*[]seenOffset{
		"latest": &w.latest, "earliest": &w.earliest, "archived": &w.archived,
		"range": &w.ranges, "trim": &w.trims, "commit": &w.commits, "committed": &w.committed, "past": &w.pasts,
	}[o.verb]
	if list != nil {
		*list = append(*list, seenOffset{o.from, o.to, o.n, o.who})
	}
}

// since is what an answer to a question of time t must at least know of.
func (w *watermarks) since(t int64) int64 {
	least := t
	for _, p := range w.pasts {
		if p.from <= t && t <= p.to {
			least = min(least, t-p.offset)
		}
	}
	return least
}

// checkOffsets holds what clients were told against one another.
func (c *check) checkOffsets() {
	c.rises(c.latest, LatestBack, "the end")
	c.rises(c.earliest, StartBack, "the start")
	c.rises(c.archived, ArchiveBack, "the archived end")

	acked, asked := highestBy(c.acks, false), highestBy(c.trims, true)
	for _, s := range c.latest {
		if top := acked.before(c.since(s.from)); top >= s.offset {
			c.report.flag(LatestBehind, "%s was told that the log ends at %d after %d was acknowledged", s.who, s.offset, top)
		}
	}
	for _, s := range c.earliest {
		if most := max(0, asked.before(s.to)); s.offset > most {
			c.report.flag(StartJump, "%s was told that the log starts at %d; nobody asked to delete beyond %d", s.who, s.offset, most)
		}
	}
	for _, s := range c.ranges {
		// Within what nobody had asked to delete and what was acknowledged.
		if top := acked.before(c.since(s.from)); s.offset >= asked.before(s.to) && s.offset <= top+1 && s.offset >= 0 {
			c.report.flag(FalseRange, "%s was told that %d lies outside the log, which reached to %d", s.who, s.offset, top)
		}
	}
	c.checkCommits()
}

// checkCommits holds a group's offsets as found against those committed.
func (c *check) checkCommits() {
	groups := map[string][]seenOffset{}
	for _, s := range c.commits {
		groups[s.who] = append(groups[s.who], s)
	}
	for _, s := range c.committed {
		done, begun := highestBy(groups[s.who], false), highestBy(groups[s.who], true)
		if low := done.before(c.since(s.from)); s.offset < low {
			c.report.flag(CommitBack, "%s finds %d after %d was committed", s.who, s.offset, low)
		}
		if high := begun.before(s.to); s.offset > high {
			c.report.flag(CommitWrong, "%s finds %d; at most %d was ever committed", s.who, s.offset, high)
		}
	}
}

// rises flags an offset that is lower than one told before it was asked for.
func (c *check) rises(told []seenOffset, k Kind, what string) {
	top := highestBy(told, false)
	for _, s := range told {
		if high := top.before(c.since(s.from)); s.offset < high {
			c.report.flag(k, "%s is %d for %s, after it was %d", what, s.offset, s.who, high)
		}
	}
}

// highest answers: how far had it come before a moment?
type highest struct {
	when []int64 // rising
	top  []int64 // the highest offset up to then
}

// highestBy orders offsets by when they were asked for (begun) or known.
func highestBy(list []seenOffset, begun bool) highest {
	moment := func(s seenOffset) int64 {
		if begun {
			return s.from
		}
		return s.to
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b seenOffset) int { return cmp.Compare(moment(a), moment(b)) })
	h := highest{make([]int64, len(list)), make([]int64, len(list))}
	top := int64(math.MinInt64)
	for i, s := range list {
		top = max(top, s.offset)
		h.when[i], h.top[i] = moment(s), top
	}
	return h
}

// before is the highest offset of those before t, -1 for none.
func (h highest) before(t int64) int64 {
	i := sort.Search(len(h.when), func(i int) bool { return h.when[i] >= t })
	if i == 0 {
		return -1
	}
	return h.top[i-1]
}
