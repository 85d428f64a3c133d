package tiering

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/cache"
	"firn/tiering/filestore"
	"firn/tiering/objstore"
)

func testRNG(n uint64) *rand.Rand { return rand.New(rand.NewPCG(7, n)) }

func TestColdReplayReturnsEveryBatchOnce(t *testing.T) {
	for _, behind := range []int{0, 3} {
		for _, size := range []int{2_000, 300_000} {
			t.Run(fmt.Sprint("behind=", behind, ",size=", size), func(t *testing.T) {
				b := someBatches(testRNG(1), 400, size, true)
				w := newColdWorld(t, b, rolled(b, 40*size), behind, nil)
				w.paged(len(w.entries)/2, 3)
				for _, maxBytes := range []int{1, size, 1 << 20, 50 << 20} {
					c := w.reader(t, cache.Config{})
					inTime(t, func() error { return w.replay(c, 0, maxBytes) })
				}
			})
		}
	}
}

func TestColdRandomReads(t *testing.T) {
	b := someBatches(testRNG(2), 1500, 20_000, true)
	w := newColdWorld(t, b, rolled(b, 3<<20), 2, nil)
	w.paged(3, 2)
	c := w.reader(t, cache.Config{Memory: 8 << 20})
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			rng := testRNG(uint64(10 + k))
			for range 60 {
				offset := rng.Int64N(w.end())
				for range 1 + rng.IntN(5) {
					next, err := w.checkRead(c, segment.ReadRequest{Offset: offset, MaxBytes: 1 + rng.IntN(2<<20), MinOne: true})
					if err != nil {
						t.Errorf("at %d: %v", offset, err)
						return
					}
					if offset = next; offset >= w.end() {
						break
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestColdBatchLargerThanAnAnswerIsServedWhole(t *testing.T) {
	b := someBatches(testRNG(3), 12, 9<<20, false)
	w := newColdWorld(t, b, []int{0, 5}, 0, nil)
	c := w.reader(t, cache.Config{Memory: 64 << 20})
	inTime(t, func() error { return w.replay(c, 0, 1000) })
	res, err := c.Read(w.source, segment.ReadRequest{Offset: 0, MaxBytes: 1}, w.at())
	for res.Pending != nil && err == nil {
		<-res.Pending
		res, err = c.Read(w.source, segment.ReadRequest{Offset: 0, MaxBytes: 1}, w.at())
	}
	if err != nil || res.Records.Len() != 0 {
		t.Errorf("without MinOne: %d bytes, %v", res.Records.Len(), err)
	}
}

func TestColdReadEndsWhereItMust(t *testing.T) {
	b := someBatches(testRNG(4), 200, 2000, false)
	w := newColdWorld(t, b, rolled(b, 50_000), 0, nil)
	c := w.reader(t, cache.Config{})
	cut := b[77].BaseOffset()
	for name, at := range map[string]segment.Offsets{
		"local start":    {LocalStart: cut, HighWatermark: w.end(), Stable: w.end(), Counted: w.end()},
		"high watermark": {LocalStart: w.end(), HighWatermark: cut, Stable: w.end(), Counted: w.end()},
	} {
		offset := int64(0)
		for {
			res, err := c.Read(w.source, segment.ReadRequest{Offset: offset, MaxBytes: 10_000, MinOne: true}, at)
			if err != nil {
				t.Fatal(err)
			}
			if res.Records.Len() == 0 && res.Pending != nil {
				<-res.Pending
				continue
			}
			if res.Records.Len() == 0 {
				break
			}
			n := 0
			for _, x := range w.want(offset) {
				if n == res.Records.Len() {
					break
				}
				n += len(x)
				offset = x.NextOffset()
			}
			res.Records.Release()
		}
		if offset != cut {
			t.Errorf("%s: ends at %d, want %d", name, offset, cut)
		}
	}
}

func TestColdReadBelowTheLogStartIsOutOfRange(t *testing.T) {
	b := someBatches(testRNG(5), 100, 2000, false)
	w := newColdWorld(t, b, rolled(b, 20_000), 0, nil)
	m := *w.m
	m.LogStart = b[50].BaseOffset() + 1 // inside a segment, inside a batch
	w.m = &m
	c := w.reader(t, cache.Config{})
	if _, err := w.read(c, segment.ReadRequest{Offset: m.LogStart - 1, MaxBytes: 100}); !errors.Is(err, segment.ErrOffsetOutOfRange) {
		t.Errorf("got %v, want out of range", err)
	}
	inTime(t, func() error { return w.replay(c, m.LogStart, 10_000) })
}

// TestColdBatchLargerThanTheBudgetIsServed: memory grows by that batch, once.
func TestColdBatchLargerThanTheBudgetIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list []batch.Batch
		for i := range int64(4) {
			bd := batch.NewBuilder(batch.Spec{BaseOffset: i, LeaderEpoch: 3})
			bd.Add(i, nil, make([]byte, 20<<20+i))
			b, err := bd.Build()
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, b)
		}
		w := newColdWorld(t, list, []int{0, 2}, 0, nil)
		c := w.reader(t, cache.Config{Memory: 8 << 20})
		if err := w.replay(c, 0, 1<<20); err != nil {
			t.Error(err)
		}
	})
}

