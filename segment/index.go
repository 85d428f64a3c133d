package segment

import "math"

// index finds places in a segment: Kafka's offset index and time index, in
// memory. It is a function of the batches and of index.interval.bytes alone
// (S2): appending, recovery and a rebuild make the same one. One writer, readers
// without a lock.
type index struct {
	base    int64
	offsets array[offsetEntry]
	times   array[timeEntry]

	// The rest belongs to the writer.
	sinceEntry int // bytes of batches since the last entry
	maxTime    int64
	maxTimeAt  int64 // the last offset of the first batch with maxTime
}

// offsetEntry: the batch at Pos is the one whose last offset is base+Rel.
type offsetEntry struct {
	Rel, Pos uint32
}

// timeEntry: up to the batch that ends with base+Rel, and a little further, no
// timestamp is above Time.
type timeEntry struct {
	Time int64
	Rel  uint32
}

func newIndex(base int64) *index {
	return &index{base: base, maxTime: -1, maxTimeAt: base}
}

// add takes note of the batch of size bytes at pos that ends with last. It adds
// at most one entry to either index.
func (x *index) add(last, maxTime int64, pos int64, size, interval int) {
	if maxTime > x.maxTime {
		x.maxTime, x.maxTimeAt = maxTime, last
	}
	if x.sinceEntry > interval {
		x.offsets.Append(offsetEntry{Rel: uint32(last - x.base), Pos: uint32(pos)})
		x.addTime()
		x.sinceEntry = 0
	}
	x.sinceEntry += size
}

// addTime adds the running maximum to the time index if it is a new one.
func (x *index) addTime() {
	if n := x.times.Len(); n > 0 && x.maxTime <= x.times.At(n-1).Time || x.maxTime < 0 {
		return
	}
	x.times.Append(timeEntry{Time: x.maxTime, Rel: uint32(x.maxTimeAt - x.base)})
}

// seal ends the index as Kafka does: the segment's largest timestamp is its last
// time entry, whatever the interval.
func (x *index) seal() { x.addTime() }

// full tells that an index file would outgrow limit.
func (x *index) full(limit int) bool {
	return x.offsets.Len() >= limit/offsetEntrySize || x.times.Len() >= limit/timeEntrySize-1
}

// floor returns where to begin a walk that looks for offset: a batch whose last
// offset is at most offset, or the segment's beginning; and where the walk ends
// at the latest: the next entry's place, or the largest int64.
func (x *index) floor(offset int64) (pos, next int64) {
	if x == nil || offset <= x.base {
		return 0, math.MaxInt64
	}
	rel, n := offset-x.base, x.offsets.Len()
	i := x.offsets.search(n, func(e offsetEntry) bool { return int64(e.Rel) > rel })
	next = math.MaxInt64
	if i < n {
		next = int64(x.offsets.At(i).Pos)
	}
	if i > 0 {
		pos = int64(x.offsets.At(i - 1).Pos)
	}
	return pos, next
}

// begins returns where the last batch begins that has an entry and begins at pos or
// before; 0 if none has. Batches larger than the interval all have one.
func (x *index) begins(pos int64) int64 {
	if x == nil {
		return 0
	}
	i := x.offsets.search(x.offsets.Len(), func(e offsetEntry) bool { return int64(e.Pos) > pos })
	if i == 0 {
		return 0
	}
	return int64(x.offsets.At(i - 1).Pos)
}

// offsetBefore returns an offset at or below the first batch that may hold a
// timestamp of at least ts.
func (x *index) offsetBefore(ts int64) int64 {
	i := x.times.search(x.times.Len(), func(e timeEntry) bool { return e.Time > ts })
	if i == 0 {
		return x.base
	}
	return x.base + int64(x.times.At(i-1).Rel)
}

// cut drops all but the first n offset entries, and the time entries that came
// after them. Only before readers know of x.
func (x *index) cut(n int) {
	x.offsets.n.Store(int64(n))
	rel := uint32(0)
	if n > 0 {
		rel = x.offsets.At(n - 1).Rel
	}
	t := x.times.search(x.times.Len(), func(e timeEntry) bool { return n == 0 || e.Rel > rel })
	x.times.n.Store(int64(t))
	x.sinceEntry, x.maxTime, x.maxTimeAt = 0, -1, x.base
	if t > 0 {
		e := x.times.At(t - 1)
		x.maxTime, x.maxTimeAt = e.Time, x.base+int64(e.Rel)
	}
}
