package replication

import (
	"sync"
	"sync/atomic"

	"firn/segment"
)

// Waiter waits on partitions: a fetch for records, a produce for its commits.
// It belongs to one goroutine at a time and is made to be used again: once it
// has grown to its number of partitions, waiting allocates nothing, and no
// goroutine stands behind it.
//
//	w.Reset(minBytes)
//	for … { w.Add(p, offset, until) }   // first register,
//	…look whether it is there already…  // then look,
//	select { case <-w.C(): …look again… }
//	w.Reset(0)                          // when done
//
// A wake-up is a hint: look again.
type Waiter struct {
	c chan struct{}
	// missing is how many bytes must still become visible before a wake-up.
	missing atomic.Int64
	entries []*waitEntry // the first n are registered
	n       int
}

// waitEntry is one waiter on one partition.
type waitEntry struct {
	w *Waiter
	p *Partition
	// at is the entry's place in the partition's list.
	at int

	// past: it waits until the position that until names is above.
	past  int64
	until segment.Until
	// seen is the partition's count of bytes up to where w has been told.
	seen int64
	// eager: any advance wakes, since its bytes can't be told.
	eager bool
}

// waitList is who waits on a partition.
type waitList struct {
	n     atomic.Int32 // len(list), for a look without the lock
	bytes atomic.Int64 // appended so far by this leader
	mu    sync.Mutex
	list  []*waitEntry
}

// NewWaiter makes a Waiter.
func NewWaiter() *Waiter { return &Waiter{c: make(chan struct{}, 1)} }

// C gets a value when it pays to look again.
func (w *Waiter) C() <-chan struct{} { return w.c }

// Reset takes the waiter off all partitions and forgets a wake-up that came
// before. It is then ready for a wait that is over when minBytes more have become
// visible, all partitions together; 0 and 1 mean any.
func (w *Waiter) Reset(minBytes int64) {
	for _, e := range w.entries[:w.n] {
		e.p.waiting.remove(e)
		e.p = nil
	}
	w.n = 0
	select {
	case <-w.c:
	default:
	}
	w.missing.Store(minBytes)
}

// Add waits on p, too, until what until names lies above offset past: with the
// offset of a fetch, until there is something to read; with the last offset of
// an append and UntilHighWatermark, until that is committed. A change of who
// leads or is in sync, or of the log start past it, wakes as well.
func (w *Waiter) Add(p *Partition, past int64, until segment.Until) {
	if w.n == len(w.entries) {
		w.entries = append(w.entries, &waitEntry{w: w})
	}
	e := w.entries[w.n]
	w.n++
	e.p, e.past, e.until = p, past, until
	p.waiting.add(e)
}

// wake sends without blocking: one value in the channel is enough.
func (w *Waiter) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

func (l *waitList) add(e *waitEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.at = len(l.list)
	l.list = append(l.list, e)
	l.n.Store(int32(len(l.list)))
	// Bytes are counted as they are appended. Where some are appended but not
	// visible yet, the next advance shows more than what is counted from here
	// on: then any advance wakes.
	o := e.p.log.Offsets()
	e.eager = e.w.missing.Load() <= 1 || o.Bound(e.until) < o.End
	e.seen = l.bytes.Load()
}

func (l *waitList) remove(e *waitEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.list) - 1
	l.list[e.at] = l.list[last]
	l.list[e.at].at = e.at
	l.list[last] = nil
	l.list = l.list[:last]
	l.n.Store(int32(last))
}

// wake tells those whose wait is over, after positions have moved. Without
// waiters it costs one load.
func (p *Partition) wake() {
	l := &p.waiting
	if l.n.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o := p.log.Offsets()
	for _, e := range l.list {
		if e.past < o.LogStart || e.past < o.Bound(e.until) && e.reached(l.bytes.Load()) {
			e.w.wake()
		}
	}
}

// reached credits the waiter with the bytes since it was last told, and says
// whether its minimum has been reached. It may credit bytes that aren't visible
// yet, never too few: waking early costs a look, waking late a client's wait.
func (e *waitEntry) reached(bytes int64) bool {
	if e.eager {
		return true
	}
	more := bytes - e.seen
	e.seen = bytes
	return e.w.missing.Add(-more) <= 0
}

// wakeAll tells everybody, whatever they wait for.
func (p *Partition) wakeAll() {
	l := &p.waiting
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.list {
		e.w.wake()
	}
}

// Waiters is how many wait on p now.
func (p *Partition) Waiters() int { return int(p.waiting.n.Load()) }
