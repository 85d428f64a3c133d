package tiering

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/cache"
	"firn/tiering/objstore"
)

// batchesOf makes n batches of so many records of size bytes, which don't
// compress unless the codec says so.
func batchesOf(t testing.TB, n, records, size int, codec batch.Codec) (list []batch.Batch) {
	rng := testRNG(60)
	noise := make([]byte, 2*size)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	offset := int64(0)
	for range n {
		bd := batch.NewBuilder(batch.Spec{BaseOffset: offset, LeaderEpoch: 3, Codec: codec})
		for k := range records {
			at := rng.IntN(size)
			bd.Add(offset+int64(k), nil, noise[at:at+size])
		}
		b, err := bd.Build()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
		offset = b.NextOffset()
	}
	return list
}

// TestColdSeekCosts: with the index in memory a seek is one GET, from at most a
// unit before its batch to the end of the block in which that ends. Whether the
// reader goes on is seen when it comes back.
func TestColdSeekCosts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		batches []batch.Batch
		old     bool
		most    int64 // bytes, besides what it takes to end with a block
	}{
		{"1 MiB batches", batchesOf(t, 24, 970, 1024, batch.None), false, 1<<20 + UnitSize},
		{"1 MiB batches, old index", batchesOf(t, 24, 970, 1024, batch.None), true, 3 << 20},
		{"16 KiB batches", batchesOf(t, 1000, 16, 1000, batch.None), false, 2*UnitSize + 16<<10},
		{"tiny compressed batches", batchesOf(t, 8_000, 10, 1000, batch.LZ4), false, 2*UnitSize + 16<<10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &coldWorld{old: tt.old}
				w.fill(t, tt.batches, []int{0}, 0, nil)
				rng := testRNG(61)
				worst, sum := int64(0), int64(0)
				const seeks = 40
				for range seeks {
					c := w.reader(t, cache.Config{})
					if _, err := w.checkRead(c, segment.ReadRequest{Offset: w.end() - 1, MaxBytes: 1000, MinOne: true}); err != nil {
						t.Fatal(err) // the index is in memory now
					}
					var gets, bytes atomic.Int64
					w.setFault(func(op objstore.Op) objstore.Fault {
						gets.Add(1)
						bytes.Add(op.N)
						return objstore.Fault{}
					})
					offset := w.end()/20 + rng.Int64N(w.end()*8/10)
					if _, err := w.checkRead(c, segment.ReadRequest{Offset: offset, MaxBytes: 1 << 20, MinOne: true}); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if gets.Load() != 1 {
						t.Errorf("offset %d: %d GETs", offset, gets.Load())
					}
					worst, sum = max(worst, bytes.Load()), sum+bytes.Load()
				}
				t.Logf("%d bytes a batch: %d bytes a seek, at most %d", len(tt.batches[0]), sum/seeks, worst)
				if worst > tt.most+BlockSize || sum/seeks > tt.most+BlockSize*6/10 {
					t.Errorf("a seek asks for %d bytes, at most %d; want at most %d and the rest of a block", sum/seeks, worst, tt.most)
				}
			})
		})
	}
}

// TestColdSeekIsAnsweredBeforeItsGetEnds: what follows the batch need not be here.
func TestColdSeekIsAnsweredBeforeItsGetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := batchesOf(t, 200, 16, 1000, batch.None)
		w := newColdWorld(t, list, []int{0}, 0, nil)
		store := &haltingStore{Store: w.store, after: 3 * UnitSize}
		c := w.reader(t, cache.Config{Store: store})
		offset := list[80].BaseOffset() + 5 // in the middle of block 1
		next, err := w.checkRead(c, segment.ReadRequest{Offset: offset, MaxBytes: 1 << 20, MinOne: true})
		if err != nil || next < list[81].BaseOffset() {
			t.Fatalf("next %d, err %v", next, err)
		}
		res, err := c.Read(w.source, segment.ReadRequest{Offset: next, MaxBytes: 1 << 20, MinOne: true}, w.at())
		if res.Records.Len() > 0 || res.Pending == nil || err != nil {
			t.Errorf("after it %d bytes, err %v", res.Records.Len(), err)
		}
	})
}

// haltingStore delivers so many bytes of a segment, and then nothing.
type haltingStore struct {
	objstore.Store
	after int64
}

func (s *haltingStore) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := s.Store.GetRange(ctx, key, off, n)
	if err != nil || strings.HasSuffix(key, ".idx") {
		return r, err
	}
	halt := readerFunc(func([]byte) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(r, s.after), halt), r}, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestOldIndexIsStillRead(t *testing.T) {
	for _, size := range []int{2_000, 300_000} {
		b := someBatches(testRNG(70), 300, size, true)
		w := oldColdWorld(t, b, rolled(b, 40*size), 2)
		w.paged(len(w.entries)/2, 3)
		c := w.reader(t, cache.Config{})
		inTime(t, func() error { return w.replay(c, 0, 1<<20) })
		rng := testRNG(71)
		for range 50 {
			if _, err := w.checkRead(c, segment.ReadRequest{Offset: rng.Int64N(w.end()), MaxBytes: 1 + rng.IntN(1<<20), MinOne: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
