package cache

import (
	"fmt"
	"time"
)

type state uint8

const (
	loading state = iota
	ready
	failed
)

const (
	// failedFor is how long a failure is told to whoever asks, before the next one
	// who asks starts another load.
	failedFor = time.Second
	// freshFor protects a block that somebody waited for until they come for it.
	freshFor = 5 * time.Second
	// stalledFor is how long a load waits for a reader to come closer.
	stalledFor = 3 * time.Second
	// idleFor is when a stream no longer counts, leftFor when a block goes that
	// nobody is known to want.
	idleFor = 15 * time.Second
	leftFor = 60 * time.Second
)

// entry is a block in the table: on its way, here, or failed.
type entry struct {
	obj   *object
	i     int
	state state
	load  *load         // loading
	ch    chan struct{} // loading: made when somebody waits
	least int           // with ch: the least of the block that somebody waits for
	blk   *Block        // ready: the table's own pin
	err   error         // failed
	since time.Time     // ready, failed: when
	// wanted: somebody asked for it and has not come back for it yet.
	wanted bool

	list       *list // ready
	prev, next *entry
}

// wake wakes those who wait.
func (e *entry) wake() {
	if e.ch != nil {
		close(e.ch)
		e.ch = nil
	}
}

// list is a list of ready entries, oldest first.
type list struct{ head, tail *entry }

func (l *list) push(e *entry) {
	if e.list != nil {
		e.list.remove(e)
	}
	e.list, e.prev = l, l.tail
	if l.tail != nil {
		l.tail.next = e
	} else {
		l.head = e
	}
	l.tail = e
}

func (l *list) remove(e *entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.tail = e.prev
	}
	e.list, e.prev, e.next = nil, nil, nil
}

func (c *Cache) objectLocked(o *Object) *object {
	id := objectID{o.Key, o.Off}
	obj := c.mu.objects[id]
	if obj == nil {
		obj = &object{Object: o, id: id, blocks: make(map[int]*entry), readers: make(map[*Stream]struct{})}
		if c.disk != nil {
			obj.hash = hashObject(id)
		}
		c.mu.objects[id] = obj
	}
	return obj
}

// unuseLocked forgets an object that nothing refers to.
func (c *Cache) unuseLocked(obj *object) {
	if len(obj.readers) > 0 || len(obj.blocks) > 0 || c.mu.objects[obj.id] != obj {
		return
	}
	delete(c.mu.objects, obj.id)
	if obj.prev != nil {
		obj.prev.next = nil
	}
	if obj.next != nil {
		obj.next.prev = nil
	}
	obj.prev, obj.next = nil, nil
}

// followLocked notes that next comes after obj.
func (obj *object) followLocked(next *object) {
	if obj.next == next || obj == next {
		return
	}
	if obj.next != nil {
		obj.next.prev = nil
	}
	if next.prev != nil {
		next.prev.next = nil
	}
	obj.next, next.prev = next, obj
}

// blockLocked returns block i pinned if bytes [from, to) of it are here. Else, if
// it is needed, it returns what closes when it pays to ask again.
func (c *Cache) blockLocked(obj *object, i, from, to int, need bool) (*Block, <-chan struct{}, error) {
	if i < 0 || i >= obj.Blocks() {
		c.unuseLocked(obj)
		return nil, nil, fmt.Errorf("cache: %s has no block %d", obj.Key, i)
	}
	e := obj.blocks[i]
	if b := e.block(); b != nil && b.Has(from, to) {
		b.Retain()
		e.wanted = false
		return b, nil, nil
	}
	if !need {
		c.unuseLocked(obj)
		return nil, nil, nil
	}
	if c.mu.closed {
		return nil, nil, ErrClosed
	}
	if e != nil && e.state == failed {
		if time.Since(e.since) < failedFor {
			return nil, nil, e.err
		}
	}
	if e != nil && e.state != loading { // it failed, or somebody jumped into it and left out its head
		c.dropLocked(e)
		e, obj = nil, c.objectLocked(obj.Object)
	}
	if e == nil {
		if err := c.get.refused(); err != nil && (c.disk == nil || !c.disk.has(obj.diskKey(i), obj.Sums[i])) {
			c.unuseLocked(obj)
			return nil, nil, err
		}
		c.startLocked(obj, i, i+1, 0)
		e = obj.blocks[i]
	}
	if e.load.next == i && from < e.load.skip {
		to = obj.blockLen(i) // it won't come this time: then again
	}
	e.load.demandLocked(e, to)
	e.wanted = true
	ch := e.ch
	if b := e.block(); b != nil && b.Has(from, to) {
		e.wake() // it has come just now
	}
	c.admitLocked()
	return nil, ch, nil
}

// block is what there is of the block, nil if there is nothing.
func (e *entry) block() *Block {
	switch {
	case e == nil:
		return nil
	case e.state == loading && e.load.next == e.i:
		return e.load.blk
	}
	return e.blk
}

// dropLocked takes an entry out of the table. A pinned block lives on until it
// is released.
func (c *Cache) dropLocked(e *entry) {
	if e.list != nil {
		e.list.remove(e)
	}
	delete(e.obj.blocks, e.i)
	e.wake()
	if e.blk != nil && e.blk.refs.Add(-1) == 0 {
		c.reclaimLocked(e.blk)
	}
	c.unuseLocked(e.obj)
}

// expireLocked is what time alone changes.
func (c *Cache) expireLocked(now time.Time) {
	for s := range c.mu.streams {
		if !s.idle && now.Sub(s.seen) > idleFor {
			s.idle = true
			s.window = 1
		}
	}
	for i := 0; i < len(c.mu.waiting); i++ {
		if l := c.mu.waiting[i]; !l.demanded() && now.Sub(l.waitSince) > stalledFor {
			c.unwaitLocked(l)
			l.refuse()
			i--
		}
	}
	c.giantLocked(now)
	for _, l := range []*list{&c.mu.left, &c.mu.shared, &c.mu.fresh} {
		for e := l.head; e != nil; {
			next := e.next
			if now.Sub(e.since) > leftFor && !c.inWindowLocked(e.obj, e.i, nil) {
				c.met.evicted(memoryTier)
				c.dropLocked(e)
			}
			e = next
		}
	}
	for _, obj := range c.mu.objects {
		for _, e := range obj.blocks {
			if e.state == failed && now.Sub(e.since) > failedFor {
				c.dropLocked(e)
			}
		}
	}
}
