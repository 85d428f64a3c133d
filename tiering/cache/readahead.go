package cache

import (
	"time"
)

// paceLocked measures the reader: the time from one step to the next, without
// what it waited for us.
func (s *Stream) paceLocked(blocks int, now time.Time) {
	s.accTime += now.Sub(s.stepAt)
	s.accBlocks += blocks
	s.stepAt = now
	if s.accTime < 250*time.Millisecond {
		return
	}
	p := float64(s.accBlocks) / s.accTime.Seconds()
	if s.pace > 0 {
		p = (p + s.pace) / 2
	}
	s.pace, s.accBlocks, s.accTime = p, 0, 0
}

// fileWindow is how many blocks before its reader a file of this machine is
// verified: the system reads ahead itself, and what the reader gets shall be in
// the processor's caches still.
const fileWindow = 8

// limitLocked is the largest window that the stream may have, in blocks.
func (s *Stream) limitLocked() int {
	n := min(s.c.cfg.Window/BlockSize, s.c.shareLocked())
	if s.pace > 0 {
		n = min(n, int64(s.pace))
	}
	if len(s.objs) > 0 && s.objs[0].filed {
		n = min(n, fileWindow)
	}
	return int(max(n, 1))
}

// shareLocked is how many blocks each stream that scans may have before it. All
// others need one; and those that come close behind another live on what that
// one has read ahead.
func (c *Cache) shareLocked() int64 {
	now := time.Now()
	if !c.mu.shareAt.IsZero() && now.Sub(c.mu.shareAt) < 100*time.Millisecond {
		return c.mu.share
	}
	blocks, scans := c.cfg.Memory/2/BlockSize, int64(0)
	for s := range c.mu.streams {
		switch {
		case s.idle || len(s.objs) == 0:
		case s.window == 1 || !s.scans(now):
			if now.Sub(s.seen) < 2*time.Second {
				blocks--
			}
		case !c.followsLocked(s):
			scans++
		}
	}
	c.mu.share, c.mu.shareAt, c.mu.scans = max(blocks/max(scans, 1), 1), now, int(scans)
	return c.mu.share
}

// followsLocked tells whether an active stream is where s will soon be.
func (c *Cache) followsLocked(s *Stream) bool {
	d := -s.at
	for obj := s.objs[0]; obj != nil && int64(d)*BlockSize <= c.cfg.Window; obj = obj.next {
		for t := range obj.readers {
			if t == s || t.objs[0] != obj || !t.scans(s.seen) {
				continue
			}
			gap := d + t.at
			if int64(gap)*BlockSize <= c.cfg.Window && (gap > 0 || gap == 0 && t.num < s.num) {
				return true
			}
		}
		d += obj.Blocks()
	}
	return false
}

// planLocked asks for loads until they reach as far as the window does.
func (s *Stream) planLocked() {
	c := s.c
	if c.mu.closed || c.get.refused() != nil {
		return
	}
	whole := int(c.cfg.GetBytes / BlockSize)
	most := whole
	if limit := s.limitLocked(); limit < 8 && 2*c.mu.scans > c.readAheadSlots() {
		most = limit // a full house: what is beyond the window would hold a slot for long
	}
	if s.pace > 0 && s.pace < 1 {
		most = 1 // it would be cut before the reader comes closer
	}
	for s.asked < s.window {
		obj, i := s.askedLocked()
		if obj == nil {
			return
		}
		var n int
		if far := s.behind + s.asked; far == 0 {
			n = min(s.window, obj.Blocks()-i) // waited for
		} else {
			n = getLen(i, far+1, most, obj.Blocks(), whole)
		}
		skip := 0
		if s.asked == 0 {
			skip, s.skip = s.skip, 0
		}
		c.startLocked(obj, i, i+n, skip)
		s.asked += n
	}
}

// getLen is how many blocks from i on, of an object of total, the next GET should
// bring of a reader that has come size blocks far: about as many, at most most.
// GETs end at borders that all readers share: those that divide the object evenly
// into parts of at most whole blocks, and within a part those that divide it by
// powers of two. What is beyond the reader's window waits in its connection.
func getLen(i, size, most, total, whole int) int {
	parts := (total + whole - 1) / whole
	part := (total + parts - 1) / parts
	from := i / part * part
	below := min(from+part, total)
	size = min(size, most)
	unit := 1
	for 2*unit <= size {
		unit *= 2
	}
	end := from + (i-from+size+unit-1)/unit*unit
	if end-i > most {
		end -= unit
	}
	if below-end <= unit && below-i <= most {
		end = below // no small rests
	}
	return min(end, below) - i
}

// askedLocked is the first block that no load has been asked for; nil if the
// stream doesn't know what follows.
func (s *Stream) askedLocked() (*object, int) {
	i := s.at + s.asked
	for _, o := range s.objs {
		if i < o.Blocks() {
			return o, i
		}
		i -= o.Blocks()
	}
	return nil, 0
}
