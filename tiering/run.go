package tiering

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// queue is the logs that have something to upload, each at most once.
type queue struct {
	mu struct {
		sync.Mutex
		logs   []*Log
		queued map[*Log]bool
	}
	ready chan struct{} // has a value when logs isn't empty
}

func (q *queue) push(l *Log) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.queued[l] {
		return
	}
	if q.mu.queued == nil {
		q.mu.queued = map[*Log]bool{}
	}
	q.mu.queued[l] = true
	q.mu.logs = append(q.mu.logs, l)
	q.signalLocked()
}

func (q *queue) signalLocked() {
	if len(q.mu.logs) > 0 {
		select {
		case q.ready <- struct{}{}:
		default:
		}
	}
}

// pop waits for a log; nil when ctx ends.
func (q *queue) pop(ctx context.Context) *Log {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.ready:
		}
		q.mu.Lock()
		if len(q.mu.logs) > 0 {
			l := q.mu.logs[0]
			q.mu.logs[0] = nil
			q.mu.logs = q.mu.logs[1:]
			delete(q.mu.queued, l)
			q.signalLocked()
			q.mu.Unlock()
			return l
		}
		q.mu.Unlock()
	}
}

// wake has the log looked at now.
func (l *Log) wake() { l.a.queue.push(l) }

// wants reports whether a step might find something to do. It looks at memory only.
func (l *Log) wants(now time.Time) bool {
	ld := l.lead.Load()
	if ld == nil {
		return false
	}
	ld.mu.Lock()
	failed, wait := ld.mu.lastErr != nil, now.Before(ld.mu.retryAt)
	ld.mu.Unlock()
	if wait {
		return false
	}
	if n, _ := ld.waiting(); n > 0 {
		return true
	}
	policy := l.policy.Load()
	if !policy.copies() {
		return failed
	}
	a, end := l.local.ActiveInfo(), l.uploadedEnd(ld)
	l.began.note(a.Base, a.FirstAppend, end)
	// A failure is told until a step succeeds: one is due though nothing is pending.
	return failed || a.Base > end || a.Bytes > 0 && policy.rollDue(l.age(a.FirstAppend, now), a.Bytes, l.jitter)
}

// Run makes the archive work until ctx ends: workers that upload, one loop for
// retention, deletion and sweeps, one for the local disk, so that none waits for
// the others. What panics is reported and tried again.
func (a *Archive) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range a.cfg.Workers {
		wg.Go(func() { a.uploads(ctx) })
	}
	wg.Go(func() { a.every(ctx, a.cfg.Tick, a.enqueue) })
	wg.Go(func() { a.every(ctx, a.cfg.KeepEvery, a.keep) })
	wg.Go(func() { a.every(ctx, a.cfg.KeepEvery, a.evict) })
	if a.cfg.Shortage != nil {
		var f freed
		wg.Go(func() { a.every(ctx, a.cfg.Tick, func(ctx context.Context) { a.relieve(ctx, &f) }) })
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (a *Archive) every(ctx context.Context, d time.Duration, f func(context.Context)) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f(ctx)
		}
	}
}

func (a *Archive) enqueue(context.Context) {
	now := a.cfg.Now()
	for _, l := range a.logs() {
		if l.Err() == nil && l.wants(now) {
			a.queue.push(l)
		}
	}
}

// stepsInARow bounds what one partition gets done before others have their turn.
const stepsInARow = 4

// uploads is one worker.
func (a *Archive) uploads(ctx context.Context) {
	for {
		l := a.queue.pop(ctx)
		if l == nil {
			return
		}
		for n := 1; ; n++ {
			more, err := a.guardStep(ctx, l)
			if err != nil || !more {
				break
			}
			if n == stepsInARow {
				a.queue.push(l)
				break
			}
		}
	}
}

