package meta

import (
	"context"
	"sync"
	"sync/atomic"
)

// inFlight is how many reads of a store are under way at once: enough to hide
// round trips, few enough for a server that others wait for, too.
const inFlight = 64

// parallel calls f for 0 to n-1, some at a time, until one fails.
func parallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	if n == 1 {
		return f(ctx, 0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, inFlight) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// CommitApart is CommitAll for writes whose order doesn't matter: up to lanes
// commits are under way at once. After an unknown outcome the rest of that lane
// is not tried.
func CommitApart(ctx context.Context, s Store, writes []Write, lanes int) []error {
	const least = 100 // fewer are not worth another commit
	lanes = max(min(lanes, len(writes)/least), 1)
	errs := make([]error, len(writes))
	var wg sync.WaitGroup
	for i := range lanes {
		from, to := i*len(writes)/lanes, (i+1)*len(writes)/lanes
		wg.Go(func() { copy(errs[from:to], CommitAll(ctx, s, writes[from:to])) })
	}
	wg.Wait()
	return errs
}