// bigWorld has n segments of 64 MiB.
func bigWorld(t testing.TB, n int) *coldWorld {
	b := someBatches(testRNG(6), n*180, 1<<20, false)
	w := newColdWorld(t, b, rolled(b, 64<<20), 0, nil)
	t.Logf("%d segments, %d MiB", len(w.entries), func() (s int64) {
		for i := range w.entries {
			s += w.entries[i].Size
		}
		return s >> 20
	}())
	return w
}

func TestColdReplayTakesFewGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bigWorld(t, 4)
		c := w.reader(t, cache.Config{})
		w.setFault(func(objstore.Op) objstore.Fault { return objstore.Fault{Delay: 5 * time.Millisecond} })
		inTime(t, func() error { return w.replay(c, 0, 1<<20) })
		alone := w.gets.Swap(0)
		// Per segment its index and two GETs, and what it takes to get up to speed.
		if limit := int64(3*len(w.entries) + 6); alone > limit {
			t.Errorf("%d GETs for %d segments, want at most %d", alone, len(w.entries), limit)
		}
		c = w.reader(t, cache.Config{})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := w.replay(c, 0, 1<<20); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := w.gets.Load(); got > alone+1 {
			t.Errorf("two readers take %d GETs, one takes %d", got, alone)
		}
	})
}

func TestColdSeekIsOneGetWithTheIndexInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bigWorld(t, 1)
		c := w.reader(t, cache.Config{})
		if _, err := w.checkRead(c, segment.ReadRequest{Offset: 0, MaxBytes: 1000, MinOne: true}); err != nil {
			t.Fatal(err)
		}
		w.gets.Store(0)
		offset := w.entries[0].End * 2 / 3
		if _, err := w.checkRead(c, segment.ReadRequest{Offset: offset, MaxBytes: 1000, MinOne: true}); err != nil {
			t.Fatal(err)
		}
		if got := w.gets.Load(); got != 1 {
			t.Errorf("%d GETs, want 1", got)
		}
	})
}

// TestColdReadOfATimedOutFetchGoesOn: the second Read finds what the first began.
func TestColdReadNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := someBatches(testRNG(8), 100, 2000, false)
		w := newColdWorld(t, b, []int{0}, 0, nil)
		w.setFault(func(objstore.Op) objstore.Fault { return objstore.Fault{Delay: time.Second} })
		c := w.reader(t, cache.Config{})
		r := segment.ReadRequest{Offset: 0, MaxBytes: 1000, MinOne: true}
		start := time.Now()
		for range 20 { // as many fetches that time out
			res, err := c.Read(w.source, r, w.at())
			if err != nil || res.Records.Len() > 0 || res.Pending == nil {
				t.Fatalf("%d bytes, pending %v, err %v", res.Records.Len(), res.Pending != nil, err)
			}
			time.Sleep(90 * time.Millisecond)
		}
		time.Sleep(time.Second)
		res, err := c.Read(w.source, r, w.at())
		if err != nil || res.Records.Len() == 0 {
			t.Fatalf("after %v: %d bytes, err %v", time.Since(start), res.Records.Len(), err)
		}
		res.Records.Release()
		if w.gets.Load() != 2 {
			t.Errorf("%d GETs, want 2", w.gets.Load())
		}
	})
}

