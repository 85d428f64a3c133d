package cache

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	breakAfter = 5 // failures in a row
	breakMin   = time.Second
	breakMax   = 8 * time.Second
)

// breaker leaves a store alone for a while after it has only failed: what would
// fail anyway fails at once. After the pause the next GETs are let through, and
// the first result decides.
type breaker struct {
	jitter func(time.Duration) time.Duration // from [0, d)

	mu    sync.Mutex
	fails int
	pause time.Duration
	until time.Time
	cause error
}

// refused is the error of whatever would be asked now; nil if it may be asked.
func (b *breaker) refused(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Before(b.until) {
		return fmt.Errorf("cache: store is left alone: %w", b.cause)
	}
	return nil
}

// trouble is why the store is or was just left alone; nil once it has answered.
func (b *breaker) trouble() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails < breakAfter {
		return nil
	}
	return b.cause
}

func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails, b.pause, b.until, b.cause = 0, 0, time.Time{}, nil
}

func (b *breaker) failed(now time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause = err
	if b.fails++; b.fails < breakAfter || now.Before(b.until) {
		return
	}
	b.pause = min(max(2*b.pause, breakMin), breakMax)
	b.until = now.Add(b.pause/2 + b.jitter(b.pause/2))
}

// hedge says when an answer is late enough to ask a second time: beyond the
// 95th percentile of the last answers, and for 3 % of the GETs at most.
type hedge struct {
	mu     sync.Mutex
	last   [128]time.Duration
	n      int
	p95    time.Duration
	tokens float64
}

const (
	hedgeShare = 0.03
	hedgeBurst = 3
	hedgeFloor = 50 * time.Millisecond // below it a second GET costs more than it saves
	hedgeAfter = 32                    // answers, before we know what is late
)

// note notes how long an answer took.
func (h *hedge) note(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last[h.n%len(h.last)] = d
	h.n++
	h.tokens = min(h.tokens+hedgeShare, hedgeBurst)
	if h.n >= hedgeAfter && h.n%16 == 0 {
		s := slices.Clone(h.last[:min(h.n, len(h.last))])
		slices.Sort(s)
		h.p95 = max(s[len(s)*95/100], hedgeFloor)
	}
}

// delay is how long to wait for an answer; false while there is nothing to go by.
func (h *hedge) delay() (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.p95, h.p95 > 0 && h.tokens >= 1
}

// spend pays for a second GET; false if there have been enough.
func (h *hedge) spend() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tokens < 1 {
		return false
	}
	h.tokens--
	return true
}
