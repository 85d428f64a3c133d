package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"firn/tiering/objstore"
)

// Getter reads ranges of objects from a store that has moods: it tries again,
// asks twice where an answer is late, gives up on what has stalled, and leaves
// the store alone for a while when it only fails.
type Getter struct {
	store               objstore.Store
	firstByte, perBlock time.Duration
	met                 *metrics
	jitter              func(time.Duration) time.Duration
	breaker             breaker
	hedge               hedge
	small               chan struct{} // slots of Read
	wg                  sync.WaitGroup
}

const (
	retries   = 3 // after the first attempt
	backoff   = 50 * time.Millisecond
	smallGets = 8
)

func newGetter(cfg *Config, met *metrics) *Getter {
	return &Getter{
		store: cfg.Store, firstByte: cfg.FirstByte, perBlock: cfg.PerBlock, met: met,
		jitter: cfg.Jitter, breaker: breaker{jitter: cfg.Jitter},
		small: make(chan struct{}, smallGets),
	}
}

// Read returns n bytes of key from off, of which sum must be the checksum. n is
// believed: the caller has bounded it.
func (g *Getter) Read(ctx context.Context, key string, off, n int64, sum uint32) ([]byte, error) {
	select {
	case g.small <- struct{}{}:
		defer func() { <-g.small }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := g.refused(); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	corrupt := 0
	err := g.try(ctx, func() error {
		body, err := g.open(ctx, key, off, n, true)
		if err != nil {
			return err
		}
		defer body.close()
		if err := body.readFull(b, func(int) bool { return true }); err != nil {
			return err
		}
		if Sum(b) == sum {
			return nil
		}
		g.met.corrupt.Inc()
		if corrupt++; corrupt == 2 {
			return fmt.Errorf("cache: %s: %w", key, ErrCorrupt)
		}
		return fmt.Errorf("cache: %s: wrong checksum: %w", key, ErrUnavailable)
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// try calls f until it succeeds, fails for good, or has failed too often.
func (g *Getter) try(ctx context.Context, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		if err == nil || !errors.Is(err, ErrUnavailable) || n == retries || g.refused() != nil {
			return err
		}
		g.met.retries.Inc()
		d := backoff << n
		select {
		case <-time.After(d/2 + g.jitter(d)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// refused is the error of a store that is being left alone; nil if it is not.
func (g *Getter) refused() error { return g.breaker.refused(time.Now()) }

// judge turns an error of the store into one of ours, and tells the breaker.
func (g *Getter) judge(ctx context.Context, key string, err error) error {
	switch {
	case err == nil:
		g.breaker.succeeded()
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx) // ours, not the store's
	case errors.Is(err, objstore.ErrNotFound):
		g.breaker.succeeded()
		return err
	case errors.Is(err, objstore.ErrRange):
		g.breaker.succeeded() // it delivers: an object that is too short
		return fmt.Errorf("cache: %s: %w: %w", key, ErrCorrupt, err)
	}
	err = fmt.Errorf("cache: get %s: %w: %w", key, ErrUnavailable, err)
	g.breaker.failed(time.Now(), err)
	return err
}

// open starts a GET. An urgent one is asked a second time if the answer is late.
func (g *Getter) open(ctx context.Context, key string, off, n int64, urgent bool) (*body, error) {
	delay, ok := g.hedge.delay()
	if !urgent || !ok {
		b, err := g.once(ctx, key, off, n)
		return b, g.judge(ctx, key, err)
	}
	type answer struct {
		b   *body
		err error
	}
	answers := make(chan answer)
	done := make(chan struct{}) // closed when we have ours
	defer close(done)
	race, cancel := context.WithCancel(ctx)
	ask := func() {
		g.wg.Go(func() {
			// A context of its own: the winner's must outlive the race.
			own, stop := context.WithCancel(ctx)
			lost := context.AfterFunc(race, stop)
			b, err := g.once(own, key, off, n)
			lost()
			if err != nil {
				stop()
			} else {
				b.also(stop)
			}
			select {
			case answers <- answer{b, err}:
			case <-done:
				if err == nil {
					b.close()
				}
			}
		})
	}
	defer cancel()
	ask()
	asked, late := 1, time.NewTimer(delay)
	defer late.Stop()
	var last error
	for range 2 {
		select {
		case a := <-answers:
			if a.err == nil {
				return a.b, g.judge(ctx, key, nil)
			}
			last = a.err
			if asked--; asked == 0 {
				return nil, g.judge(ctx, key, last)
			}
		case <-late.C:
			if g.hedge.spend() {
				g.met.hedges.Inc()
				ask()
				asked++
			}
		}
	}
	a := <-answers
	if a.err != nil {
		return nil, g.judge(ctx, key, a.err)
	}
	return a.b, g.judge(ctx, key, nil)
}

// once is one GET, up to the store's answer.
func (g *Getter) once(ctx context.Context, key string, off, n int64) (*body, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(g.firstByte, func() { cancel(errLate) })
	start := time.Now()
	rc, err := g.store.GetRange(ctx, key, off, n)
	late.Stop()
	g.met.got(err)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	g.hedge.note(time.Since(start))
	return &body{g: g, rc: rc, key: key, ctx: ctx, cancel: cancel}, nil
}

var (
	errLate  = errors.New("cache: no answer in time")
	errStall = errors.New("cache: stalled")
)

// body is the stream of a GET, under a watchdog.
type body struct {
	g      *Getter
	rc     io.ReadCloser
	key    string
	ctx    context.Context // of this GET: a type that lives inside one call of open and its reader
	cancel context.CancelCauseFunc
	stop   func()
}

// also has f called at close.
func (b *body) also(f func()) { b.stop = f }

// readSize bounds what is read at a time: a part of a core's own cache, so that
// what looks at it next finds it there.
const readSize = 256 << 10

// readFull fills p, within the time that a block may take. It shows what has come,
// n bytes by now, to see, which may end it.
func (b *body) readFull(p []byte, see func(n int) bool) error {
	return b.read(len(p), func(n int) []byte { return p[n:min(n+readSize, len(p))] }, see)
}

// read is readFull of total bytes into wherever space, asked when n have come,
// says.
func (b *body) read(total int, space func(n int) []byte, see func(n int) bool) error {
	t := time.AfterFunc(b.g.perBlock, func() { b.cancel(errStall) })
	defer t.Stop()
	n, more := 0, true
	var err error
	for n < total && err == nil && more {
		var k int
		k, err = b.rc.Read(space(n))
		n += k
		more = k == 0 || see(n)
	}
	b.g.met.bytes.Add(float64(n))
	switch {
	case n == total || !more:
		return nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	if cause := context.Cause(b.ctx); cause != nil && cause != errStall {
		return cause
	}
	return b.g.judge(context.WithoutCancel(b.ctx), b.key, err)
}

func (b *body) close() {
	b.rc.Close()
	b.cancel(nil)
	if b.stop != nil {
		b.stop()
	}
}
