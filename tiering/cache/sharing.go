package cache

import (
	"iter"
	"time"
)

// scans tells a stream that reads on and on, from one that looked at something
// here and may never come back.
func (s *Stream) scans(now time.Time) bool {
	return !s.idle && s.steps >= 4 && now.Sub(s.seen) < 2*time.Second
}

// inWindowLocked tells whether an active stream other than but has block i of obj
// before it, within its window.
func (c *Cache) inWindowLocked(obj *object, i int, but *Stream) bool {
	for s := range obj.readers {
		if d, ok := s.distanceLocked(obj, i); ok && d < s.window && !s.idle && s != but {
			return true
		}
	}
	return false
}

// leaveLocked notes that s has gone past block i of obj. If another stream comes
// behind, the block waits for it, and read-ahead waits for memory; else it is the
// next to be evicted.
func (c *Cache) leaveLocked(s *Stream, obj *object, i int) {
	e := obj.blocks[i]
	if e == nil || e.state != ready {
		return
	}
	now := time.Now()
	e.since, e.wanted = now, false
	switch {
	case c.inWindowLocked(obj, i, s): // as good as read ahead for that one
	case c.awaitedLocked(s, obj, i, now):
		c.mu.shared.push(e)
	default:
		c.mu.left.push(e)
	}
}

// awaitedLocked tells whether a stream other than s, which has block i of obj,
// is on its way there and keeps up.
func (c *Cache) awaitedLocked(s *Stream, obj *object, i int, now time.Time) bool {
	for t := range c.comingLocked(obj, i) {
		if t != s && t.keepsUp(s, now) {
			return true
		}
	}
	return false
}

// comingLocked yields the streams that will come to block i of obj, and how many
// blocks each has to go. It looks further back than memory ever reaches: the
// memory says when who is ahead must wait, not this.
func (c *Cache) comingLocked(obj *object, i int) iter.Seq2[*Stream, int] {
	return func(yield func(*Stream, int) bool) {
		reach := int(2 * c.cfg.Memory / BlockSize)
		for off := 0; obj != nil && off <= reach; {
			for t := range obj.readers {
				if t.objs[0] != obj || t.idle {
					continue // it comes up with the one that it reads
				}
				if d := off + i - t.at; d >= 0 && d <= reach && !yield(t, d) {
					return
				}
			}
			if obj = obj.prev; obj != nil {
				off += obj.Blocks()
			}
		}
	}
}

// unshareLocked gives up the blocks whose reader stays away.
func (c *Cache) unshareLocked() {
	now := time.Now()
	if now.Sub(c.mu.sharedAt) < 50*time.Millisecond {
		return
	}
	c.mu.sharedAt = now
	for e := c.mu.shared.head; e != nil; {
		next := e.next
		if !c.awaitedLocked(nil, e.obj, e.i, now) {
			c.mu.left.push(e)
		}
		e = next
	}
}

// holdsBackLocked tells whether what l is demanded for should wait: its reader is
// ahead of another that keeps up, and what lies between them fills the memory.
// The other one goes on without us, and frees it.
func (c *Cache) holdsBackLocked(l *load) bool {
	now := time.Now()
	if now.Sub(l.waitSince) > time.Second {
		return false
	}
	var first *Stream
	for s, d := range c.comingLocked(l.obj, l.next) {
		if d == 0 && s.scans(now) {
			first = s
		}
	}
	if first == nil {
		return false
	}
	for t, d := range c.comingLocked(l.obj, l.next) {
		if d > 0 && t.keepsUp(first, now) {
			return true
		}
	}
	return false
}

// keepsUp tells a stream that is, or may be, about as fast as s, give or take what
// a short pause does to its pace: s can wait for it, rather than have all brought
// twice. Without s it is enough that it reads.
func (t *Stream) keepsUp(s *Stream, now time.Time) bool {
	if now.Sub(t.seen) > time.Second || !t.scans(now) && now.Sub(t.jumped) > newFor {
		return false
	}
	const fast = 16 // blocks per second, when it isn't known how fast s could be
	return s == nil || t.pace == 0 || 3*t.pace >= s.pace && (s.pace > 0 || t.pace >= fast)
}

// newFor is how long a stream that has jumped may turn out to be one that scans.
const newFor = 250 * time.Millisecond