func TestColdReadTellsAnOutageFromALoss(t *testing.T) {
	isIdx := func(op objstore.Op) bool { return strings.HasSuffix(op.Key, ".idx") }
	isLog := func(op objstore.Op) bool { return strings.HasSuffix(op.Key, ".log") }
	flip := func(off int64, b []byte) { b[0] ^= 1 }
	for _, tt := range []struct {
		name  string
		which func(objstore.Op) bool
		fault objstore.Fault
		want  error
	}{
		{"store down, index", isIdx, objstore.Fault{Before: errors.New("503")}, ErrUnavailable},
		{"store down, segment", isLog, objstore.Fault{Before: errors.New("503")}, ErrUnavailable},
		{"index gone", isIdx, objstore.Fault{Before: objstore.ErrNotFound}, ErrLost},
		{"segment gone", isLog, objstore.Fault{Before: objstore.ErrNotFound}, ErrLost},
		{"index damaged", isIdx, objstore.Fault{Corrupt: flip}, ErrLost},
		{"segment damaged", isLog, objstore.Fault{Corrupt: flip}, ErrLost},
		{"segment short", isLog, objstore.Fault{Before: objstore.ErrRange}, ErrLost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := someBatches(testRNG(9), 100, 2000, false)
				w := newColdWorld(t, b, []int{0}, 0, nil)
				w.setFault(func(op objstore.Op) objstore.Fault {
					if tt.which(op) {
						return tt.fault
					}
					return objstore.Fault{}
				})
				c := w.reader(t, cache.Config{})
				r := segment.ReadRequest{Offset: 0, MaxBytes: 1000, MinOne: true}
				_, err := w.read(c, r)
				if !errors.Is(err, tt.want) || tt.want == ErrLost && errors.Is(err, ErrUnavailable) {
					t.Fatalf("got %v, want %v", err, tt.want)
				}
				if tt.want == ErrLost && w.reloads != 1 {
					t.Errorf("the pointer was read anew %d times, want once", w.reloads)
				}
				w.gets.Store(0)
				for range 100 {
					if _, err := w.read(c, r); !errors.Is(err, tt.want) {
						t.Fatalf("again: %v", err)
					}
				}
				if n := w.gets.Load(); n > 10 {
					t.Errorf("100 reads that fail make %d GETs", n)
				}
				w.setFault(func(objstore.Op) objstore.Fault { return objstore.Fault{} })
				time.Sleep(2 * coldLostFor)
				if _, err := w.checkRead(c, r); err != nil {
					t.Errorf("after it came back: %v", err)
				}
			})
		})
	}
}

// TestColdReadDoesNotCountALossWithoutThePointer: while the metadata store is
// away nobody knows whether a missing object is still named.
func TestColdReadDoesNotCountALossWithoutThePointer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := someBatches(testRNG(9), 100, 2000, false)
		w := newColdWorld(t, b, rolled(b, 50_000), 0, nil)
		c := w.reader(t, cache.Config{})
		w.setFault(func(op objstore.Op) objstore.Fault {
			if strings.HasSuffix(op.Key, ".log") {
				return objstore.Fault{Before: objstore.ErrNotFound}
			}
			return objstore.Fault{}
		})
		w.noPointer = errors.New("metadata store is away")
		for range 3 * coldRetries {
			_, err := w.read(c, segment.ReadRequest{Offset: 0, MaxBytes: 10_000, MinOne: true})
			if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrLost) {
				t.Fatalf("without the pointer: %v, want ErrUnavailable", err)
			}
			time.Sleep(time.Second)
		}
		w.mu.Lock()
		w.noPointer = nil
		w.mu.Unlock()
		if _, err := w.read(c, segment.ReadRequest{Offset: 0, MaxBytes: 10_000, MinOne: true}); !errors.Is(err, ErrLost) {
			t.Fatalf("with it: %v, want ErrLost", err)
		}
	})
}