func (a *Archive) guardStep(ctx context.Context, l *Log) (more bool, err error) {
	err = a.guard(l, "upload", func() (err error) {
		more, err = l.Step(ctx, a.cfg.Now())
		return err
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
	default:
		a.metrics.uploads.WithLabelValues("failed").Inc()
		a.complain(l, err)
	}
	return more, err
}

// guard runs f, and turns a panic into an error: one broken partition must not
// end the uploads of all others.
func (a *Archive) guard(l *Log, doing string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			a.metrics.panics.Inc()
			a.log.Error("panic in the archive; it is tried again", "topic", l.part.Topic, "partition", l.part.Num,
				"doing", doing, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
			if ld := l.lead.Load(); ld != nil {
				ld.note("", err, a.cfg.Now(), l.jitter)
			}
		}
	}()
	return f()
}

// complaints spaces out the log lines of failed uploads: with the store away
// every partition fails.
type complaints struct {
	mu struct {
		sync.Mutex
		next time.Time
		held int
	}
}

const complainEvery = 10 * time.Second

func (a *Archive) complain(l *Log, err error) {
	now := a.cfg.Now()
	a.complaints.mu.Lock()
	if now.Before(a.complaints.mu.next) {
		a.complaints.mu.held++
		a.complaints.mu.Unlock()
		return
	}
	held := a.complaints.mu.held
	a.complaints.mu.next, a.complaints.mu.held = now.Add(complainEvery), 0
	a.complaints.mu.Unlock()
	a.log.Warn("upload failed; it is tried again", "topic", l.part.Topic, "partition", l.part.Num, "err", err, "others_before", held)
}

// keep applies retention and deletes what is due in the archive, partition by
// partition; sweeps take turns.
func (a *Archive) keep(ctx context.Context) {
	_ = a.Owner(ctx) // says it once; an unreachable store shows below
	away := false
	for _, l := range a.logs() {
		now := a.cfg.Now()
		if l.Err() != nil || away && l.view.Load().ptr.Exists() {
			continue // failed, and said so; or it would only wait for the same store
		}
		err := a.guard(l, "retention", func() error { return l.Keep(ctx, now) })
		if err == nil && l.sweepDue(now) {
			err = a.guard(l, "sweep", func() error { _, err := l.Sweep(ctx, now); return err })
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, ErrFenced) {
			a.log.Warn("the archive can't be kept in order; it is tried again", "topic", l.part.Topic, "partition", l.part.Num, "err", err)
		}
		away = away || errors.Is(err, ErrUnavailable)
	}
}

// sweepDue reports, once in SweepEvery, that the partition is to be swept.
func (l *Log) sweepDue(now time.Time) bool {
	ld := l.lead.Load()
	if ld == nil {
		return false
	}
	every := l.a.cfg.SweepEvery
	if ld.nextSweep.IsZero() { // soon after the election, when the dead leader's objects may be young
		ld.nextSweep = now.Add(l.a.cfg.DeleteGrace + time.Duration(l.jitter*float64(every)*0.1))
	}
	if now.Before(ld.nextSweep) {
		return false
	}
	ld.nextSweep = now.Add(every)
	return true
}

func (a *Archive) evict(ctx context.Context) {
	for _, l := range a.logs() {
		if l.Err() != nil {
			continue
		}
		err := a.guard(l, "local retention", func() error { return l.Evict(ctx, a.cfg.Now()) })
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			a.log.Warn("archived local segments can't be deleted; it is tried again", "topic", l.part.Topic, "partition", l.part.Num, "err", err)
		}
	}
}

// freed is what was freed lately for a disk that is short: the file system shows
// it only when the deletion delay of the files is over.
type freed struct {
	bytes int64
	until time.Time
}

// freedCounts is how long freed bytes count as on their way; longer than
// file.delete.delay.ms, which is 60 s.
const freedCounts = 90 * time.Second

// relieve frees what the disk is short of.
func (a *Archive) relieve(ctx context.Context, f *freed) {
	now := a.cfg.Now()
	if now.After(f.until) {
		f.bytes = 0
	}
	short := a.cfg.Shortage() - f.bytes
	if short <= 0 {
		return
	}
	n, err := a.FreeLocal(ctx, short)
	if err != nil || n == 0 {
		return
	}
	if f.bytes == 0 {
		f.until = now.Add(freedCounts)
	}
	f.bytes += n
	a.log.Warn("the disk is short: archived local segments were deleted early", "bytes", n, "short_of", short)
}
