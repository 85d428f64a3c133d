package replication

import (
	"context"
	"sync"
	"testing"
	"time"

	"firn/replication/isr"
	"firn/segment"
)

// woken: a wake-up is there. It takes it.
func woken(w *Waiter) bool {
	select {
	case <-w.C():
		return true
	default:
		return false
	}
}

func TestFetchIsWokenByItsMinBytes(t *testing.T) {
	var ps []*Partition
	for range 3 {
		ps = append(ps, newPartition(t, newFakeLog(), isr.Rules{}, led(me, 0, me)))
	}
	w := NewWaiter()
	wait := func(minBytes int64) {
		w.Reset(minBytes)
		for _, p := range ps {
			o, err := p.Offsets(View{Epoch: AnyEpoch})
			if err != nil {
				t.Fatal(err)
			}
			w.Add(p, o.HighWatermark, segment.UntilHighWatermark)
		}
	}
	for _, minBytes := range []int64{0, 1} {
		wait(minBytes)
		mustAppend(t, ps[1], 1)
		if !woken(w) {
			t.Fatalf("min bytes %d: not woken by a record", minBytes)
		}
	}
	wait(20) // three records of 8 bytes, wherever they come
	for i, p := range ps {
		mustAppend(t, p, 1)
		if got, want := woken(w), i == 2; got != want {
			t.Fatalf("min bytes 20: woken = %v after %d bytes", got, 8*(i+1))
		}
	}
	w.Reset(0)
	mustAppend(t, ps[0], 1)
	if woken(w) {
		t.Fatal("woken after Reset")
	}
}

func TestFetchIsNotWokenByWhatItMayNotSee(t *testing.T) {
	l := newFakeLog()
	p := newPartition(t, l, isr.Rules{MinInsync: 1, Replicas: 2}, led(me, 1, me, other))
	client, replica := NewWaiter(), NewWaiter()
	client.Add(p, 0, segment.UntilHighWatermark)
	replica.Add(p, 0, segment.UntilCounted)
	mustAppend(t, p, 1)
	if woken(client) {
		t.Error("a client was woken below the high watermark")
	}
	if !woken(replica) {
		t.Error("a replica was not woken by an append")
	}
	s := led(me, 1, me) // the other is taken out: what we have is committed
	s.Version = 1
	if err := p.Become(context.Background(), s, me); err != nil {
		t.Fatal(err)
	}
	if !woken(client) {
		t.Error("a client was not woken by the high watermark (A18)")
	}
}

// A minimum that can't be told from what was appended since must not be missed:
// the bytes were there before the wait began, and become visible during it.
func TestMinBytesCountWhatWasAppendedBefore(t *testing.T) {
	l := newFakeLog()
	l.hold = true
	p := newPartition(t, l, isr.Rules{}, led(me, 0, me))
	mustAppend(t, p, 10)
	w := NewWaiter()
	w.Reset(80)
	w.Add(p, 0, segment.UntilHighWatermark)
	l.flush()
	if !woken(w) {
		t.Fatal("not woken by 80 bytes")
	}
}

func TestAckIsWokenByItsOffset(t *testing.T) {
	l := newFakeLog()
	l.hold = true
	p := newPartition(t, l, isr.Rules{}, led(me, 0, me))
	first := mustAppend(t, p, 1)
	w := NewWaiter()
	w.Add(p, first.Last+1, segment.UntilHighWatermark) // one that is still to come
	l.flush()
	if woken(w) {
		t.Fatal("woken by another's commit")
	}
	second := mustAppend(t, p, 1)
	if woken(w) {
		t.Fatal("woken by an append that doesn't count yet")
	}
	l.flush()
	if !woken(w) {
		t.Fatal("not woken by its commit")
	}
	wantAcked(t, p, second, true, nil)
}

func TestChangesWakeEverybody(t *testing.T) {
	ctx := context.Background()
	p := newPartition(t, newFakeLog(), isr.Rules{}, led(me, 0, me))
	mustAppend(t, p, 10)
	w := NewWaiter()
	for _, c := range []struct {
		name string
		do   func() error
		want bool
	}{
		{"log start below it", func() error { return p.SetLogStart(ctx, 4, View{Epoch: AnyEpoch}) }, false},
		{"log start past it", func() error { return p.SetLogStart(ctx, 10, View{Epoch: AnyEpoch}) }, true},
		{"rules", func() error { p.SetRules(isr.Rules{MinInsync: 2}); return nil }, true},
		{"the same rules again", func() error { p.SetRules(isr.Rules{MinInsync: 2}); return nil }, false},
		{"the same leadership again", func() error { return p.Become(ctx, led(me, 0, me), me) }, false},
		{"leadership", func() error { return p.Become(ctx, led(other, 1, other), me) }, true},
		{"the same follower again", func() error { return p.Become(ctx, led(other, 1, other), me) }, false},
		{"end", func() error { return p.Stop(ctx) }, true},
	} {
		w.Reset(1000)
		past := int64(10)
		if c.name == "log start past it" {
			past = 9
		}
		w.Add(p, past, segment.UntilStable)
		w.missing.Store(1000)
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := woken(w); got != c.want {
			t.Errorf("%s: woken = %v", c.name, got)
		}
	}
}

