package cache

import (
	"iter"
	"time"
)

// Stream is one reader's way through objects: where it is, and how far ahead of
// it loads may run. The window doubles with each step forward up to Config's,
// to the stream's share of the budget, and to what the reader takes in a second
// when it does not wait for us. A jump starts it again at one block.
//
// The window says when a GET is asked for, but not how much it brings: that is a
// matter of the path alone (getLen), so that all who come along it want the same.
//
// A Stream is for one goroutine at a time.
type Stream struct {
	c   *Cache
	num int64

	// Guarded by Cache.mu.
	objs   []*object // the one that it reads, and those that follow
	at     int       // cursor: a block of objs[0]
	behind int       // blocks gone past since the last jump
	asked  int       // blocks from the cursor on that loads have been asked for
	window int       // blocks from the cursor on that loads may fill
	steps  int       // forward, since the last jump
	skip   int       // bytes of the block at the cursor that need not come
	idle   bool
	seen   time.Time
	jumped time.Time

	// Pace: what the reader takes while it need not wait.
	pace      float64 // blocks per second; 0 until known
	accBlocks int
	accTime   time.Duration
	stepAt    time.Time
	waitFrom  time.Time // when a needed block was not here; zero if it was
	counted   int       // the last block counted as hit or miss
}

// NewStream makes a stream. It must be closed.
func (c *Cache) NewStream() *Stream {
	s := &Stream{c: c, window: 1, counted: -1}
	c.mu.Lock()
	c.mu.streams[s] = struct{}{}
	c.mu.nextStream++
	s.num = c.mu.nextStream
	s.seen = time.Now()
	c.mu.Unlock()
	return s
}

// Close ends the stream. What it asked for and nobody else wants goes.
func (s *Stream) Close() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.mu.streams[s]; !ok {
		return
	}
	if len(s.objs) > 0 {
		c.leaveLocked(s, s.objs[0], s.at)
	}
	delete(c.mu.streams, s)
	c.mu.shareAt = time.Time{}
	s.dropObjectsLocked(len(s.objs))
	c.admitLocked()
}

// At says that the reader is at block i of o now, and lets read-ahead follow.
// It will read width blocks at least, so that many are brought at once.
func (s *Stream) At(o *Object, i, width int) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.atLocked(o, i, width)
}

// Seek is At for a reader that looks for bytes [from, to) of o, and for what comes
// before them not at all.
func (s *Stream) Seek(o *Object, from, to int64) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	i := int(from / BlockSize)
	if s.atLocked(o, i, int((to-1)/BlockSize)-i+1) && o.Units != nil {
		s.skip = int(from%BlockSize) / UnitSize * UnitSize
	}
}

func (s *Stream) atLocked(o *Object, i, width int) (jumped bool) {
	c := s.c
	now := time.Now()
	s.seen, s.idle = now, false
	id := objectID{o.Key, o.Off}
	step, ok := s.stepLocked(id, i)
	switch {
	case !ok:
		s.jumpLocked(o, i, width, now)
	case step > 0:
		s.paceLocked(step, now)
		s.advanceLocked(id, i)
		s.steps++
		// What has been read ahead stays before the reader, whatever the limit is
		// now: the window gets smaller only by what it has left behind.
		s.window = max(min(2*s.window, s.limitLocked()), s.window-step)
	}
	s.window = max(s.window, width)
	if ok {
		s.skip = 0
		s.planLocked()
	}
	c.admitLocked()
	return !ok
}

// maxStep is how many blocks forward is no jump yet, whatever has been asked for.
const maxStep = 16

// stepLocked is how many blocks forward block i of id is; false for a jump.
func (s *Stream) stepLocked(id objectID, i int) (int, bool) {
	n := -s.at
	for _, o := range s.objs {
		if o.id == id {
			n += i
			return n, n >= 0 && n <= max(s.asked, maxStep)
		}
		n += o.Blocks()
	}
	return 0, false
}

func (s *Stream) jumpLocked(o *Object, i, width int, now time.Time) {
	if len(s.objs) > 0 {
		s.c.leaveLocked(s, s.objs[0], s.at)
	}
	s.dropObjectsLocked(len(s.objs))
	s.at, s.behind, s.asked, s.window, s.steps, s.skip, s.jumped = i, 0, 0, width, 0, 0, now
	s.addObjectLocked(s.c.objectLocked(o))
	s.c.mu.shareAt = time.Time{}
	s.pace, s.accBlocks, s.accTime, s.stepAt, s.waitFrom, s.counted = 0, 0, 0, now, time.Time{}, -1
}

