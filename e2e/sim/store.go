package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"sync"
	"time"

	"firn/tiering/objstore"
)

// bucket is a model of an object store and of the way to it. It holds the rules
// that no client may break: no key is written twice (T2), and what the pointers
// lead to stays (checked by archive).
type bucket struct {
	s      *sched
	mem    *objstore.Mem
	down   bool
	slow   bool
	faulty bool
	counts *counts
	// wrote and deleting are called before an object is there, or gone.
	wrote    func(who, key string)
	deleting func(who, key string)

	// ever are the keys that were ever written.
	ever map[string]bool

	mu     sync.Mutex
	calls  map[string]int // by caller and what it asks for, to tell calls apart
	hidden map[string]time.Time
}

func newBucket(s *sched, c *counts) *bucket {
	return &bucket{s: s, mem: objstore.NewMem(), counts: c, ever: map[string]bool{}, calls: map[string]int{}, hidden: map[string]time.Time{}}
}

var (
	errStoreDown  = errors.New("sim: the store is down")
	errStoreFault = errors.New("sim: the store failed")
)

// storeClient is a process's client of the bucket.
type storeClient struct {
	b *bucket
	p *process
}

var (
	_ objstore.Store   = (*storeClient)(nil)
	_ objstore.Swapper = (*storeClient)(nil)
)

// ids are the random part of a key: which of two actors draws first at the same
// moment is nobody's business.
var ids = regexp.MustCompile("-[0-9a-f]{16}")

func withoutID(key string) string { return ids.ReplaceAllString(key, "") }

// storeFault is what goes wrong with one call.
type storeFault struct{ before, after, corrupt, hide bool }

// call sends a request; f is its effect, which may come though nobody waits for
// the answer any more. The answer follows.
func (c *storeClient) call(ctx context.Context, what string, f func(storeFault) error) error {
	b := c.b
	name := c.p.name + actor(ctx) + " " + withoutID(what)
	b.mu.Lock()
	b.calls[name]++
	key := fmt.Sprintf("%s #%d", name, b.calls[name])
	b.mu.Unlock()
	if c.p.dead() {
		return errCrashed
	}
	var x storeFault
	result := make(chan error, 1)
	b.s.post(&event{
		key: key,
		delay: func(r *rand.Rand) time.Duration {
			if b.faulty {
				switch n := r.IntN(40); n {
				case 0:
					x.before = true
				case 1:
					x.after = true
				case 2:
					x.corrupt = true
				case 3:
					x.hide = true
				}
			}
			if b.slow {
				return between(500*time.Millisecond, 9*time.Second)(r)
			}
			return between(time.Millisecond, 40*time.Millisecond)(r)
		},
		fire: func() {
			var err error
			switch {
			case b.down:
				err = errStoreDown
			case x.before:
				err = errStoreFault
			default:
				if err = f(x); err == nil && x.after {
					err = errStoreFault
				}
			}
			b.s.post(&event{
				key:   key + " answered",
				delay: between(time.Millisecond, 10*time.Millisecond),
				held:  func() bool { return c.p.m.paused && !c.p.dead() },
				fire:  func() { result <- err },
			})
		},
	})
	select {
	case err := <-result:
		if c.p.dead() {
			return errCrashed
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *storeClient) Put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	b := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(body, 0, size), b); err != nil {
		return err
	}
	return c.call(ctx, "put "+key, func(x storeFault) error {
		c.b.wrote(c.p.name, key)
		if x.hide {
			c.b.hide(key)
		}
		return c.b.mem.Put(context.Background(), key, bytes.NewReader(b), size)
	})
}

func (c *storeClient) Create(ctx context.Context, key string, value []byte) error {
	return c.call(ctx, "create "+key, func(storeFault) error { return c.b.mem.Create(context.Background(), key, value) })
}

func (c *storeClient) Swap(ctx context.Context, key string, old, value []byte) error {
	return c.call(ctx, "swap "+key, func(storeFault) error { return c.b.mem.Swap(context.Background(), key, old, value) })
}

func (c *storeClient) Delete(ctx context.Context, key string) error {
	return c.call(ctx, "delete "+key, func(storeFault) error {
		c.b.deleting(c.p.name, key)
		return c.b.mem.Delete(context.Background(), key)
	})
}

func (c *storeClient) List(ctx context.Context, prefix string, yield func(objstore.Object) error) error {
	var found []objstore.Object
	err := c.call(ctx, "list "+prefix, func(storeFault) error {
		return c.b.mem.List(context.Background(), prefix, func(o objstore.Object) error {
			found = append(found, o)
			return nil
		})
	})
	for i := 0; err == nil && i < len(found); i++ {
		err = yield(found[i])
	}
	return err
}

func (c *storeClient) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	var got []byte
	err := c.call(ctx, fmt.Sprintf("get %s %d+%d", key, off, n), func(x storeFault) error {
		if c.b.isHidden(key) {
			return fmt.Errorf("sim: not to be seen yet: %w", objstore.ErrNotFound)
		}
		r, err := c.b.mem.GetRange(context.Background(), key, off, n)
		if err != nil {
			return err
		}
		defer r.Close()
		if got, err = io.ReadAll(r); err != nil {
			return err
		}
		c.b.counts.add("gets", 1)
		if x.corrupt && len(got) > 0 {
			c.b.counts.add("corrupt answers", 1)
			got[len(got)/2] ^= 0x40
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(got)), nil
}

// read is what lies under a key.
func (b *bucket) read(key string) ([]byte, error) {
	r, err := b.mem.GetRange(context.Background(), key, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// hide has reads not find an object for a while, as some stores do right after
// its Put (D17).
func (b *bucket) hide(key string) {
	b.counts.add("hidden objects", 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hidden[key] = time.Now().Add(300 * time.Millisecond)
}

func (b *bucket) isHidden(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.hidden[key])
}
