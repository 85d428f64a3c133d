package tiering

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firn/tiering/objstore"
)

// running starts the archive's workers, inside a synctest bubble, and returns
// what stops them.
func (b *broker) running() (stop func()) {
	ctx, cancel := context.WithCancel(b.w.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.archive.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			b.w.t.Errorf("Run = %v", err)
		}
	}
}

// pass lets time go by, on the bubble's clock and the broker's.
func (w *world) pass(d time.Duration) {
	for range int(d / time.Second) {
		w.advance(time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

func TestRunArchivesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.defaults()
		o.policy.RollAfter, o.policy.RollSmallAfter = time.Minute, time.Minute
		o.policy.RetentionMs = time.Hour.Milliseconds()
		b := w.start(newDisk(), o)
		defer b.stop()
		b.lead(1)
		stop := b.running()
		b.append(150)
		w.pass(30 * time.Second)
		if o := b.log.Offsets(); o.ArchivedEnd < 100 || o.LocalStart < 100 {
			t.Fatalf("after 30 s: %+v", o)
		}
		w.pass(60 * time.Second)
		if o := b.log.Offsets(); o.ArchivedEnd != 150 || o.LocalStart != 150 {
			t.Fatalf("after 90 s: %+v", o)
		}
		w.pass(time.Hour)
		if o := b.log.Offsets(); o.LogStart != 150 {
			t.Fatalf("after the retention: %+v", o)
		}
		w.pass(3 * time.Minute)
		for _, key := range w.bucket.Keys() {
			if strings.HasSuffix(key, ".log") {
				t.Fatalf("%s is left", key)
			}
		}
		stop()
	})
}

func TestUploadsComeBackAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.start(newDisk(), w.defaults())
		defer b.stop()
		b.lead(1)
		var tries atomic.Int64
		b.store.Set(func(op objstore.Op) objstore.Fault {
			if op.Kind == objstore.OpPut {
				tries.Add(1)
			}
			return objstore.Fault{Before: errAway}
		})
		stop := b.running()
		b.append(300)
		w.pass(10 * time.Minute)
		if n := tries.Load(); n < 20 || n > 80 { // two PUTs each, up to 30 s apart
			t.Errorf("%d PUTs in 10 minutes of outage", n)
		}
		if o := b.log.Offsets(); o.LocalStart != 0 || o.ArchivedEnd != -1 {
			t.Fatalf("during the outage: %+v", o)
		}
		if s := b.log.Status(w.now()); s.PendingAge < 9*time.Minute || !strings.Contains(s.Reason, "refused") {
			t.Fatalf("status: %+v", s)
		}
		b.store.Set(nil)
		w.pass(time.Minute)
		if o := b.log.Offsets(); o.ArchivedEnd < 250 || o.LocalStart != o.ArchivedEnd {
			t.Fatalf("after it: %+v", o)
		}
		stop()
		b.verify()
	})
}

// TestPanicEndsNothing: the supervisor reports it, and tries again.
func TestPanicEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.start(newDisk(), w.defaults())
		defer b.stop()
		b.lead(1)
		var panics atomic.Int64
		b.failpoint = func(name string) error {
			if name == "tiering.upload.before" && panics.Add(1) <= 3 {
				panic("out of luck")
			}
			return nil
		}
		stop := b.running()
		b.append(150)
		w.pass(30 * time.Second)
		if o := b.log.Offsets(); o.ArchivedEnd < 100 || panics.Load() <= 3 {
			t.Fatalf("after %d panics: %+v", panics.Load(), o)
		}
		stop()
		w.advance(time.Hour)
		b.sweepClean()
	})
}

func TestCopyRateIsAMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		l.set(1000)
		start := time.Now()
		for range 11 {
			if err := l.wait(t.Context(), 500); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("5500 bytes at 1000 a second began their last 500 after %v, want 5s", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := l.wait(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deaf to ctx: %v", err)
		}
		l.set(0)
		if err := l.wait(t.Context(), 1<<30); err != nil {
			t.Error(err)
		}
	})
}

func TestShortDiskIsRelievedOnceNotEachSecond(t *testing.T) {
	w := newWorld(t)
	o := w.defaults()
	o.policy.LocalRetentionBytes = -1
	b := w.start(newDisk(), o)
	b.lead(1)
	b.append(400)
	b.mustUpload()
	size := b.log.Local().Size()
	b.archive.cfg.Shortage = func() int64 { return 5000 } // the file system shows what was freed only later
	var f freed
	for range 30 {
		b.archive.relieve(t.Context(), &f)
		w.advance(time.Second)
	}
	if gone := size - b.log.Local().Size(); gone < 5000 || gone > 5000+2048 {
		t.Fatalf("%d bytes freed for a shortage of 5000", gone)
	}
	w.advance(2 * time.Minute)
	b.archive.relieve(t.Context(), &f)
	if gone := size - b.log.Local().Size(); gone < 10000 {
		t.Fatalf("%d bytes freed in all though the disk is still short", gone)
	}
	b.verify()
}

// TestStalledStoreHoldsNoWorker: a PUT that hangs ends, and another partition's
// worker is free again.
func TestStalledStoreHoldsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.start(newDisk(), w.defaults())
		defer b.stop()
		b.lead(1)
		b.append(100)
		b.settle()
		never := make(chan struct{})
		b.store.Set(func(op objstore.Op) objstore.Fault {
			if op.Kind == objstore.OpPut {
				return objstore.Fault{Hold: never}
			}
			return objstore.Fault{}
		})
		start := time.Now()
		_, err := b.log.Step(t.Context(), w.now())
		if !errors.Is(err, errStalled) || time.Since(start) != stallAfter {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		b.store.Set(nil)
		b.mustUpload()
		b.verify()
	})
}

// silent is a store that has owed an answer for so long.
type silent struct {
	objstore.Store
	owed time.Duration
}

func (s *silent) Silence() time.Duration { return s.owed }

// TestStoreThatHangsIsTheReason: long before a request gives up, and only where
// one is under way.
func TestStoreThatHangsIsTheReason(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	b.mustUpload()
	s := &silent{Store: b.archive.store, owed: silentAfter - 1}
	b.archive.store = s
	if !b.log.step.tryLock() {
		t.Fatal("a step is under way")
	}
	if st := b.log.Status(w.now()); st.LastError != nil || st.Reason != b.log.policy.Load().waits(st.PendingBytes) {
		t.Errorf("before its time: %q, %v", st.Reason, st.LastError)
	}
	s.owed = 12 * time.Second
	if st := b.log.Status(w.now()); !errors.Is(st.LastError, errSilent) || !strings.Contains(st.Reason, "12 s") {
		t.Errorf("the store hangs: %q, %v", st.Reason, st.LastError)
	}
	b.log.step.unlock()
	if st := b.log.Status(w.now()); st.LastError != nil {
		t.Errorf("nothing is under way: %v", st.LastError)
	}
}