// advanceLocked moves the cursor forward to block i of id, leaving what is behind.
func (s *Stream) advanceLocked(id objectID, i int) {
	c := s.c
	for s.objs[0].id != id || s.at < i {
		c.leaveLocked(s, s.objs[0], s.at)
		s.asked = max(0, s.asked-1)
		s.behind++
		if s.at++; s.at >= s.objs[0].Blocks() {
			s.dropObjectsLocked(1)
			s.at = 0
		}
	}
}

// addObjectLocked adds what s reads next. What others have left of it waits for s.
func (s *Stream) addObjectLocked(obj *object) {
	obj.readers[s] = struct{}{}
	s.objs = append(s.objs, obj)
	now := time.Now()
	for i, e := range obj.blocks {
		if e.list == &s.c.mu.left && s.c.awaitedLocked(nil, obj, i, now) {
			s.c.mu.shared.push(e)
		}
	}
}

// dropObjectsLocked takes the first n objects off.
func (s *Stream) dropObjectsLocked(n int) {
	for _, obj := range s.objs[:n] {
		delete(obj.readers, s)
		s.c.unuseLocked(obj)
	}
	s.objs = append(s.objs[:0], s.objs[n:]...)
}

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

// scans tells a stream that reads on and on, from one that looked at something
// here and may never come back.
func (s *Stream) scans(now time.Time) bool {
	return !s.idle && s.steps >= 4 && now.Sub(s.seen) < 2*time.Second
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

// Get returns block i of o, pinned, if it is here. If not and need is set, a
// load is started if there is none, and wait closes when it pays to ask again.
func (s *Stream) Get(o *Object, i int, need bool) (b *Block, wait <-chan struct{}, err error) {
	return s.Part(o, i, 0, o.blockLen(i), need)
}

// Part is Get for a reader to whom bytes [from, to) of the block are enough.
func (s *Stream) Part(o *Object, i, from, to int, need bool) (b *Block, wait <-chan struct{}, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	s.seen, s.idle = now, false
	obj := c.objectLocked(o)
	if need && obj.blocks[i] == nil && len(s.objs) > 0 && s.objs[0] == obj && i >= s.at && i <= s.at+s.asked {
		// The first one that nobody asked for, or one that went before it was
		// read: let its load be as long as the window lets it be.
		s.asked = i - s.at
		s.window = max(s.window, s.asked+1)
		s.planLocked()
	}
	if need && s.counted != i {
		s.counted = i
		c.met.looked(memoryTier, obj.blocks[i] != nil && obj.blocks[i].state == ready)
	}
	b, wait, err = c.blockLocked(obj, i, from, to, need)
	if wait != nil && s.waitFrom.IsZero() {
		s.waitFrom = now
	}
	if b != nil {
		if need && !s.waitFrom.IsZero() {
			s.stepAt = s.stepAt.Add(now.Sub(s.waitFrom)) // our time, not the reader's
			s.waitFrom = time.Time{}
		}
		if need {
			// It stays until the reader, who may wait for more to go with it, has
			// gone past it or stays away.
			e := obj.blocks[i]
			e.wanted, e.since = true, now
		}
	}
	return b, wait, err
}

// Next says which object follows the last one that the stream knows.
func (s *Stream) Next(o *Object) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(s.objs) == 0 {
		return
	}
	id := objectID{o.Key, o.Off}
	for _, known := range s.objs {
		if known.id == id {
			return
		}
	}
	obj := c.objectLocked(o)
	s.objs[len(s.objs)-1].followLocked(obj)
	s.addObjectLocked(obj)
	s.planLocked()
	c.admitLocked()
}

// NeedsNext tells how many objects the stream knows, and whether it will soon
// want to read beyond the last of them.
func (s *Stream) NeedsNext() (known int, soon bool) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	left := -s.at
	for _, o := range s.objs {
		left += o.Blocks()
	}
	return len(s.objs), len(s.objs) > 0 && left < 2*s.window+1
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

// distanceLocked is how many blocks before the stream block i of obj is.
func (s *Stream) distanceLocked(obj *object, i int) (int, bool) {
	d := -s.at
	for _, o := range s.objs {
		if o == obj {
			return d + i, d+i >= 0
		}
		d += o.Blocks()
	}
	return 0, false
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
