package cache

import (
	"slices"
	"sync/atomic"
	"time"
)

// load brings a run of adjacent blocks, [next, end) of obj: with one GET, or
// from the disk. It belongs to the Cache, not to who asked first.
type load struct {
	obj   *object
	disk  bool
	grant chan *Block // memory for block next; nil: give up
	// parts: somebody waits for a part of block next.
	parts atomic.Bool

	// Guarded by Cache.mu.
	next, end int
	skip      int    // bytes of block next that are left out: a jump went behind them
	blk       *Block // block next, once there is memory for it
	demandTo  int    // somebody waits for a block below this
	slot      bool
	waitSince time.Time
}

// demanded tells whether a reader waits for the next block, or for one behind it.
func (l *load) demanded() bool { return l.next < l.demandTo }

// refuse makes the load give up; it must be waiting.
func (l *load) refuse() { l.grant <- nil }

// demandLocked notes that a reader waits for e, of which it needs what lies
// before byte to.
func (l *load) demandLocked(e *entry, to int) {
	l.demandTo = max(l.demandTo, e.i+1)
	if e.ch == nil {
		e.ch, e.least = make(chan struct{}), to
	}
	e.least = min(e.least, to)
	if e.i == l.next && e.least < l.obj.blockLen(e.i) {
		l.parts.Store(true)
	}
}

// startLocked starts loads for those of blocks [from, to) that are neither here
// nor on their way: one for each adjacent run of them. The first skip bytes of
// the first one need not come.
func (c *Cache) startLocked(obj *object, from, to, skip int) {
	var l *load
	for i := from; i < to; i++ {
		if e := obj.blocks[i]; e != nil {
			if e.state == ready {
				c.mu.fresh.push(e) // somebody comes for it: not the next to be evicted
			}
			l = nil
			continue
		}
		disk := c.disk != nil && c.disk.has(obj.diskKey(i), obj.Sums[i])
		if l == nil || l.disk != disk {
			l = &load{obj: obj, disk: disk, grant: make(chan *Block, 1), next: i}
			if i == from && !disk {
				l.skip = skip
			}
			l.waitSince = time.Now()
			c.mu.waiting = append(c.mu.waiting, l)
			started := l
			c.wg.Go(func() { c.run(started) })
		}
		l.end = i + 1
		obj.blocks[i] = &entry{obj: obj, i: i, state: loading, load: l}
		if c.disk != nil {
			c.met.looked(diskTier, disk)
		}
	}
}

// againLocked makes a load that has begun wait for memory for its next block: in
// front of those that have not, since its reader comes there first.
func (c *Cache) againLocked(l *load) {
	l.waitSince = time.Now()
	c.mu.waiting = slices.Insert(c.mu.waiting, 0, l)
}

func (c *Cache) unwaitLocked(l *load) {
	if i := slices.Index(c.mu.waiting, l); i >= 0 {
		c.mu.waiting = slices.Delete(c.mu.waiting, i, i+1)
	}
}

// run is the life of a load: memory for a block, the block, hand it on, the next.
func (c *Cache) run(l *load) {
	var src source
	defer func() { src.close() }()
	for {
		b := <-l.grant
		if b == nil {
			c.end(l, nil, nil)
			return
		}
		b, err := c.fill(l, &src, b)
		if err != nil {
			c.end(l, b, err)
			return
		}
		if c.publish(l, b) {
			return
		}
	}
}

// publish hands block next on, and asks for memory for the one after it. It
// reports whether that was the last.
func (c *Cache) publish(l *load, b *Block) (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := l.obj.blocks[l.next]
	e.state, e.blk, e.load, e.since = ready, b, nil, time.Now()
	c.mu.fresh.push(e)
	e.wake()
	if c.disk != nil && !l.disk && b.file == nil && b.from == 0 && c.disk.secondTouch(e.obj.diskKey(e.i)) {
		c.disk.offer(e.obj.diskKey(e.i), e.obj.Sums[e.i], b)
	}
	l.next++
	l.skip, l.blk = 0, nil
	if next := l.obj.blocks[l.next]; l.next < l.end {
		l.parts.Store(next.ch != nil && next.least < l.obj.blockLen(l.next))
	}
	if c.mu.giant == l && !l.demanded() {
		c.mu.giant = nil
	}
	switch {
	case l.next == l.end:
		c.freeSlotLocked(l)
		last = true
	case c.mu.closed:
		l.refuse()
	default:
		if l.disk {
			c.freeSlotLocked(l) // nothing is open meanwhile
		}
		c.againLocked(l)
	}
	c.admitLocked()
	return last
}

func (c *Cache) freeSlotLocked(l *load) {
	switch {
	case !l.slot:
	case l.disk:
		c.mu.reads--
	default:
		c.mu.gets--
	}
	l.slot = false
}

// end ends a load before its end: cut, with err nil, or failed. It takes
// the lock itself. Blocks that somebody waits for tell them err; the others are
// as if nobody had asked.
func (c *Cache) end(l *load, b *Block, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.blk = nil
	if b != nil && b.refs.Add(-1) == 0 { // else a reader has a part of it
		c.reclaimLocked(b)
	}
	c.freeSlotLocked(l)
	if c.mu.giant == l {
		c.mu.giant = nil
	}
	if c.mu.closed {
		err = ErrClosed
	}
	for i := l.next; i < l.end; i++ {
		e := l.obj.blocks[i]
		e.load = nil
		if err == nil || !e.wanted {
			e.state = failed
			c.dropLocked(e)
			continue
		}
		e.state, e.err, e.since = failed, err, time.Now()
		e.wake()
	}
	c.admitLocked()
}
