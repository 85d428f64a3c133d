package cache

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"firn/tiering/objstore"
)

// consumer reads every partition from its start, each at the speed that pause
// sets, and begins some of them replaying.
func (s *shelf) consume(t *testing.T, c *Cache, parts [][]*Object, pause func() time.Duration) {
	var wg sync.WaitGroup
	for _, objs := range parts {
		wg.Go(func() {
			st := c.NewStream()
			defer st.Close()
			for k, o := range objs {
				for i := range o.Blocks() {
					width := 1
					if k == 0 && i == 0 {
						width = 8
					}
					st.At(o, i, width)
					for {
						b, wait, err := st.Get(o, i, true)
						if err != nil {
							t.Error(err)
							return
						}
						if b != nil {
							b.Release()
							break
						}
						<-wait
					}
					if known, soon := st.NeedsNext(); soon && known < 3 && k+known < len(objs) {
						st.Next(objs[k+known])
					}
					time.Sleep(pause())
				}
			}
		})
	}
	wg.Wait()
}

// TestSecondReaderOfTheSameDataAddsNoGets: whoever is ahead, however they speed
// up, slow down and stop for a moment, as long as what lies between them fits.
func TestSecondReaderOfTheSameDataAddsNoGets(t *testing.T) {
	for _, n := range []int{1, 2, 6} {
		s := newShelf()
		var parts [][]*Object
		for p := range n {
			var objs []*Object
			for k := range 12 / n {
				objs = append(objs, s.put(t, fmt.Sprintf("p%d-%d", p, k), 16<<20-99))
			}
			parts = append(parts, objs)
		}
		run := func(t *testing.T, seed uint64, consumers int) (gets int64) {
			synctest.Test(t, func(t *testing.T) {
				s.gets.Store(0)
				rng := rand.New(rand.NewPCG(seed, 1))
				var mu sync.Mutex
				random := func(n time.Duration) time.Duration {
					mu.Lock()
					defer mu.Unlock()
					return time.Duration(rng.Int64N(int64(n)))
				}
				s.fault = func(objstore.Op) objstore.Fault {
					return objstore.Fault{Delay: time.Millisecond + random(30*time.Millisecond)}
				}
				c := open(t, Config{Store: s.store, Memory: 64 << 20, Window: 32 << 20, GetBytes: 8 << 20})
				var wg sync.WaitGroup
				for range consumers {
					// A block of each partition takes this long, up to half
					// more for the slowest; the last to begin is some blocks behind.
					each := time.Duration(n) * (time.Millisecond + random(time.Millisecond/2))
					late := random(15 * time.Millisecond)
					wg.Go(func() {
						time.Sleep(late)
						s.consume(t, c, parts, func() time.Duration {
							if random(100) == 0 {
								return random(100 * time.Millisecond)
							}
							return each/2 + random(each)
						})
					})
				}
				wg.Wait()
				c.Close()
			})
			return s.gets.Load()
		}
		alone := run(t, 0, 1)
		for seed := range uint64(12) {
			for _, consumers := range []int{1, 2, 3} {
				if got := run(t, seed, consumers); got != alone {
					t.Errorf("%d partitions, seed %d: %d readers took %d GETs, one takes %d", n, seed, consumers, got, alone)
				}
			}
		}
	}
}
