package tiering

import (
	"container/list"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"sync"
	"time"

	"firn/segment"
	"firn/tiering/cache"
)

// coldIndex is what stays in memory of an .idx: enough to find a block, and to
// know that it is the right one.
type coldIndex struct {
	cache.Object // the segment's bytes
	fileBase     int64
	end          int64
	// marks are where batches begin, one for each coldMarkBytes: a batch begins at
	// pos, and no earlier batch holds at or what comes after.
	marks []coldMark
	// exact: a mark's at is the first offset of its batch. Of an .idx of version 1
	// it is the last one, from the offset index.
	exact bool
	// times are the time index, thinned alike: no record before offset at has a
	// timestamp above ts.
	times []coldTime
	// aborted are the aborted transactions whose marker is in the segment.
	aborted []coldAborted
	// openTxn is the first offset of the oldest transaction that is open where
	// the segment ends: all before it is decided. MaxInt64 if there is none.
	openTxn int64
}

type coldMark struct{ at, pos int64 }

type coldTime struct{ ts, at int64 }

type coldAborted struct {
	producer    int64
	first, last int64
	// stable is the last stable offset that the marker made: what is aborted
	// after it begins there or later.
	stable int64
}

const (
	coldMarkBytes = 64 << 10
	// coldBackoff is how long the answer to a failed fetch is its error; then
	// asking starts another one.
	coldBackoff = 500 * time.Millisecond
)

func newColdIndex(part Partition, e *Entry, x *Index) (*coldIndex, error) {
	ix := &coldIndex{
		Object:   cache.Object{Key: e.LogKey(part), Off: e.Offset, Size: x.Size, Sums: x.Blocks, Units: x.Units},
		fileBase: x.FileBase, end: x.End, exact: len(x.Starts) > 0,
	}
	if err := ix.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	ix.marks = append(ix.marks, coldMark{x.FileBase, 0})
	if ix.exact {
		for _, s := range x.Starts {
			ix.mark(coldMark{s.Offset, s.Pos})
		}
	} else {
		for b := x.OffsetIndex; len(b) >= offsetEntry; b = b[offsetEntry:] {
			ix.mark(coldMark{x.FileBase + int64(int32(binary.BigEndian.Uint32(b))), int64(int32(binary.BigEndian.Uint32(b[4:])))})
		}
	}
	thinned := make([]int64, len(ix.marks)) // the offsets of the marks, for the time index
	for i, m := range ix.marks {
		thinned[i] = m.at
	}
	k := 0
	for b := x.TimeIndex; len(b) >= timeEntry; b = b[timeEntry:] {
		t := coldTime{int64(binary.BigEndian.Uint64(b)), x.FileBase + int64(int32(binary.BigEndian.Uint32(b[8:])))}
		if n := len(ix.times); n > 0 && (t.ts < ix.times[n-1].ts || t.at < ix.times[n-1].at) {
			break
		}
		for k < len(thinned) && thinned[k] < t.at {
			k++
		}
		// Of the entries between two marks the last one is kept: it starts a
		// search closest to what is looked for.
		if n := len(ix.times); n > 0 && sameMark(thinned, k, ix.times[n-1].at) {
			ix.times[n-1] = t
			continue
		}
		ix.times = append(ix.times, t)
	}
	for b := x.TxnIndex; len(b) >= txnEntry; b = b[txnEntry:] {
		field := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[2+8*i:])) }
		ix.aborted = append(ix.aborted, coldAborted{field(0), field(1), field(2), field(3)})
	}
	ix.openTxn = oldestOpenTxn(x.Producers)
	return ix, nil
}

// mark adds a mark that is far enough from the last one. One that can't be true
// is left out: a damaged index costs time, never data (S2).
func (ix *coldIndex) mark(m coldMark) {
	last := ix.marks[len(ix.marks)-1]
	if m.at >= last.at && m.pos >= last.pos+coldMarkBytes && m.pos < ix.Size {
		ix.marks = append(ix.marks, m)
	}
}

// sameMark tells whether offset at lies between the marks k-1 and k.
func sameMark(marks []int64, k int, at int64) bool {
	return k > 0 && at > marks[k-1]
}

