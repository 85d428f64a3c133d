package tiering

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/cache"
	"firn/tiering/objstore"
)

// benchStore is a store in memory, or the one that FIRN_BENCH_ARCHIVE names, for
// example s3://bench/cold?endpoint=http://127.0.0.1:9000&create=true.
func benchStore(b *testing.B) objstore.Store {
	url := os.Getenv("FIRN_BENCH_ARCHIVE")
	if url == "" {
		return objstore.NewMem()
	}
	s, err := OpenStore(b.Context(), url, OpenOptions{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkCold reads 512 MiB in segments of 64 MiB sequentially, in answers of
// 1 MiB. Beside it, what the store can do: four range GETs of 8 MiB at a time.
func BenchmarkCold(b *testing.B) {
	batches := make([]batch.Batch, 0, 512*64)
	value := make([]byte, 1000)
	for i := range cap(batches) {
		bd := batch.NewBuilder(batch.Spec{BaseOffset: int64(i) * 16, LeaderEpoch: 3})
		for k := range 16 {
			bd.Add(int64(i*16+k), nil, value)
		}
		x, err := bd.Build()
		if err != nil {
			b.Fatal(err)
		}
		batches = append(batches, x)
	}
	w := newColdWorld(b, batches, rolled(batches, 64<<20), 0, nil)
	store := benchStore(b)
	size := int64(0)
	for _, key := range w.mem.Keys() {
		body, err := objstore.ReadAll(b.Context(), w.mem, key, 1<<30)
		if err != nil {
			b.Fatal(err)
		}
		if err := store.Put(b.Context(), key, readerAt(body), int64(len(body))); err != nil {
			b.Fatal(err)
		}
	}
	for i := range w.entries {
		size += w.entries[i].Size
	}
	var gets atomic.Int64
	for _, delay := range []time.Duration{0, 30 * time.Millisecond} {
		delayed := objstore.Inject(store, func(op objstore.Op) objstore.Fault {
			gets.Add(1)
			return objstore.Fault{Delay: delay}
		})
		b.Run(fmt.Sprint("replay/delay=", delay), func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			gets.Store(0)
			for b.Loop() {
				ca, err := cache.Open(cache.Config{Store: delayed})
				if err != nil {
					b.Fatal(err)
				}
				c := newColdReads(coldConfig{Cache: ca})
				for offset := int64(0); offset < w.end(); {
					res, err := w.read(c, segment.ReadRequest{Offset: offset, MaxBytes: 1 << 20, MinOne: true})
					if err != nil {
						b.Fatal(err)
					}
					offset += int64(res.Records.Len()) / int64(len(batches[0])) * 16
					res.Records.Release()
				}
				c.Close()
				ca.Close()
			}
			b.ReportMetric(float64(gets.Load())/float64(b.N)/(float64(size)/(1<<30)), "GETs/GiB")
		})
		b.Run(fmt.Sprint("4x8MiB/delay=", delay), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				rangeGets(b.Context(), b, delayed, w)
			}
		})
	}
}

func rangeGets(ctx context.Context, b *testing.B, store objstore.Store, w *coldWorld) {
	type job struct {
		key string
		off int64
		n   int64
	}
	jobs := make(chan job)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			buf := make([]byte, 1<<20)
			for j := range jobs {
				r, err := store.GetRange(ctx, j.key, j.off, j.n)
				if err == nil {
					_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf)
					r.Close()
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range w.entries {
		e := &w.entries[i]
		for off := int64(0); off < e.Size; off += 8 << 20 {
			jobs <- job{e.LogKey(testPart), off, min(8<<20, e.Size-off)}
		}
	}
	close(jobs)
	wg.Wait()
}

type readerAt []byte

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, r[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
