package tiering

import (
	"context"
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
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// limited is the body of one upload, slowed down to the limit. It holds a ctx
// because io.ReaderAt has no place for it and it lives as long as one call.
type limited struct {
	ctx context.Context
	r   io.ReaderAt
	l   *limiter
}

func (b *limited) ReadAt(p []byte, off int64) (int, error) {
	if err := b.l.wait(b.ctx, len(p)); err != nil {
		return 0, err
	}
	return b.r.ReadAt(p, off)
}