func TestColdReadRetriesAnObjectThatIsNotThereYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := someBatches(testRNG(9), 100, 2000, false)
		w := newColdWorld(t, b, []int{0}, 0, nil)
		start := time.Now()
		w.setFault(func(op objstore.Op) objstore.Fault {
			if time.Since(start) < time.Second {
				return objstore.Fault{Before: objstore.ErrNotFound}
			}
			return objstore.Fault{}
		})
		c := w.reader(t, cache.Config{})
		if _, err := w.checkRead(c, segment.ReadRequest{Offset: 0, MaxBytes: 1000, MinOne: true}); err != nil {
			t.Error(err)
		}
	})
}

func TestColdReadFollowsTheManifestThatIsNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := someBatches(testRNG(9), 300, 2000, false)
		w := newColdWorld(t, b, rolled(b, 50_000), 0, nil)
		c := w.reader(t, cache.Config{})
		gone := w.entries[0].LogKey(testPart)
		if err := w.mem.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		w.onReload = func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			m := *w.m
			m.LogStart, m.DeletedThrough = w.entries[0].End, w.entries[0].End
			m.Entries = m.Entries[1:]
			w.m = &m
		}
		_, err := w.read(c, segment.ReadRequest{Offset: 0, MaxBytes: 1000, MinOne: true})
		if !errors.Is(err, segment.ErrOffsetOutOfRange) {
			t.Errorf("got %v, want out of range (D7)", err)
		}
		if err := w.replay(c, w.m.LogStart, 5000); err != nil {
			t.Error(err)
		}
	})
}

func TestColdReadSurvivesAFlakyStore(t *testing.T) {
	b := someBatches(testRNG(11), 600, 20_000, false)
	w := newColdWorld(t, b, rolled(b, 2<<20), 0, nil)
	w.setFault(func(op objstore.Op) objstore.Fault {
		switch rand.N(12) {
		case 0:
			return objstore.Fault{Before: errors.New("500")}
		case 1:
			return objstore.Fault{Cut: errors.New("reset"), CutAt: rand.Int64N(op.N)}
		case 2:
			return objstore.Fault{Corrupt: func(off int64, b []byte) { b[rand.N(len(b))] ^= 4 }}
		case 3:
			return objstore.Fault{Before: objstore.ErrNotFound}
		}
		return objstore.Fault{}
	})
	c := w.reader(t, cache.Config{Memory: 16 << 20})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for offset, tries := int64(0), 0; offset < w.end(); {
				next, err := w.checkRead(c, segment.ReadRequest{Offset: offset, MaxBytes: 200_000, MinOne: true})
				if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrLost) {
					t.Error(err)
					return
				}
				if tries++; tries > 10_000 {
					t.Errorf("stands still at %d: %v", offset, err)
					return
				}
				if err != nil {
					time.Sleep(50 * time.Millisecond)
				}
				offset = next
			}
		})
	}
	wg.Wait()
}

func TestColdReadFindsItsWayWithDamagedMarks(t *testing.T) {
	b := someBatches(testRNG(12), 600, 20_000, false)
	w := newColdWorld(t, b, []int{0}, 0, nil)
	c := w.reader(t, cache.Config{})
	if _, err := w.checkRead(c, segment.ReadRequest{Offset: 0, MaxBytes: 1000, MinOne: true}); err != nil {
		t.Fatal(err)
	}
	ix, _, err := c.indexes.index(testPart, &w.entries[0])
	if err != nil || ix == nil {
		t.Fatal(err)
	}
	for i := range ix.marks[1:] {
		ix.marks[1+i].pos += 13
	}
	inTime(t, func() error {
		_, err := w.checkRead(c, segment.ReadRequest{Offset: w.end() * 3 / 4, MaxBytes: 1000, MinOne: true})
		return err
	})
}

