package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestProducerIDsAreHandedOutOnceAndABlockIsKeptInReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var blocks atomic.Int64
		var down atomic.Bool
		p := newProducerIDs(slog.New(slog.DiscardHandler), func(context.Context) (int64, int64, error) {
			if down.Load() {
				return 0, 0, errors.New("store away")
			}
			n := blocks.Add(1)
			return n * 100, n*100 + 10, nil
		})
		done := make(chan struct{})
		go func() { _ = p.run(ctx); close(done) }()
		seen := map[int64]bool{}
		take := func(n int) {
			t.Helper()
			for range n {
				id, err := p.next(ctx)
				if err != nil || seen[id] {
					t.Fatalf("id %d (seen: %v), %v", id, seen[id], err)
				}
				seen[id] = true
			}
		}
		synctest.Wait()
		if n := blocks.Load(); n != 2 {
			t.Fatalf("%d blocks fetched, want one to begin with and one in reserve, before anybody asks", n)
		}
		down.Store(true)
		take(20) // the store isn't needed
		short, stop := context.WithTimeout(ctx, time.Minute)
		if _, err := p.next(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("without a block: %v", err)
		}
		stop()
		down.Store(false)
		take(3)
		cancel()
		<-done
	})
}
