package broker

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// timers wakes groups when something is due: one goroutine for all of them. A
// group's entry may be early, never late: heartbeats, which only put deadlines
// off, don't touch it.
type timers struct {
	now  func() time.Time
	wake chan struct{}
	mu   struct {
		sync.Mutex
		heap timerHeap
	}
}

// timer is a group's entry: when, and where in the heap; at -1 it has none.
type timer struct {
	when time.Time
	at   int
}

func (t *timers) init(now func() time.Time) {
	t.now, t.wake = now, make(chan struct{}, 1)
}

// schedule takes a group's next deadline.
func (t *timers) schedule(h *hosted) {
	when, ok := h.NextDeadline()
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case h.timer.at < 0:
		h.timer.when = when
		heap.Push(&t.mu.heap, h)
	case when.Before(h.timer.when):
		h.timer.when = when
		heap.Fix(&t.mu.heap, h.timer.at)
	default:
		return
	}
	if t.mu.heap[0] == h {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// drop takes a group out.
func (t *timers) drop(h *hosted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.timer.at >= 0 {
		heap.Remove(&t.mu.heap, h.timer.at)
	}
}

// due takes out the groups whose time has come, and says how long until the next.
func (t *timers) due() (groups []*hosted, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for len(t.mu.heap) > 0 {
		h := t.mu.heap[0]
		if h.timer.when.After(now) {
			return groups, h.timer.when.Sub(now)
		}
		heap.Pop(&t.mu.heap)
		groups = append(groups, h)
	}
	return groups, time.Hour
}

func (t *timers) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		groups, next := t.due()
		for _, h := range groups {
			h.shard.tick(h)
		}
		if len(groups) > 0 {
			continue // they have new deadlines
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-t.wake:
		case <-ctx.Done():
			return
		}
	}
}

// tick does what is due in a group.
func (s *shard) tick(h *hosted) {
	if s.enter() != nil {
		return
	}
	defer s.mu.Unlock()
	if s.mu.groups[h.Name()] == h {
		s.carryOutLocked(h, h.Tick(s.c.now()))
	}
}

// timerHeap is a heap by when.
type timerHeap []*hosted

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].timer.when.Before(h[j].timer.when) }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer.at, h[j].timer.at = i, j
}

// Push is heap's.
func (h *timerHeap) Push(x any) {
	e := x.(*hosted)
	e.timer.at = len(*h)
	*h = append(*h, e)
}

// Pop is heap's.
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.timer.at = -1
	return e
}
