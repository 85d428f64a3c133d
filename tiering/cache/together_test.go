package cache

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"firn/tiering/objstore"
)

// consume reads every partition from its start, each at the speed that pauses
// sets, and begins some of them replaying. It tells of every block that it has had.
func (s *shelf) consume(t *testing.T, c *Cache, parts [][]*Object, pauses func(partition int) func() time.Duration, had func(partition int)) {
	var wg sync.WaitGroup
	for p, objs := range parts {
		pause := pauses(p)
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
					had(p)
					time.Sleep(pause())
				}
			}
		})
	}
	wg.Wait()
}

// TestSecondReaderOfTheSameDataAddsNoGets: whoever is ahead, however they speed
// up, slow down and stop for a moment, as long as what lies between them fits into
// the memory; when it doesn't quite, hardly any.
func TestSecondReaderOfTheSameDataAddsNoGets(t *testing.T) {
	const memory = 64 << 20
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
		run := func(t *testing.T, seed uint64, consumers int) (gets int64, apart int) {
			var at apartness
			at.init(consumers, n)
			synctest.Test(t, func(t *testing.T) {
				s.gets.Store(0)
				// Whose number comes next is not left to which goroutine runs
				// first: each has a source of its own, and each GET.
				source := func(who ...any) func(time.Duration) time.Duration {
					h := fnv.New64a()
					fmt.Fprint(h, who...)
					rng := rand.New(rand.NewPCG(seed, h.Sum64()))
					return func(n time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(n))) }
				}
				s.fault = func(op objstore.Op) objstore.Fault {
					return objstore.Fault{Delay: time.Millisecond + source("GET", op.Key, op.Off)(30*time.Millisecond)}
				}
				c := open(t, Config{Store: s.store, Memory: memory, Window: 32 << 20, GetBytes: 8 << 20})
				var wg sync.WaitGroup
				for k := range consumers {
					random := source("consumer", k)
					// A block of each partition takes this long, up to half
					// more for the slowest; the last to begin is some blocks behind.
					each := time.Duration(n) * (time.Millisecond + random(time.Millisecond/2))
					late := random(15 * time.Millisecond)
					wg.Go(func() {
						time.Sleep(late)
						s.consume(t, c, parts, func(p int) func() time.Duration {
							random := source("consumer", k, "partition", p)
							return func() time.Duration {
								if random(100) == 0 {
									return random(100 * time.Millisecond)
								}
								return each/2 + random(each)
							}
						}, func(p int) { at.had(k, p) })
					})
				}
				wg.Wait()
				c.Close()
			})
			return s.gets.Load(), at.most
		}
		alone, _ := run(t, 0, 1)
		for seed := range uint64(2) { // each costs 20 s under -race
			for _, consumers := range []int{1, 2, 3} {
				got, apart := run(t, seed, consumers)
				limit := alone
				if apart*BlockSize > memory {
					limit += int64(consumers)
				}
				if got < alone || got > limit {
					t.Errorf("%d partitions, seed %d: %d readers, at most %d blocks apart, took %d GETs, one takes %d", n, seed, consumers, apart, got, alone)
				}
			}
		}
	}
}

// apartness is how far readers of the same partitions have been from each other.
type apartness struct {
	mu   sync.Mutex
	at   [][]int // by consumer and partition, in blocks
	most int     // between the first and the last of each partition, summed
}

func (a *apartness) init(consumers, partitions int) {
	for range consumers {
		a.at = append(a.at, make([]int, partitions))
	}
}

func (a *apartness) had(consumer, partition int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[consumer][partition]++
	sum := 0
	for p := range a.at[0] {
		first, last := 0, 1<<30
		for _, c := range a.at {
			first, last = max(first, c[p]), min(last, c[p])
		}
		sum += first - last
	}
	a.most = max(a.most, sum)
}
