package tiering

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"firn/tiering/cache"
	"firn/tiering/objstore"
)

func (w *coldWorld) firstAt(ts, from, below int64) (offset int64) {
	for o := from; o < below; o++ {
		if w.times[o] >= ts {
			return o
		}
	}
	return -1
}

func (w *coldWorld) maxAt(from, below int64) (offset int64) {
	offset = -1
	for o := from; o < below; o++ {
		if w.times[o] > -1<<62 && (offset < 0 || w.times[o] > w.times[offset]) {
			offset = o
		}
	}
	return offset
}

// TestColdLookupsAgreeWithANaiveModel: out-of-order timestamps, moved log starts,
// files that begin before what they serve, pages.
func TestColdLookupsAgreeWithANaiveModel(t *testing.T) {
	for seed := range uint64(12) {
		rng := testRNG(200 + seed)
		size, roll := 3000, 30_000
		if seed%2 == 0 { // segments with several marks
			size, roll = 20_000, 500_000
		}
		b := someBatches(rng, 300, size, seed%3 == 0)
		w := newColdWorld(t, b, rolled(b, roll), int(seed%4), nil)
		w.paged(len(w.entries)/2, 2)
		c := w.reader(t, cache.Config{})
		for offset, ts := range w.times { // all there are: the index is right to the record
			if offset%3 != int(seed%3) || ts == -1<<62 {
				continue
			}
			got, err := c.FirstAt(t.Context(), w.source, ts, 0, w.end())
			if want := w.firstAt(ts, 0, w.end()); err != nil || got.Offset != want {
				t.Fatalf("seed %d: first at %d: got %+v, %v, want %d", seed, ts, got, err, want)
			}
		}
		for range 100 {
			from := rng.Int64N(w.end())
			if rng.IntN(2) == 0 {
				from = 0
			}
			below := from + 1 + rng.Int64N(w.end()-from)
			ts := w.times[rng.Int64N(w.end())]
			if ts == -1<<62 {
				continue
			}
			ts += rng.Int64N(3) - 1
			if rng.IntN(3) == 0 { // the first record of a segment, from not far before it
				first := w.entries[rng.IntN(len(w.entries))].Base
				from = max(0, first-rng.Int64N(40))
				below, ts = w.end(), max(w.times[first], 0)
			}
			got, err := c.FirstAt(t.Context(), w.source, ts, from, below)
			if err != nil {
				t.Fatal(err)
			}
			if want := w.firstAt(ts, from, below); got.Offset != want || want >= 0 && (got.Timestamp != w.times[want] || got.Epoch != 3) {
				t.Fatalf("seed %d: first at %d in [%d, %d): got %+v, want %d", seed, ts, from, below, got, want)
			}
			got, err = c.MaxAt(t.Context(), w.source, from, below)
			if err != nil {
				t.Fatal(err)
			}
			if want := w.maxAt(from, below); got.Offset != want || want >= 0 && got.Timestamp != w.times[want] {
				t.Fatalf("seed %d: max in [%d, %d): got %+v, want %d at %d", seed, from, below, got, want, w.times[max(0, want)])
			}
		}
	}
}

func TestColdLookupByTimeTakesTwoGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := someBatches(testRNG(30), 2500, 30_000, false)
		w := newColdWorld(t, b, rolled(b, 8<<20), 0, nil)
		rng := testRNG(31)
		for range 60 {
			c := w.reader(t, cache.Config{})
			ts := w.times[rng.Int64N(w.end())]
			w.gets.Store(0)
			got, err := c.FirstAt(t.Context(), w.source, ts, 0, w.end())
			if err != nil || got.Offset != w.firstAt(ts, 0, w.end()) {
				t.Fatal(got, err)
			}
			if n := w.gets.Load(); n > 2 {
				t.Errorf("%d GETs for %d", n, ts)
			}
		}
	})
}

func TestColdLookupOutlivesALossButNotItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := someBatches(testRNG(32), 200, 3000, false)
		w := newColdWorld(t, b, rolled(b, 30_000), 0, nil)
		c := w.reader(t, cache.Config{})
		w.setFault(func(op objstore.Op) objstore.Fault {
			if strings.HasSuffix(op.Key, ".log") {
				return objstore.Fault{Before: objstore.ErrNotFound}
			}
			return objstore.Fault{}
		})
		if _, err := c.FirstAt(t.Context(), w.source, w.times[50], 0, w.end()); !errors.Is(err, ErrLost) {
			t.Errorf("got %v, want lost", err)
		}
		time.Sleep(2 * coldLostFor)
		w.setFault(func(op objstore.Op) objstore.Fault { return objstore.Fault{Delay: time.Hour} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.MaxAt(ctx, w.source, 0, w.end()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline's error", err)
		}
	})
}