// Many appenders, flushes and waiters at once: no wake-up is lost, and none
// comes late.
func TestNoWakeUpIsLost(t *testing.T) {
	const appenders, appends, waiters = 4, 300, 4
	l := newFakeLog()
	l.hold = true
	p := newPartition(t, l, isr.Rules{}, led(me, 0, me))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	var appending, waiting sync.WaitGroup
	flushed := make(chan struct{})
	for range appenders {
		appending.Go(func() {
			w := NewWaiter()
			for range appends {
				a, err := p.Append(records(1), AppendOptions{Epoch: AnyEpoch})
				if err != nil {
					t.Error(err)
					return
				}
				w.Reset(0)
				w.Add(p, a.Last, segment.UntilHighWatermark)
				for {
					if done, err := p.Acked(a); err != nil {
						t.Error(err)
						return
					} else if done {
						break
					}
					select {
					case <-w.C():
					case <-ctx.Done():
						t.Errorf("offset %d: no wake-up", a.Last)
						return
					}
				}
				w.Reset(0)
			}
		})
	}
	for i := range waiters {
		waiting.Go(func() {
			w := NewWaiter()
			defer w.Reset(0)
			for next := int64(0); next < appenders*appends; {
				w.Reset(int64(i) * 8)
				w.Add(p, next, segment.UntilHighWatermark)
				o, err := p.Offsets(View{Epoch: AnyEpoch})
				if err != nil {
					t.Error(err)
					return
				}
				if o.HighWatermark > next {
					next = o.HighWatermark
					continue
				}
				if next+int64(i) > appenders*appends {
					return // so many never come
				}
				select {
				case <-w.C():
				case <-ctx.Done():
					t.Errorf("min %d records: no wake-up past %d", i, next)
					return
				}
			}
		})
	}
	go func() {
		defer close(flushed)
		for p.log.Offsets().Counted < appenders*appends && ctx.Err() == nil {
			l.flush()
		}
	}()
	appending.Wait()
	waiting.Wait()
	<-flushed
	if n := p.waiting.n.Load(); n != 0 {
		t.Errorf("%d waiters left", n)
	}
}

// nopLog appends nothing, for measuring what Partition adds.
type nopLog struct {
	*fakeLog
	o segment.Offsets
}

func (l *nopLog) Append(b []byte, _ segment.AppendOptions) (segment.Appended, error) {
	l.o.End++
	l.o.Counted = l.o.End
	return segment.Appended{First: l.o.End - 1, Last: l.o.End - 1}, nil
}
func (l *nopLog) Offsets() segment.Offsets  { return l.o }
func (l *nopLog) SetHighWatermark(hw int64) { l.o.HighWatermark = hw }

func TestHotPathDoesNotAllocate(t *testing.T) {
	p := newPartition(t, &nopLog{fakeLog: newFakeLog()}, isr.Rules{}, led(me, 0, me))
	b := records(1)
	w := NewWaiter()
	round := func() {
		w.Reset(1)
		o, _ := p.Offsets(View{Epoch: 0})
		w.Add(p, o.HighWatermark, segment.UntilHighWatermark)
		a, err := p.Append(b, AppendOptions{Epoch: AnyEpoch, All: true})
		if err != nil {
			t.Fatal(err)
		}
		if done, err := p.Acked(a); !done || err != nil {
			t.Fatal(done, err)
		}
		if !woken(w) {
			t.Fatal("not woken")
		}
		w.Reset(0)
	}
	round()
	if n := testing.AllocsPerRun(100, round); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name    string
		waiters int
	}{{"NobodyWaits", 0}, {"TenWait", 10}} {
		b.Run(c.name, func(b *testing.B) {
			p := newPartition(b, &nopLog{fakeLog: newFakeLog()}, isr.Rules{}, led(me, 0, me))
			for range c.waiters {
				w := NewWaiter()
				w.Add(p, 0, segment.UntilHighWatermark)
			}
			batch := records(1)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Append(batch, AppendOptions{Epoch: AnyEpoch, All: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
