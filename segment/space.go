package segment

import (
	"sync/atomic"

	"firn/segment/vfs"
)

// space watches the free bytes of the disk, so that an append can ask for them
// without a system call.
type space struct {
	fs      vfs.FS
	dir     string
	reserve atomic.Int64 // -1 none, 0 the smaller of 5 % and 5 GiB
	low     atomic.Bool
	full    atomic.Bool // a write has found the disk full since somebody made space
	refused atomic.Int64
	free    atomic.Int64
	total   atomic.Int64
	// lookAt is how much is left, as counted, when the disk is to be looked at again.
	lookAt atomic.Int64
}

// Space is how the disk of a log directory stands.
type Space struct {
	Free, Total, Reserve int64
	// Low tells that Free is below Reserve: clients' appends are refused with
	// ErrNoSpace until it is no more.
	Low bool
	// Refused counts the writes that have found the disk full.
	Refused int64
}

// Room is how much is free on a disk that isn't short: half as much again as the
// reserve, or half of what there is besides it on a small disk.
func (s Space) Room() int64 { return s.Reserve + max(min(s.Reserve, s.Total-s.Reserve), 0)/2 }

const maxDefaultReserve = 5 << 30

// check looks at the disk and tells whether that changed Low. A disk that can't
// be asked is taken as it was.
func (s *space) check() (changed bool) {
	free, total, err := s.fs.Free(s.dir)
	if err != nil {
		return false
	}
	s.free.Store(free)
	s.total.Store(total)
	reserve := s.reserveOf(total)
	s.lookAt.Store(free - (free-reserve)/4)
	low := free < reserve
	return s.low.Swap(low) != low
}

// spent counts bytes that were written since the last check, and tells that they
// may have brought the disk below its reserve: between two checks a fast disk
// takes more than the reserve. A quarter of what was above it is enough for that,
// for an archive on the same disk writes what the log does, at times faster.
func (s *space) spent(n int) (mayBeLow bool) {
	return s.free.Add(-int64(n)) < s.lookAt.Load() && !s.low.Load()
}

func (s *space) reserveOf(total int64) int64 {
	switch n := s.reserve.Load(); {
	case n < 0:
		return 0
	case n == 0:
		return min(total/20, maxDefaultReserve)
	default:
		return n
	}
}

func (s *space) now() Space {
	total := s.total.Load()
	return Space{Free: s.free.Load(), Total: total, Reserve: s.reserveOf(total), Low: s.low.Load(), Refused: s.refused.Load()}
}
