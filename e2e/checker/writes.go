package checker

import (
	"cmp"
	"math"
	"slices"
)

// checkWrites compares what was acknowledged with what is there in the end.
func (c *check) checkWrites() {
	if c.log == nil {
		return
	}
	for i, p := range c.producers {
		for n := range p.writes {
			w, v := &p.writes[n], value(i+1)<<32|value(n)
			if w.outcome != acked || w.offset < c.log.start || c.final.at(w.offset) == v {
				continue
			}
			switch {
			case p.weak:
				c.report.LostWeak++
			case w.seen < 0:
				c.report.flag(Lost, "%s was acknowledged at %d, and is not in the log", c.name(v), w.offset)
			}
		}
	}
	c.checkRealTime()
}

// checkRealTime looks for a record that was acknowledged before another was
// sent, and lies behind it.
func (c *check) checkRealTime() {
	type sent struct {
		*write
		v value
	}
	var all []sent
	for i, p := range c.producers {
		if p.weak {
			continue
		}
		for n := range p.writes {
			if w := &p.writes[n]; w.outcome == acked {
				all = append(all, sent{w, value(i+1)<<32 | value(n)})
			}
		}
	}
	slices.SortFunc(all, func(a, b sent) int { return cmp.Compare(b.offset, a.offset) })
	first := sent{write: &write{to: math.MaxInt64}} // acknowledged first, of those behind
	for _, w := range all {
		if first.to < w.from {
			c.report.flag(RealTime, "%s at %d was acknowledged before %s at %d was sent", c.name(first.v), first.offset, c.name(w.v), w.offset)
		}
		if w.to < first.to {
			first = w
		}
	}
}
