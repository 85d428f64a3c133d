package broker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/broker/wire"
	"firn/replication"
	"firn/segment"
)

// Bounds of a connection's queue of acks. When one is reached the connection
// isn't read until the oldest ack has left.
const (
	maxAcks     = 512
	maxAckBytes = 1 << 20
)

// ackQueue holds, in order, the answers to Produce requests that must wait: for
// replicas, or for a flush that is due (S6). The reader goes on meanwhile, which is
// what makes group commit pay. Once one answer waits, those after it stand behind
// it, and a responder goroutine writes them; it ends when the queue is empty, and
// while there is one, the reader writes nothing.
type ackQueue struct {
	c       *conn
	active  atomic.Bool   // there is a responder; set by the reader, cleared by the responder
	changed chan struct{} // something left the queue
	done    sync.WaitGroup

	mu struct {
		sync.Mutex
		entries []*ackEntry
		bytes   int
		free    []*ackEntry
		err     error // what ended the responder
	}

	// Of the responder.
	waiter *replication.Waiter
	out    []byte
}

// ackEntry is an answer, complete but for what its waits may make of it.
type ackEntry struct {
	c        *conn
	version  int16 // of the request
	out      []byte
	size     int         // of out when it was queued
	nodes    []wire.Node // that out tells
	waits    []ackWait
	deadline time.Time
}

// ackWait is an append that isn't acknowledged yet.
type ackWait struct {
	p    *replication.Partition
	a    replication.Appended
	all  bool // acks=all, else 1
	at   int  // of its code in the answer
	over bool
}

func (q *ackQueue) init(c *conn) {
	q.c = c
	q.changed = make(chan struct{}, 1)
}

// entry is an empty entry.
func (q *ackQueue) entry() *ackEntry {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k := len(q.mu.free); k > 0 {
		e := q.mu.free[k-1]
		q.mu.free = q.mu.free[:k-1]
		return e
	}
	return &ackEntry{c: q.c}
}

// push queues e, after it has waited for its place if need be. Only the reader pushes.
func (q *ackQueue) push(ctx context.Context, e *ackEntry) error {
	err := q.await(ctx, func() bool { return len(q.mu.entries) < maxAcks && q.mu.bytes < maxAckBytes })
	if err != nil {
		return err
	}
	q.mu.Lock()
	q.mu.entries = append(q.mu.entries, e)
	e.size = len(e.out)
	q.mu.bytes += e.size
	start := !q.active.Load()
	if start {
		q.active.Store(true)
	}
	q.mu.Unlock()
	if start {
		q.done.Go(func() { q.respond(ctx) })
	}
	return nil
}

// drain waits until the queue is empty and written, or ctx ends.
func (q *ackQueue) drain(ctx context.Context) error {
	if !q.active.Load() {
		return nil
	}
	return q.await(ctx, func() bool { return !q.active.Load() })
}

// waiting: acks wait.
func (q *ackQueue) waiting() bool { return q.active.Load() }

// wait waits for the responder to end, once its ctx has.
func (q *ackQueue) wait() { q.done.Wait() }

