package segment

import (
	"io/fs"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"firn/segment/vfs"
)

// handles keeps at most so many segment files open. What is pinned stays open
// beyond that: an append, a read under way, Records not yet released.
type handles struct {
	fs    vfs.FS
	limit int

	mu struct {
		sync.Mutex
		open []*handle
		hand int // of the clock that looks for one to close

		indexes    []loadedIndex // of sealed segments, the oldest first
		indexBytes int64
	}
}

// handle is an open segment file. The cache holds one reference, and each pin
// one; the last to go closes the file.
type handle struct {
	seg  *segment
	file vfs.File
	refs atomic.Int32
	used atomic.Bool // since the hand came by
	free func()      // unpin, made once, so that a read allocates nothing for it
}

func newHandles(fsys vfs.FS, limit int) *handles {
	if limit == 0 {
		limit = 8192
	}
	return &handles{fs: fsys, limit: max(limit, 16)}
}

// pin returns the open file of s, to be given back by unpin.
func (c *handles) pin(s *segment) (*handle, error) {
	if h := s.handle.Load(); h != nil && h.tryPin() {
		return h, nil
	}
	return c.open(s)
}

func (h *handle) tryPin() bool {
	for {
		n := h.refs.Load()
		if n == 0 {
			return false
		}
		if h.refs.CompareAndSwap(n, n+1) {
			break
		}
	}
	if !h.used.Load() {
		h.used.Store(true)
	}
	return true
}

func (h *handle) unpin() {
	if h.refs.Add(-1) == 0 {
		h.file.Close()
	}
}

func (c *handles) open(s *segment) (*handle, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if h := s.handle.Load(); h != nil && h.tryPin() {
		return h, nil
	}
	if s.gone {
		return nil, fs.ErrNotExist
	}
	f, err := c.fs.OpenFile(s.path(logSuffix), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return c.adopt(s, f), nil
}

// adopt makes the open file f the handle of s, and pins it.
func (c *handles) adopt(s *segment, f vfs.File) *handle {
	h := &handle{seg: s, file: f}
	h.free = h.unpin
	h.refs.Store(2)
	h.used.Store(true)
	s.handle.Store(h)

	c.mu.Lock()
	c.mu.open = append(c.mu.open, h)
	var closed []*handle
	for over := len(c.mu.open) - c.limit; over > 0; over-- {
		closed = append(closed, c.evictLocked())
	}
	c.mu.Unlock()
	for _, old := range closed {
		old.seg.handle.CompareAndSwap(old, nil)
		old.unpin()
	}
	return h
}

// evictLocked takes a handle out that was not used in the hand's last round.
func (c *handles) evictLocked() *handle {
	for range 2*len(c.mu.open) + 1 {
		c.mu.hand++
		if c.mu.hand >= len(c.mu.open) {
			c.mu.hand = 0
		}
		if !c.mu.open[c.mu.hand].used.Swap(false) {
			break
		}
	}
	return c.takeLocked(c.mu.hand)
}

func (c *handles) takeLocked(i int) *handle {
	h, last := c.mu.open[i], len(c.mu.open)-1
	c.mu.open[i] = c.mu.open[last]
	c.mu.open[last] = nil
	c.mu.open = c.mu.open[:last]
	return h
}

// drop closes the file of s once nobody has it pinned, and for good: who still
// has s from an old view must look at the log again.
func (c *handles) drop(s *segment) {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.gone = true
	h := s.handle.Swap(nil)
	if h == nil {
		return
	}
	c.mu.Lock()
	found := math.MinInt
	for i, o := range c.mu.open {
		if o == h {
			found = i
			break
		}
	}
	if found >= 0 {
		c.takeLocked(found)
	}
	c.mu.Unlock()
	if found >= 0 {
		h.unpin()
	}
}

// indexLoaded takes note that the index of a sealed segment is in memory, and
// lets go of others when that is too much: they are read again when needed.
func (c *handles) indexLoaded(s *segment, x *index) {
	if x == nil {
		return
	}
	size := int64(x.offsets.Len()*8 + x.times.Len()*16)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.indexes = append(c.mu.indexes, loadedIndex{s, x, size})
	c.mu.indexBytes += size
	for c.mu.indexBytes > maxIndexBytes && len(c.mu.indexes) > 1 {
		old := c.mu.indexes[0]
		c.mu.indexes = c.mu.indexes[1:]
		c.mu.indexBytes -= old.size
		old.seg.index.CompareAndSwap(old.index, nil)
	}
}

// maxIndexBytes bounds the memory for the indexes of sealed segments, of all
// partitions: those of 32 segments of 1 GiB that are read at a time.
const maxIndexBytes = 64 << 20

type loadedIndex struct {
	seg   *segment
	index *index
	size  int64
}
