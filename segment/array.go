package segment

import "sync/atomic"

// array grows at its end, by one writer, under any number of readers without a
// lock: an element below Len never changes. Its elements hold no pointers, so
// the collector does not look into it.
type array[T any] struct {
	n      atomic.Int64
	chunks atomic.Pointer[[]*[arrayChunk]T]
}

// arrayChunk is small because ten thousand idle partitions have one each.
const arrayChunk = 64

// Len is the number of elements.
func (a *array[T]) Len() int { return int(a.n.Load()) }

// At returns element i, which must be below a Len seen before.
func (a *array[T]) At(i int) T {
	return (*a.chunks.Load())[i/arrayChunk][i%arrayChunk]
}

// Append adds v. One writer at a time.
func (a *array[T]) Append(v T) {
	n := int(a.n.Load())
	var chunks []*[arrayChunk]T
	if p := a.chunks.Load(); p != nil {
		chunks = *p
	}
	if n == len(chunks)*arrayChunk {
		// Readers hold shorter slices of the same memory: what they see of it
		// does not change.
		grown := append(chunks, new([arrayChunk]T))
		a.chunks.Store(&grown)
		chunks = grown
	}
	chunks[n/arrayChunk][n%arrayChunk] = v
	a.n.Store(int64(n) + 1)
}

// search returns the first i for which f(element i) holds, as sort.Search does,
// of the first n elements.
func (a *array[T]) search(n int, f func(T) bool) int {
	lo, hi := 0, n
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if f(a.At(mid)) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
