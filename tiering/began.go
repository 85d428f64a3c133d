package tiering

import (
	"slices"
	"sort"
	"sync"
)

// began remembers when the segments that are not archived had their first
// append, by the broker's clock: timestamps are the producers' and may say
// anything.
type began struct {
	mu struct {
		sync.Mutex
		list []beganAt // by base
	}
}

type beganAt struct{ base, at int64 }

// beganKept bounds it. Where there are more, those in the middle go by the one
// before them.
const beganKept = 64

// note tells of the active segment; at is 0 while it has no append.
func (b *began) note(base, at, archivedEnd int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.mu.list) > 1 && b.mu.list[1].base <= archivedEnd {
		b.mu.list = slices.Delete(b.mu.list, 0, 1)
	}
	n := len(b.mu.list)
	if at == 0 || n > 0 && b.mu.list[n-1].base >= base {
		return
	}
	if n == beganKept {
		b.mu.list = slices.Delete(b.mu.list, n/2, n/2+1)
	}
	b.mu.list = append(b.mu.list, beganAt{base, at})
}

// of is when the segment at base began, or one before it; 0 if all that is known
// began later.
func (b *began) of(base int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := sort.Search(len(b.mu.list), func(i int) bool { return b.mu.list[i].base > base })
	if i == 0 {
		return 0
	}
	return b.mu.list[i-1].at
}
