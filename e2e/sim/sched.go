package main

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"
)

// sched is the order in which things happen. Whatever would take time in a
// cluster (a request on its way, a timer of a fault) is an event here; one event
// at a time is let go, and the next only when every goroutine of the bubble waits
// again. What goroutines ask for at the same moment is sorted before anything is
// drawn for it, so that the outcome hangs on the seed alone.
//
// Production code uses package time; in the bubble that is the same virtual clock.
type sched struct {
	rng   *rand.Rand // the loop's alone
	trace *trace
	began time.Time
	seq   int
	queue events

	mu struct {
		sync.Mutex
		arrived []*event
		stopped bool
	}
}

// event is something that will happen.
type event struct {
	// key tells it apart from all that arrives in the same step.
	key string
	// delay draws how long it takes; it is called once, by the loop.
	delay func(*rand.Rand) time.Duration
	// held: it waits for a machine to go on.
	held func() bool
	// fire makes it happen. It must not block.
	fire func()

	at  time.Time
	seq int
	// gone: nobody waits for it any more.
	gone atomic.Bool
}

var errStopped = errors.New("sim: the run is over")

func newSched(seed uint64, t *trace) *sched {
	return &sched{rng: rand.New(rand.NewPCG(seed, 0x6669726e)), trace: t, began: time.Now()}
}

// post has an event happen.
func (s *sched) post(e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.stopped {
		s.mu.arrived = append(s.mu.arrived, e)
	}
}

// after runs f once a delay is over.
func (s *sched) after(key string, d time.Duration, f func()) {
	s.post(&event{key: key, delay: exactly(d), fire: f})
}

// wait blocks until an event has happened, or ctx ends.
func (s *sched) wait(ctx context.Context, key string, held func() bool, delay func(*rand.Rand) time.Duration) error {
	done := make(chan struct{})
	s.mu.Lock()
	if s.mu.stopped {
		s.mu.Unlock()
		return errStopped
	}
	e := &event{key: key, delay: delay, held: held, fire: func() { close(done) }}
	s.mu.arrived = append(s.mu.arrived, e)
	s.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		e.gone.Store(true)
		return context.Cause(ctx)
	}
}

func exactly(d time.Duration) func(*rand.Rand) time.Duration {
	return func(*rand.Rand) time.Duration { return d }
}

// between draws evenly from [lo, hi).
func between(lo, hi time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration { return lo + time.Duration(r.Int64N(int64(hi-lo))) }
}

// admit takes in what has arrived since the last step.
func (s *sched) admit() {
	s.mu.Lock()
	arrived := s.mu.arrived
	s.mu.arrived = nil
	s.mu.Unlock()
	slices.SortStableFunc(arrived, func(a, b *event) int { return strings.Compare(a.key, b.key) })
	for _, e := range arrived {
		s.seq++
		e.seq, e.at = s.seq, time.Now().Add(e.delay(s.rng))
		heap.Push(&s.queue, e)
	}
}

// next takes the earliest event that nothing holds back; nil if there is none.
func (s *sched) next() *event {
	var held []*event
	var found *event
	for s.queue.Len() > 0 && found == nil {
		e := heap.Pop(&s.queue).(*event)
		if e.gone.Load() {
			continue
		}
		if e.held != nil && e.held() {
			held = append(held, e)
			continue
		}
		found = e
	}
	for _, e := range held {
		heap.Push(&s.queue, e)
	}
	return found
}

// run lets events happen until until says so. check runs between them, while
// everything stands still.
func (s *sched) run(until func() bool, check func()) {
	for {
		synctest.Wait()
		s.admit()
		s.trace.settle()
		check()
		if until() {
			return
		}
		e := s.next()
		if e == nil {
			time.Sleep(time.Millisecond) // only production timers are left
			continue
		}
		if d := time.Until(e.at); d > 0 {
			time.Sleep(d)
			synctest.Wait()
			// Timers that fired on the way may have asked for something earlier.
			s.mu.Lock()
			more := len(s.mu.arrived) > 0
			s.mu.Unlock()
			if more {
				heap.Push(&s.queue, e)
				continue
			}
		}
		s.trace.step(time.Since(s.began), e.key)
		e.fire()
	}
}

// stop ends all waits from now on with errStopped.
func (s *sched) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stopped = true
	for _, e := range s.mu.arrived {
		e.fire = func() {}
	}
}

// events is a heap by time, then by order of arrival.
type events []*event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	if c := q[i].at.Compare(q[j].at); c != 0 {
		return c < 0
	}
	return q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(*event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// drain forgets a hint that came while its receiver was about to look anyway.
func drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// hint leaves a hint, if none is there.
func hint(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// actorKey is the key of the actor's name in a context.
type actorKey struct{}

// as names who acts in ctx, so that requests of one process can be told apart
// that it makes at the same moment.
func as(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, " "+actor)
}

// actor is who acts in ctx, with a space before it; empty if nobody says.
func actor(ctx context.Context) string {
	name, _ := ctx.Value(actorKey{}).(string)
	return name
}
