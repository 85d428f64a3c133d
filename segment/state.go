package segment

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// state is what readers see of a log: one consistent picture (E9). Who changes
// it holds mu, which is never held over I/O; readers take no lock: they read
// again if the picture changed meanwhile. That costs an append no allocation.
type state struct {
	seq atomic.Uint64 // odd while a writer is at it

	logStart, localStart, stable, hw, counted, end atomic.Int64
	size                                           atomic.Int64 // bytes of the active segment up to end
	view                                           atomic.Pointer[view]

	mu struct {
		sync.Mutex
		snapshot // what publish makes visible
		// firstOpen is the first offset of an open transaction, the largest
		// int64 without one.
		firstOpen int64
		// decided is the transactions whose marker may not be below the high
		// watermark yet: until it is, they bound the stable offset.
		decided []decidedTxn
	}
}

type decidedTxn struct{ first, marker int64 }

// view is the segments of a log; it is replaced, never changed.
type view struct {
	sealed []*segment
	active *segment
}

// snapshot is a state at one moment.
type snapshot struct {
	Offsets
	size int64
	*view
}

// load returns a consistent picture.
func (s *state) load() snapshot {
	for spin := 0; ; spin++ {
		seq := s.seq.Load()
		if seq&1 == 0 {
			n := snapshot{
				Offsets: Offsets{
					LogStart: s.logStart.Load(), LocalStart: s.localStart.Load(), ArchivedEnd: -1,
					Stable: s.stable.Load(), HighWatermark: s.hw.Load(), Counted: s.counted.Load(), End: s.end.Load(),
				},
				size: s.size.Load(),
				view: s.view.Load(),
			}
			if s.seq.Load() == seq {
				return n
			}
		}
		if spin > 16 {
			runtime.Gosched()
		}
	}
}

// publishLocked makes what stands in mu visible, the stable offset computed anew.
func (s *state) publishLocked() {
	n := &s.mu.snapshot
	n.HighWatermark = min(n.HighWatermark, n.Counted)
	n.Stable = min(n.HighWatermark, s.mu.firstOpen)
	if len(s.mu.decided) > 0 {
		kept := s.mu.decided[:0]
		for _, d := range s.mu.decided {
			if d.marker >= n.HighWatermark {
				n.Stable = min(n.Stable, d.first)
				kept = append(kept, d)
			}
		}
		s.mu.decided = kept
	}
	n.Stable = max(n.Stable, n.LogStart)

	s.seq.Add(1)
	s.logStart.Store(n.LogStart)
	s.localStart.Store(n.LocalStart)
	s.stable.Store(n.Stable)
	s.hw.Store(n.HighWatermark)
	s.counted.Store(n.Counted)
	s.end.Store(n.End)
	s.size.Store(n.size)
	s.view.Store(n.view)
	s.seq.Add(1)
}

// find returns the segment that holds offset, or would; nil below the first.
func (v *view) find(offset int64) *segment {
	if offset >= v.active.base {
		return v.active
	}
	lo, hi := 0, len(v.sealed)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if v.sealed[mid].base > offset {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == 0 {
		return nil
	}
	return v.sealed[lo-1]
}

// first is the oldest segment.
func (v *view) first() *segment {
	if len(v.sealed) > 0 {
		return v.sealed[0]
	}
	return v.active
}

// after returns the segment that follows s; nil after the active one.
func (v *view) after(s *segment) *segment {
	for i, o := range v.sealed {
		if o == s {
			if i+1 < len(v.sealed) {
				return v.sealed[i+1]
			}
			return v.active
		}
	}
	return nil
}
