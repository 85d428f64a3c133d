package replication

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Unthrottled is the rate that bounds nothing.
const Unthrottled = math.MaxInt64

// Throttle bounds what replication moves, in bytes a second: a bucket that fills
// at the rate and holds a second's worth. What is moved may exceed what is in it;
// then it has to fill up again first. The zero value bounds nothing. It is safe
// for concurrent use.
type Throttle struct {
	rate atomic.Int64 // 0: as Unthrottled
	mu   sync.Mutex
	left float64 // bytes; below 0 what was moved too much
	at   time.Time
}

// SetRate changes the rate: Unthrottled, or at least 0, at which nothing moves.
func (t *Throttle) SetRate(bytesPerSecond int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bytesPerSecond == Unthrottled {
		bytesPerSecond = 0
	} else if bytesPerSecond == 0 {
		bytesPerSecond = -1
	}
	if t.rate.Swap(bytesPerSecond) != bytesPerSecond {
		t.left, t.at = 0, time.Time{}
	}
}

// Open says whether anything may be moved now.
func (t *Throttle) Open(now time.Time) bool {
	rate := t.rate.Load()
	if rate == 0 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fill(now, rate)
	return t.left > 0
}

// Moved says that n bytes were.
func (t *Throttle) Moved(now time.Time, n int) {
	rate := t.rate.Load()
	if rate == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fill(now, rate)
	t.left -= float64(n)
}

// Wait is how long until more may be moved, if nothing is until then; 0 if it may now.
func (t *Throttle) Wait(now time.Time) time.Duration {
	rate := t.rate.Load()
	if rate == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fill(now, rate)
	switch {
	case t.left > 0:
		return 0
	case rate < 0:
		return time.Second // who waits looks again for another rate
	}
	return time.Duration((1-t.left)/float64(rate)*float64(time.Second)) + 1
}

func (t *Throttle) fill(now time.Time, rate int64) {
	if rate < 0 {
		t.left, t.at = 0, now
		return
	}
	full := float64(rate)
	if t.at.IsZero() {
		t.left, t.at = full, now
		return
	}
	if d := now.Sub(t.at); d > 0 {
		t.left, t.at = min(t.left+d.Seconds()*full, full), now
	}
}
