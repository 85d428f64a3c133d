package segment

import "sync/atomic"

// ring remembers where the latest batches of the active segment begin, so that a
// reader at the tail finds its place without a system call. One writer, readers
// without a lock: a reader drops what was overwritten while it looked.
type ring struct {
	n       atomic.Int64 // batches ever added
	entries [ringSize]ringEntry
}

type ringEntry struct{ base, pos atomic.Int64 }

const ringSize = 128

// add takes note of the batch with offset base at pos. An offset is never below
// the one before it.
func (r *ring) add(base, pos int64) {
	n := r.n.Load()
	e := &r.entries[n%ringSize]
	e.base.Store(base)
	e.pos.Store(pos)
	r.n.Store(n + 1)
}

// find returns the place of the batch that holds offset, which is below the end
// of the batches, and where the next one begins: size for the last one below
// size, which is the part of the file that the reader knows of.
func (r *ring) find(offset, size int64) (place, bool) {
	n := r.n.Load()
	lowest := max(n-ringSize+1, 0) // one less than it holds: the writer may be at the oldest
	lo, hi := lowest, n
	for lo < hi {
		mid := (lo + hi) / 2
		if r.entries[mid%ringSize].base.Load() > offset {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == lowest {
		return place{}, false
	}
	e := &r.entries[(lo-1)%ringSize]
	p := place{base: e.base.Load(), pos: e.pos.Load(), next: size}
	if lo < n {
		p.next = min(size, r.entries[lo%ringSize].pos.Load())
	}
	if r.n.Load()-ringSize >= lowest {
		return place{}, false // overwritten meanwhile, perhaps
	}
	return p, p.pos < p.next
}

// place is where a batch lies in its segment's file.
type place struct {
	base      int64
	pos, next int64
}
