package tiering

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// limiter lets so many bytes a second through, for all uploads together
// (remote.log.manager.copy.max.bytes.per.second). Who took too much makes the
// next one wait.
type limiter struct {
	mu struct {
		sync.Mutex
		rate int64 // bytes per second; 0 is no limit
		free time.Time
	}
}

func (l *limiter) set(rate int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.rate = rate
}

// wait takes n bytes and returns when they may pass, or with ctx's error.
func (l *limiter) wait(ctx context.Context, n int) error {
	l.mu.Lock()
	if l.mu.rate <= 0 {
		l.mu.Unlock()
		return ctx.Err()
	}
	now := time.Now()
	if l.mu.free.Before(now) {
		l.mu.free = now
	}
	pause := l.mu.free.Sub(now)
	l.mu.free = l.mu.free.Add(time.Duration(float64(n) / float64(l.mu.rate) * float64(time.Second)))
	l.mu.Unlock()
	if pause <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// body is the bytes of one upload: slowed down to the limit, and watched. It
// holds a ctx because io.ReaderAt has no place for it and it lives as long as
// one call.
type body struct {
	ctx   context.Context
	r     io.ReaderAt
	l     *limiter
	stall *time.Timer
}

// stallAfter is how long a store may take nothing of an upload before the
// attempt counts as failed: a request that hangs must not hold a worker.
const stallAfter = time.Minute

var errStalled = errors.New("tiering: the store has taken nothing for a minute")

// watch makes a body whose ctx, which the upload is to use, ends when it stalls.
func (l *limiter) watch(ctx context.Context, r io.ReaderAt) (b *body, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	b = &body{ctx: ctx, r: r, l: l, stall: time.AfterFunc(stallAfter, func() { cancel(errStalled) })}
	return b, func() { b.stall.Stop(); cancel(nil) }
}

func (b *body) ReadAt(p []byte, off int64) (int, error) {
	b.stall.Stop() // waiting for the limit is not the store's fault
	err := b.l.wait(b.ctx, len(p))
	b.stall.Reset(stallAfter)
	if err != nil {
		return 0, err
	}
	return b.r.ReadAt(p, off)
}
