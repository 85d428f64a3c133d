package cache

import (
	"slices"
	"time"
)

// bufferSize is what a block of n bytes takes of the budget.
func bufferSize(n int) int64 {
	if n <= BlockSize/2 {
		return int64(n)
	}
	return BlockSize
}

// admitLocked grants what can be granted: to loads that a reader waits for
// first, then to those that are within a reader's window, in the order of their
// asking. It is called whenever memory, a slot or a cursor has moved.
func (c *Cache) admitLocked() {
	if len(c.mu.waiting) == 0 {
		return
	}
	for _, demand := range []bool{true, false} {
		for _, l := range slices.Clone(c.mu.waiting) {
			if l.demanded() == demand && slices.Contains(c.mu.waiting, l) && c.grantLocked(l) {
				c.unwaitLocked(l)
			}
		}
	}
}

func (c *Cache) grantLocked(l *load) bool {
	demand := l.demanded()
	if !demand && !c.inWindowLocked(l.obj, l.next, nil) {
		return false
	}
	if !l.slot && !c.slotFreeLocked(l, demand) {
		if demand && !l.disk {
			c.freeStalledLocked()
		}
		return false
	}
	n := l.obj.blockLen(l.next)
	if !c.makeRoomLocked(l, bufferSize(n), demand) {
		return false
	}
	if !l.slot {
		l.slot = true
		if l.disk {
			c.mu.reads++
		} else {
			c.mu.gets++
		}
	}
	b := c.takeLocked(n)
	b.from = l.skip
	b.upto.Store(int64(l.skip))
	l.blk = b
	l.grant <- b
	return true
}

// diskReads bounds the reads of the disk cache at a time; demand may have as many
// again.
const diskReads = 4

func (c *Cache) slotFreeLocked(l *load, demand bool) bool {
	switch {
	case l.disk:
		return c.mu.reads < diskReads || demand && c.mu.reads < 2*diskReads
	case demand:
		return c.mu.gets < c.cfg.Gets
	default:
		return c.mu.gets < c.readAheadSlots()
	}
}

// readAheadSlots is how many GETs may be open when read-ahead starts another.
func (c *Cache) readAheadSlots() int { return (c.cfg.Gets*3 + 3) / 4 }

// freeStalledLocked cuts the load that has held its slot for longest while it
// waits for a reader to come closer. Its slot is free when it has heard of it.
func (c *Cache) freeStalledLocked() {
	for i, l := range c.mu.waiting {
		if l.slot && !l.demanded() {
			c.mu.waiting = slices.Delete(c.mu.waiting, i, i+1)
			l.refuse()
			return
		}
	}
}

// takeLocked makes a block of n bytes, on the budget. Where they go is seen when
// they come. One that turns out to lie in a file counts like one in memory: the
// budget bounds how far ahead of the readers we are, too.
func (c *Cache) takeLocked(n int) *Block {
	b := &Block{n: n, c: c}
	b.refs.Store(1)
	c.mu.used += bufferSize(n)
	c.met.memory.Set(float64(c.mu.used))
	return b
}

// buffer gives b its memory.
func (c *Cache) buffer(b *Block) {
	if b.b == nil {
		c.mu.Lock()
		b.b = c.mu.pool.get(b.n)
		c.mu.Unlock()
	}
}

func (c *Cache) reclaim(b *Block) {
	c.mu.Lock()
	c.reclaimLocked(b)
	c.admitLocked()
	c.mu.Unlock()
}

func (c *Cache) reclaimLocked(b *Block) {
	c.mu.used -= bufferSize(b.n)
	if b.b != nil {
		c.mu.pool.put(b.b)
		b.b = nil
	}
	b.file.release()
	b.file = nil
	c.met.memory.Set(float64(c.mu.used))
}

// makeRoomLocked evicts until n more bytes fit. Read-ahead evicts only what no
// reader is known to want. Demand goes a quarter beyond the budget, too, so that
// what slow connections pin does not keep others waiting, and then evicts what
// others have before them. Further goes only who needs more at once than there
// is, one at a time.
func (c *Cache) makeRoomLocked(l *load, n int64, demand bool) bool {
	for c.mu.used+n > c.cfg.Memory {
		e := c.victimLocked()
		switch {
		case e != nil:
		case !demand:
			return false
		case c.mu.used+n <= c.cfg.Memory+c.cfg.Memory/4:
			return true
		case c.holdsBackLocked(l):
			return false
		default:
			if e = c.lastVictimLocked(); e == nil {
				return c.mu.giant == l
			}
		}
		c.met.evicted(memoryTier)
		c.dropLocked(e)
	}
	return true
}

// victimLocked picks an entry that no reader is known to want; nil if there is
// none.
func (c *Cache) victimLocked() *entry {
	if c.mu.left.head == nil {
		c.unshareLocked()
	}
	for e := c.mu.left.head; e != nil; e = e.next {
		if !e.blk.pinned() {
			return e
		}
	}
	now := time.Now()
	for e := c.mu.fresh.head; e != nil; {
		next := e.next
		switch {
		case !evictable(e) || c.inWindowLocked(e.obj, e.i, nil):
		case c.awaitedLocked(nil, e.obj, e.i, now):
			c.mu.shared.push(e)
		default:
			return e
		}
		e = next
	}
	return nil
}

// lastVictimLocked picks an entry that will be missed: of those that another
// reader comes for, and then of those read ahead, the one that is read last, as a
// rule the latest.
func (c *Cache) lastVictimLocked() *entry {
	for e := c.mu.shared.tail; e != nil; e = e.prev {
		if !e.blk.pinned() {
			return e
		}
	}
	e := c.mu.fresh.tail
	for e != nil && !evictable(e) {
		e = e.prev
	}
	return e
}

// giantBlocks is how many adjacent blocks somebody must want before that
// counts as a batch that may not fit: it is then served beyond the budget.
const giantBlocks = 8

// giantLocked lets a load go beyond all limits that has waited for long for a
// block of a batch that takes many: else a batch larger than the budget could
// never be read. There is one at a time.
func (c *Cache) giantLocked(now time.Time) {
	if c.mu.giant != nil {
		return
	}
	for _, l := range c.mu.waiting {
		if !l.demanded() || now.Sub(l.waitSince) < time.Second {
			continue
		}
		first := l.next
		for e := l.obj.blocks[first]; e != nil && e.wanted; e = l.obj.blocks[first] {
			first--
		}
		if l.demandTo-first > giantBlocks {
			c.mu.giant = l
			return
		}
	}
}

// evictable tells whether dropping a fresh block is fair and of use: not if it
// is pinned, or if somebody has waited for it and may be on the way to fetch it.
func evictable(e *entry) bool {
	return !e.blk.pinned() && !(e.wanted && time.Since(e.since) < freshFor)
}
