package broker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firn/tiering/objstore"
)

// TestALookAsksOneQuestionAtATime: whoever wants to know waits for the same answer; a
// late one is told, and nobody waits longer than he likes.
func TestALookAsksOneQuestionAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var asked atomic.Int64
		answer := make(chan error)
		l := newLook("it", func(ctx context.Context) error {
			asked.Add(1)
			select {
			case err := <-answer:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		const fresh = time.Second
		over := make(chan struct{})
		go func() { defer close(over); l.run(ctx) }()
		want := func(says string, within, after time.Duration) {
			t.Helper()
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			l.start(fresh)
			err := l.err(ctx)
			if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("says %v, want %q", err, says)
			}
			if d := time.Since(began); d != after {
				t.Errorf("took %v, want %v", d, after)
			}
		}
		want("", time.Second, time.Second)                            // nothing is known yet
		want("doesn't answer: asked 2 s ago", time.Hour, time.Second) // late
		want("doesn't answer: asked 2 s ago", time.Hour, 0)
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		answer <- nil
		synctest.Wait()
		want("", time.Hour, 0)
		time.Sleep(fresh)
		go func() { answer <- errors.New("gone") }()
		want("gone", time.Hour, 0)
		want("gone", time.Hour, 0)
		time.Sleep(fresh)
		want("gone", time.Second, time.Second) // the last answer counts until the next
		time.Sleep(lookEnds - time.Second)
		synctest.Wait()
		want("within 10s", time.Hour, 0)
		if n := asked.Load(); n != 3 {
			t.Errorf("asked %d times", n)
		}
		stop()
		<-over
	})
}

// TestHealthFindsOutThatTheStoreIsAway, though nothing needs it: all is archived, and
// nobody reads. The broker stays ready.
func TestHealthFindsOutThatTheStoreIsAway(t *testing.T) {
	var down atomic.Bool
	n := startNodeWith(t, t.TempDir(), objstore.Inject(objstore.NewMem(), func(objstore.Op) (f objstore.Fault) {
		if down.Load() {
			f.Before = errors.New("store is down")
		}
		return f
	}))
	if got := n.Problems(t.Context(), 0); len(got) > 0 {
		t.Errorf("all is well, but %q", got)
	}
	down.Store(true)
	eventually(t, "told", func() bool { return strings.Contains(strings.Join(n.Problems(t.Context(), 0), "\n"), "store is down") })
	if why := n.NotReady(); len(why) > 0 {
		t.Errorf("not ready: %v", why)
	}
	down.Store(false)
	eventually(t, "well again", func() bool { return len(n.Problems(t.Context(), 0)) == 0 })
}

// TestHealthFindsOutThatTheMetadataIsAway, while nothing changes and the lease holds.
func TestHealthFindsOutThatTheMetadataIsAway(t *testing.T) {
	c := startCluster(t, 2)
	n := c.node(2)
	for _, m := range c.nodes {
		eventually(t, "ready", func() bool { return len(m.NotReady()) == 0 })
	}
	if got := n.Problems(t.Context(), 0); len(got) > 0 {
		t.Errorf("all is well, but %q", got)
	}
	c.store(2).Cut()
	eventually(t, "told", func() bool {
		return strings.Contains(strings.Join(n.Problems(t.Context(), 0), "\n"), "metadata can't be read")
	})
	if why := n.NotReady(); len(why) > 0 {
		t.Errorf("not ready: %v", why)
	}
	if got := c.node(1).Problems(t.Context(), 0); len(got) > 0 {
		t.Errorf("broker 1 reaches it, but %q", got)
	}
	c.store(2).Heal()
	eventually(t, "well again", func() bool { return len(n.Problems(t.Context(), 0)) == 0 })
}