// await waits until ok, which is called with the lock held.
func (q *ackQueue) await(ctx context.Context, ok func() bool) error {
	for {
		q.mu.Lock()
		err, done := q.mu.err, ok()
		q.mu.Unlock()
		if err != nil || done {
			return err
		}
		select {
		case <-q.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// respond writes answers in order until the queue is empty, or the connection
// or ctx has ended.
func (q *ackQueue) respond(ctx context.Context) {
	if q.waiter == nil {
		q.waiter = replication.NewWaiter()
	}
	var err error
	for err == nil {
		e := q.head()
		if e == nil {
			if err = q.write(); err == nil && q.finish() {
				return
			}
			continue
		}
		if !e.settle() {
			if err = q.write(); err == nil {
				err = e.wait(ctx, q.waiter)
			}
		}
		if err == nil {
			q.out = append(q.out, e.out...)
			q.pop(e)
			if len(q.out) >= heldMax {
				err = q.write()
			}
		}
	}
	q.fail(err)
}

func (q *ackQueue) head() *ackEntry {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.entries) == 0 {
		return nil
	}
	return q.mu.entries[0]
}

// pop takes the head, which is done, off the queue.
func (q *ackQueue) pop(e *ackEntry) {
	q.mu.Lock()
	n := copy(q.mu.entries, q.mu.entries[1:])
	q.mu.entries[n] = nil
	q.mu.entries = q.mu.entries[:n]
	q.mu.bytes -= e.size
	if len(q.mu.free) < 16 && cap(e.out) <= heldMax {
		clear(e.waits)
		e.waits = e.waits[:0]
		q.mu.free = append(q.mu.free, e)
	}
	q.mu.Unlock()
	q.signal()
}

// finish ends the responder if nothing has come meanwhile.
func (q *ackQueue) finish() bool {
	q.mu.Lock()
	empty := len(q.mu.entries) == 0
	if empty {
		if cap(q.out) > 2*heldMax {
			q.out = nil
		}
		q.active.Store(false)
	}
	q.mu.Unlock()
	q.signal()
	return empty
}

// fail ends the responder and the connection.
func (q *ackQueue) fail(err error) {
	q.mu.Lock()
	q.mu.err = err
	q.mu.Unlock()
	_ = q.c.nc.Close()
	q.signal()
}

func (q *ackQueue) signal() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

func (q *ackQueue) write() error {
	if len(q.out) == 0 {
		return nil
	}
	_, err := q.c.nc.Write(q.out)
	q.out = q.out[:0]
	q.c.moved.Add(1)
	return err
}

// settle looks which waits are over and says whether all are.
func (e *ackEntry) settle() bool {
	all := true
	for i := range e.waits {
		w := &e.waits[i]
		if w.over {
			continue
		}
		acked, err := w.acked()
		switch {
		case err != nil:
			w.over = true
			e.fail(i, err)
		case acked:
			w.over = true
		default:
			all = false
		}
	}
	return all
}

// fail has the answer tell err of wait i, and who leads now if that is why (KIP-951).
func (e *ackEntry) fail(i int, err error) {
	w := &e.waits[i]
	code := errorCode(err)
	wire.FailProduce(e.out, w.at, code)
	if code != kerr.NotLeaderForPartition.Code || e.version < 10 {
		return
	}
	// The partition itself knows: it refuses before the picture shows why.
	s := w.p.State()
	if s.Leader.ID < 0 || s.LeaderEpoch <= w.a.Epoch {
		return
	}
	leader := wire.Leader{ID: s.Leader.ID, Epoch: s.LeaderEpoch}
	var moved int
	e.out, moved = wire.TellLeader(e.out, w.at, leader)
	for j := range e.waits {
		if e.waits[j].at > w.at {
			e.waits[j].at += moved
		}
	}
	nodes := e.c.s.b.appendNode(slices.Clone(e.nodes), e.c.listener, leader)
	e.out, e.nodes = wire.TellNodes(e.out, e.nodes, nodes), nodes
}

// acked says whether the append may be acknowledged.
func (w *ackWait) acked() (bool, error) {
	if w.all {
		return w.p.Acked(w.a)
	}
	return w.p.Counted(w.a)
}

// wait waits until all waits of e are over, its time is up, or ctx ends.
func (e *ackEntry) wait(ctx context.Context, w *replication.Waiter) error {
	w.Reset(0)
	defer w.Reset(0)
	for i := range e.waits {
		if a := &e.waits[i]; !a.over {
			until := segment.UntilCounted
			if a.all {
				until = segment.UntilHighWatermark
			}
			w.Add(a.p, a.a.Last, until)
		}
	}
	t := time.NewTimer(time.Until(e.deadline))
	defer t.Stop()
	for !e.settle() {
		select {
		case <-w.C():
		case <-t.C:
			e.expire()
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// expire answers that what still waits took too long.
func (e *ackEntry) expire() {
	for i := range e.waits {
		if w := &e.waits[i]; !w.over {
			w.over = true
			wire.FailProduce(e.out, w.at, kerr.RequestTimedOut.Code)
		}
	}
}
