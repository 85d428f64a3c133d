package cache

import (
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
