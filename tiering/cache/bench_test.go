package cache

import (
	"fmt"
	"testing"
	"time"

	"firn/segment/vfs"
	"firn/tiering/objstore"
)

// BenchmarkScan reads 512 MiB in objects of 64 MiB from a store in memory.
func BenchmarkScan(b *testing.B) {
	s := newShelf()
	objs := s.fill(b, 8, 64)
	for _, delay := range []time.Duration{0, 30 * time.Millisecond} {
		b.Run(fmt.Sprintf("delay=%v", delay), func(b *testing.B) {
			s.fault = always(objstore.Fault{Delay: delay})
			b.SetBytes(512 << 20)
			b.ReportAllocs()
			s.gets.Store(0)
			for b.Loop() {
				c, err := Open(Config{Store: s.store})
				if err != nil {
					b.Fatal(err)
				}
				st := c.NewStream()
				for k, o := range objs {
					for i := range o.Blocks() {
						st.At(o, i, 1)
						for {
							blk, wait, err := st.Get(o, i, true)
							if err != nil {
								b.Fatal(err)
							}
							if blk != nil {
								blk.Release()
								break
							}
							<-wait
						}
						if known, soon := st.NeedsNext(); soon && known < 3 && k+known < len(objs) {
							st.Next(objs[k+known])
						}
					}
				}
				st.Close()
				c.Close()
			}
			b.ReportMetric(float64(s.gets.Load())/float64(b.N)*2, "GETs/GiB")
		})
	}
}

// BenchmarkScanDisk reads 256 MiB that the disk cache has.
func BenchmarkScanDisk(b *testing.B) {
	s := newShelf()
	objs := s.fill(b, 4, 64)
	c, err := Open(Config{Store: s.store, FS: vfs.OS(), Dir: b.TempDir(), Disk: 1 << 30, MinFree: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if err := s.scan(c, objs, func() { settle(c) }); err != nil {
			b.Fatal(err)
		}
		for _, o := range objs {
			c.Forget(o)
		}
	}
	b.SetBytes(256 << 20)
	b.ReportAllocs()
	s.gets.Store(0)
	for b.Loop() {
		if err := s.scan(c, objs, nil); err != nil {
			b.Fatal(err)
		}
		for _, o := range objs {
			c.Forget(o)
		}
	}
	b.ReportMetric(float64(s.gets.Load())/float64(b.N), "GETs/op")
}
