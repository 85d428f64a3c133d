package objstore

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Silence tells how long store has owed us something: the longest that a request
// under way has gone without a byte, while it was the store's turn. 0 if there is
// none, and for a store that isn't Measured.
//
// A store that refuses or fails is told by errors. One that hangs shows here,
// long before its requests run into their timeouts.
func Silence(store Store) time.Duration {
	if s, ok := store.(interface{ Silence() time.Duration }); ok {
		return s.Silence()
	}
	return 0
}

// flights are the requests under way.
type flights struct {
	began time.Time
	mu    struct {
		sync.Mutex
		all map[*flight]struct{}
	}
}

func newFlights() *flights {
	f := &flights{began: time.Now()}
	f.mu.all = map[*flight]struct{}{}
	return f
}

// flight is a request.
type flight struct {
	all *flights
	// since is when the store's turn began, in nanoseconds from all.began; 0: it is
	// ours.
	since atomic.Int64
}

// start begins a request, with the store's turn.
func (f *flights) start() *flight {
	r := &flight{all: f}
	r.theirs()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.all[r] = struct{}{}
	return r
}

func (r *flight) end() {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	delete(r.all.mu.all, r)
}

func (r *flight) theirs() { r.since.Store(int64(time.Since(r.all.began)) + 1) }
func (r *flight) ours()   { r.since.Store(0) }

func (f *flights) silence() (longest time.Duration) {
	now := time.Since(f.began)
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.mu.all {
		if since := r.since.Load(); since != 0 {
			longest = max(longest, now-time.Duration(since-1))
		}
	}
	return longest
}

// flightBody is the body of a PUT: reading it is our turn.
type flightBody struct {
	io.ReaderAt
	r *flight
}

func (b flightBody) ReadAt(p []byte, off int64) (int, error) {
	b.r.ours()
	defer b.r.theirs()
	return b.ReaderAt.ReadAt(p, off)
}
