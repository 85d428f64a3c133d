package broker

import (
	"fmt"
	"sync"
	"testing"
)

// BenchmarkAcksAll appends 16 KiB batches that three brokers have before they are
// acknowledged, over one connection and several, one request at a time on each.
func BenchmarkAcksAll(b *testing.B) {
	for _, conns := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("16KiB-x%d", conns), func(b *testing.B) {
			c := startCluster(b, 3)
			c.create("t", [][]int32{{1, 2, 3}}, "min.insync.replicas=2")
			c.inSyncWith("t", 1, 2, 3)
			req := produceReq(12, acksAll, "t", 0, realBatch(b, 16<<10))
			frame := frameOf(1, req)
			l := c.leader("t", 0)
			var all sync.WaitGroup
			work := make(chan struct{}, b.N)
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			b.SetBytes(16 << 10)
			b.ResetTimer()
			for range conns {
				cl := l.dial()
				all.Go(func() {
					buf := make([]byte, 4096)
					for range work {
						cl.exchange(frame, buf)
					}
				})
			}
			all.Wait()
			b.StopTimer()
		})
	}
}
