package replication

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"firn/segment"
	"firn/segment/vfs"
)

// next is what the follower asks for now; saying so must not wait for a disk.
func (p *pair) next() Ask {
	p.t.Helper()
	p.now = time.Now()
	said := make(chan Ask, 1)
	go func() { said <- p.fetcher.Next(p.now) }()
	select {
	case ask := <-said:
		return ask
	case <-time.After(time.Minute):
		p.t.Fatal("Next waits")
		panic("unreachable")
	}
}

// follow has the follower follow for so long, in a bubble.
func (p *pair) follow(d time.Duration) {
	p.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		ask := p.next()
		if ask.Fetch != nil {
			p.take(p.answer(ask.Fetch))
			time.Sleep(time.Millisecond)
			continue
		}
		select {
		case <-p.fetcher.Flushed():
		case <-time.After(time.Until(ask.Until)):
		}
	}
}

func (p *pair) wantEnds(ends ...int64) {
	p.t.Helper()
	for i, want := range ends {
		if o := p.parts[i].log.Offsets(); o.End != want {
			p.t.Fatalf("follower %d: %+v, want its end at %d", i, o, want)
		}
	}
}

// S6: a fetch's offset vouches for what is before it, so what is due is flushed.
func TestWhatIsDueIsFlushedBeforeTheFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flush := make(chan struct{})
		p := newPairOn(t, 1, segment.Options{FlushMessages: 1}, func(int) vfs.FS {
			return vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
				if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") {
					<-flush
				}
				return nil
			})
		})
		r := p.fetch()
		p.append(0)
		synctest.Wait()
		p.take(p.answer(r))
		if ask := p.next(); ask.Fetch != nil || !ask.Until.After(p.now) {
			t.Fatalf("asks before the flush: %+v", ask)
		}
		close(flush)
		<-p.fetcher.Flushed()
		r = p.fetch()
		if o := p.parts[0].log.Offsets(); r.Partitions[0].Offset != 1 || o.Counted != 1 {
			t.Fatalf("fetches at %d with %+v", r.Partitions[0].Offset, o)
		}
	})
}

// A log that can't flush what is due is left out of the fetch: the others that
// follow the same source go on, and it comes back by itself (S6).
func TestALogThatCanNotFlushHoldsUpNothingButItself(t *testing.T) {
	for name, fault := range map[string]struct {
		of   func(vfs.Op) bool
		does func(healed chan struct{}) error
	}{
		"slow": {
			func(op vfs.Op) bool { return op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") },
			func(healed chan struct{}) error { <-healed; return nil },
		},
		"full": {
			func(op vfs.Op) bool {
				return op.Kind == vfs.OpCreate && strings.Contains(op.Name, "partition.metadata")
			},
			func(chan struct{}) error { return syscall.ENOSPC },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var broken atomic.Bool
				healed := make(chan struct{})
				heal := func() {
					if broken.Swap(false) {
						close(healed)
					}
				}
				t.Cleanup(heal)
				p := newPairOn(t, 2, segment.Options{FlushMessages: 1}, func(i int) vfs.FS {
					if i == 1 {
						return vfs.NewMem()
					}
					return vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
						if broken.Load() && fault.of(op) {
							return fault.does(healed)
						}
						return nil
					})
				})
				t.Cleanup(heal) // before the logs are closed
				p.session = true
				broken.Store(true)
				p.append(0)
				p.append(1)
				p.follow(50 * time.Millisecond)
				p.wantEnds(1, 1)

				for range 20 {
					p.append(0)
					p.append(1)
					p.follow(5 * time.Millisecond)
				}
				p.wantEnds(1, 21)
				if _, ok := p.known[0]; ok {
					t.Error("the session still has the log that can't flush")
				}
				if o := p.leaders[0].log.Offsets(); o.HighWatermark != 0 {
					t.Errorf("what isn't flushed counts: the high watermark is %d", o.HighWatermark)
				}

				heal()
				p.follow(3 * time.Second)
				p.wantEnds(21, 21)
				p.append(0)
				p.follow(50 * time.Millisecond)
				p.wantEnds(22, 21)
			})
		})
	}
}