// The layout of Kafka's producer snapshot, as far as it matters here.
const (
	snapshotHeader = 2 + 4 + 4
	snapshotEntry  = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

// oldestOpenTxn is the first offset of the oldest open transaction in a producer
// snapshot. What can't be read counts as open from the beginning: then a reader
// looks further than it must.
func oldestOpenTxn(b []byte) int64 {
	oldest := int64(math.MaxInt64)
	if len(b) == 0 {
		return oldest
	}
	if len(b) < snapshotHeader || (len(b)-snapshotHeader)%snapshotEntry != 0 {
		return 0
	}
	for b = b[snapshotHeader:]; len(b) > 0; b = b[snapshotEntry:] {
		if first := int64(binary.BigEndian.Uint64(b[snapshotEntry-8:])); first >= 0 {
			oldest = min(oldest, first)
		}
	}
	return oldest
}

// position is where a batch begins that is the one that holds offset, or one not
// far before it.
func (ix *coldIndex) position(offset int64) int64 {
	i := sort.Search(len(ix.marks), func(i int) bool { return ix.marks[i].at > offset })
	return ix.marks[max(0, i-1)].pos
}

// reach is where the batch that holds offset ends at the latest, as far as the
// marks tell: where the first mark behind it begins. Where a mark's offset is the
// last one of the batch at its position, that batch may be the one: then it is the
// mark after that.
func (ix *coldIndex) reach(offset int64) int64 {
	i := sort.Search(len(ix.marks), func(i int) bool { return ix.marks[i].at > offset })
	if !ix.exact {
		i++
	}
	if i < len(ix.marks) {
		return ix.marks[i].pos
	}
	return ix.Size
}

// timeFloor is an offset before which no record has a timestamp of ts or more.
func (ix *coldIndex) timeFloor(ts int64) int64 {
	i := sort.Search(len(ix.times), func(i int) bool { return ix.times[i].ts >= ts })
	if i == 0 {
		return ix.fileBase
	}
	return ix.times[i-1].at
}

// timeCeiling is an offset at or before which there is a record of ts or more, if
// the segment has one; its end if the index doesn't say.
func (ix *coldIndex) timeCeiling(ts int64) int64 {
	i := sort.Search(len(ix.times), func(i int) bool { return ix.times[i].ts >= ts })
	if i == len(ix.times) {
		return ix.end
	}
	return ix.times[i].at
}

// addAborted adds the aborted transactions that overlap [first, below).
func (ix *coldIndex) addAborted(dst []segment.AbortedTxn, first, below int64) []segment.AbortedTxn {
	for _, a := range ix.aborted {
		if a.last >= first && a.first < below {
			dst = append(dst, segment.AbortedTxn{ProducerID: a.producer, First: a.first})
		}
	}
	return dst
}

// bytes is what the index takes in memory, about.
func (ix *coldIndex) bytes() int64 {
	return int64(256 + len(ix.Key) + 16*len(ix.marks) + 16*len(ix.times) + 32*len(ix.aborted) + 4*len(ix.Sums) + 4*len(ix.Units))
}

// coldIndexes keeps indexes: each is fetched once, whoever asks, and outlives
// who asked; the least recently used go.
type coldIndexes struct {
	ctx context.Context // of the fetches; no request's
	wg  *sync.WaitGroup
	get *cache.Getter
	max int64

	mu struct {
		sync.Mutex
		bytes int64
		byKey map[string]*coldIndexEntry
		lru   list.List // of *coldIndexEntry with an index
	}
}

type coldIndexEntry struct {
	key    string
	ix     *coldIndex
	done   chan struct{} // closed when the fetch is over
	err    error
	failed time.Time
	el     *list.Element
}

func newColdIndexes(ctx context.Context, wg *sync.WaitGroup, get *cache.Getter, max int64) *coldIndexes {
	x := &coldIndexes{ctx: ctx, wg: wg, get: get, max: max}
	x.mu.byKey = make(map[string]*coldIndexEntry)
	return x
}

// index returns the index of e, or what is pending.
func (x *coldIndexes) index(part Partition, e *Entry) (*coldIndex, <-chan struct{}, error) {
	key := e.IndexKey(part)
	x.mu.Lock()
	defer x.mu.Unlock()
	if have := x.mu.byKey[key]; have != nil {
		switch {
		case have.ix != nil:
			x.mu.lru.MoveToFront(have.el)
			return have.ix, nil, nil
		case have.err == nil:
			return nil, have.done, nil
		case time.Since(have.failed) < coldBackoff:
			return nil, nil, have.err
		}
	}
	if x.ctx.Err() != nil {
		return nil, nil, fmt.Errorf("%w: closed", ErrUnavailable)
	}
	load, entry := &coldIndexEntry{key: key, done: make(chan struct{})}, *e
	x.mu.byKey[key] = load
	x.wg.Go(func() {
		ix, err := x.fetch(part, &entry)
		x.mu.Lock()
		defer x.mu.Unlock()
		defer close(load.done)
		if err != nil {
			load.err, load.failed = err, time.Now()
			return
		}
		load.ix = ix
		load.el = x.mu.lru.PushFront(load)
		x.mu.bytes += ix.bytes()
		x.evictLocked()
	})
	return nil, load.done, nil
}

func (x *coldIndexes) fetch(part Partition, e *Entry) (*coldIndex, error) {
	key := e.IndexKey(part)
	if e.IdxSize <= 0 || e.IdxSize > maxIndexSize {
		return nil, fmt.Errorf("%w: %s of %d bytes", ErrCorrupt, key, e.IdxSize)
	}
	b, err := x.get.Read(x.ctx, key, 0, e.IdxSize, e.IdxCRC)
	if err != nil {
		return nil, err
	}
	full, err := DecodeIndex(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if err := full.Check(part, e); err != nil {
		return nil, err
	}
	return newColdIndex(part, e, full)
}

// evictLocked keeps the newest index whatever its size, and of the others what fits.
func (x *coldIndexes) evictLocked() {
	for x.mu.bytes > x.max && x.mu.lru.Len() > 1 {
		last := x.mu.lru.Remove(x.mu.lru.Back()).(*coldIndexEntry)
		x.mu.bytes -= last.ix.bytes()
		delete(x.mu.byKey, last.key)
	}
	if len(x.mu.byKey) > x.mu.lru.Len()+1024 { // failures that nobody asks about
		for key, e := range x.mu.byKey {
			if e.err != nil && time.Since(e.failed) > coldBackoff {
				delete(x.mu.byKey, key)
			}
		}
	}
}

// forget drops the index of e, or its failure, so that the next one who asks
// fetches it again.
func (x *coldIndexes) forget(part Partition, e *Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	have := x.mu.byKey[e.IndexKey(part)]
	if have == nil || have.ix == nil && have.err == nil {
		return
	}
	if have.ix != nil {
		x.mu.bytes -= have.ix.bytes()
		x.mu.lru.Remove(have.el)
	}
	delete(x.mu.byKey, have.key)
}