// FuzzColdWalk has a segment of any bytes, with the right checksums: a bucket that
// others can write to. A walk ends, and hands on whole batches only.
func FuzzColdWalk(f *testing.F) {
	var good []byte
	for _, b := range someBatches(testRNG(40), 5, 300, true) {
		good = append(good, b...)
	}
	f.Add(good, int64(0))
	f.Add(good[:len(good)-3], int64(3))
	f.Add(append(append([]byte{}, good...), good...), int64(2))
	f.Add(make([]byte, 100), int64(0))
	mem := objstore.NewMem()
	c := newColdReads(coldConfig{Cache: cache.New(cache.Config{Store: mem})})
	f.Cleanup(func() {
		c.Close()
		c.cfg.Cache.Close()
	})
	n := uint64(0)
	f.Fuzz(func(t *testing.T, log []byte, offset int64) {
		if len(log) == 0 || len(log) > 3*BlockSize || offset < 0 {
			return
		}
		n++
		e := &Entry{End: 1 << 62, MaxTime: 1, Size: int64(len(log)), ID: n}
		if err := mem.Put(t.Context(), e.LogKey(testPart), readerAt(log), e.Size); err != nil {
			t.Fatal(err)
		}
		defer mem.Delete(t.Context(), e.LogKey(testPart))
		x := &Index{End: e.End, Size: e.Size}
		var found scanned
		for b := log; len(b) > 0; b = b[min(len(b), BlockSize):] {
			found.sum(b[:min(len(b), BlockSize)])
		}
		x.Blocks, x.Units = found.Blocks, found.Units
		ix, err := newColdIndex(testPart, e, x)
		if err != nil {
			t.Fatal(err)
		}
		st := &coldStream{c: c, cs: c.cfg.Cache.NewStream(), next: offset, entry: e, ix: ix}
		defer st.cs.Close()
		defer c.cfg.Cache.Forget(&ix.Object)
		st.cs.At(&ix.Object, 0, 3)
		for {
			w := coldWindow{cs: st.cs, ix: ix, first: int(st.pos / BlockSize), seek: n%2 == 0}
			run, err := st.collect(&w, segment.ReadRequest{MaxBytes: 1 << 20, MinOne: true}, e.End)
			if err != nil || run.ended || run.start == run.end && w.wait == nil {
				w.release()
				return
			}
			if run.start == run.end {
				w.release()
				<-w.wait
				continue
			}
			records := w.records(run.start, run.end)
			for b := joined(&records); len(b) > 0; {
				if _, b, err = batch.Next(b); err != nil {
					t.Fatal(err)
				}
			}
			records.Release()
			w.release()
			if run.last <= st.next {
				t.Fatalf("next offset %d, was %d", run.last, st.next)
			}
			st.next, st.pos = run.last, run.end
		}
	})
}

// TestColdReadsOfADirectoryAreSentFromItsFiles: with the same bytes, where batches
// begin and end within a block, on the border of two, and across GETs; lookups too.
func TestColdReadsOfADirectoryAreSentFromItsFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, old := range []bool{false, true} {
		batches := someBatches(rng, 60, 700_000, true)
		w := newColdWorld(t, batches, rolled(batches, 4<<20), 2, nil)
		if old {
			w = oldColdWorld(t, batches, rolled(batches, 4<<20), 2)
		}
		dir, err := filestore.Open(filestore.Config{Dir: t.TempDir(), MinFree: -1})
		if err != nil {
			t.Fatal(err)
		}
		err = w.mem.List(t.Context(), "", func(o objstore.Object) error {
			b, err := objstore.ReadAll(t.Context(), w.mem, o.Key, o.Size)
			if err != nil {
				return err
			}
			return dir.Put(t.Context(), o.Key, bytes.NewReader(b), o.Size)
		})
		if err != nil {
			t.Fatal(err)
		}
		r := w.reader(t, cache.Config{Store: objstore.Measured(dir, nil), Memory: 8 << 20, GetBytes: 2 << 20})
		for _, most := range []int{1 << 20, 3 << 20, 100_000} {
			if err := w.replay(r, 0, most); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			offset := rng.Int64N(w.end())
			res, err := w.read(r, segment.ReadRequest{Offset: offset, MaxBytes: 1 << 20, MinOne: true})
			if err != nil {
				t.Fatal(err)
			}
			if res.Records.Part(0).File == nil {
				t.Error("what lies in a file is sent from memory")
			}
			res.Records.Release()
			ts := w.times[offset]
			if ts == -1<<62 {
				continue
			}
			got, err := r.FirstAt(t.Context(), w.source, ts, 0, w.end())
			if want := w.firstAt(ts, 0, w.end()); err != nil || got.Offset != want {
				t.Errorf("first at %d: %v, %v, want %v", ts, got, err, want)
			}
		}
	}
}
