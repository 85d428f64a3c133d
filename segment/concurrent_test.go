package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"firn/segment/batch"
	"firn/segment/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConcurrentUse appends, reads, rolls, flushes, checkpoints, moves the log
// start and truncates at the same time: readers see whole batches, without holes,
// and offsets in order.
func TestConcurrentUse(t *testing.T) {
	c := quiet(vfs.OS())
	c.Path = t.TempDir()
	c.MaxOpenFiles = 16 // so that files are closed and opened again
	d := openDir(t, c)
	l := openLog(t, d, Options{SegmentBytes: 2000, FlushMessages: 5, IndexIntervalBytes: 300, FileDeleteDelayMs: 1})
	var stop atomic.Bool
	var wg sync.WaitGroup
	fail := func(err error) {
		if err != nil && !stop.Swap(true) {
			t.Error(err)
		}
	}
	worker := func(f func() error) {
		wg.Go(func() {
			for !stop.Load() {
				fail(f())
			}
		})
	}
	var producing atomic.Int32
	producing.Store(2)
	for p := range 2 {
		wg.Go(func() {
			for i := 0; i < 600 && !stop.Load(); i++ {
				_, err := l.Append(produced(int64(p+1), 0, int32(2*i), 2), AppendOptions{Epoch: 1, Now: testNow})
				fail(err)
				l.SetHighWatermark(l.Offsets().Counted)
			}
			if producing.Add(-1) == 0 {
				stop.Store(true)
			}
		})
	}
	for range 2 {
		from := int64(0)
		worker(func() error {
			r, err := l.Read(ReadRequest{Offset: from, MaxBytes: 500, Until: UntilHighWatermark, MinOne: true})
			if errors.Is(err, ErrOffsetOutOfRange) {
				from = l.Offsets().LogStart
				return nil
			}
			if err != nil {
				return err
			}
			o := r.Offsets
			if o.Stable > o.HighWatermark || o.HighWatermark > o.Counted || o.Counted > o.End || o.LogStart > o.Stable {
				return fmt.Errorf("offsets %+v", o)
			}
			b, err := bytesOf(&r.Records)
			if err != nil {
				return err
			}
			for len(b) > 0 {
				bt, rest, err := batch.Next(b)
				if err != nil {
					break // cut in the middle
				}
				if err := batch.Verify(bt); err != nil {
					return err
				}
				if bt.BaseOffset() > from || bt.NextOffset() <= from {
					return fmt.Errorf("asked for %d, got %d–%d", from, bt.BaseOffset(), bt.LastOffset())
				}
				from, b = bt.NextOffset(), rest
			}
			return nil
		})
	}
	worker(func() error { return l.Roll(time.Time{}) })
	worker(func() error { return l.Flush() })
	worker(d.Checkpoint)
	worker(func() error {
		_, err := l.OffsetForTime(context.Background(), testNow, UntilHighWatermark)
		if err == nil {
			_, err = l.OffsetOfMaxTime(context.Background(), UntilHighWatermark)
		}
		return err
	})
	worker(func() error {
		time.Sleep(time.Millisecond)
		err := l.SetLogStart(context.Background(), max(l.Offsets().HighWatermark-100, 0))
		if errors.Is(err, ErrOffsetOutOfRange) {
			return nil
		}
		return err
	})
	worker(func() error {
		if _, err := l.Sealed(0); err != nil && !errors.Is(err, ErrOffsetOutOfRange) {
			return err
		}
		l.Producers()
		_, err := l.Segments()
		return err
	})
	wg.Wait()
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	if o := l.Offsets(); o.End != 2400 && !t.Failed() {
		t.Errorf("log ends at %d", o.End)
	}
	readAll(t, l, l.Offsets().LogStart)
}

// TestTruncationUnderReaders: a follower cuts and grows while others read.
func TestTruncationUnderReaders(t *testing.T) {
	c := quiet(vfs.OS())
	c.Path = t.TempDir()
	d := openDir(t, c)
	l := openLog(t, d, Options{SegmentBytes: 1000, FileDeleteDelayMs: 1})
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				o := l.Offsets()
				r, err := l.Read(ReadRequest{Offset: o.End / 2, MaxBytes: 500, Until: UntilCounted, MinOne: true})
				if err != nil && !errors.Is(err, ErrOffsetOutOfRange) {
					t.Error(err)
					return
				}
				r.Records.Release()
			}
		})
	}
	for i := range 60 {
		for range 10 {
			mustAppend(t, l, records(2, 50, testNow))
		}
		if err := l.TruncateTo(l.Offsets().End - int64(i%15)); err != nil {
			t.Error(err)
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	readAll(t, l, 0)
}

// TestGroupCommit (S6): appends go on while a sync runs, and one sync serves all
// that came before it.
func TestGroupCommit(t *testing.T) {
	mem := vfs.NewMem()
	begun, end := make(chan struct{}), make(chan struct{})
	var syncs atomic.Int64
	fsys := vfs.Inject(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && op.Name == firstLog {
			syncs.Add(1)
			begun <- struct{}{}
			<-end
		}
		return nil
	})
	d := openDir(t, quiet(fsys))
	l := openLog(t, d, Options{FlushMessages: 1})
	counted := make(chan int64, 10)
	l.OnCounted(func() { counted <- l.Offsets().Counted })

	mustAppend(t, l, records(1, 10, testNow))
	<-begun
	for range 10 {
		mustAppend(t, l, records(1, 10, testNow)) // does not wait
	}
	if o := l.Offsets(); o.Counted != 0 || o.End != 11 {
		t.Fatalf("%+v", o)
	}
	l.SetHighWatermark(11)
	if o := l.Offsets(); o.HighWatermark != 0 {
		t.Fatalf("high watermark %d passed the counted offset", o.HighWatermark)
	}
	end <- struct{}{}
	if got := <-counted; got != 1 {
		t.Fatalf("counted %d after the first sync", got)
	}
	<-begun
	end <- struct{}{}
	if got := <-counted; got != 11 {
		t.Fatalf("counted %d after the second", got)
	}
	if got := syncs.Load(); got != 2 {
		t.Fatalf("%d syncs", got)
	}
	close(end)
	go func() {
		for range begun {
		}
	}()
	d.Close(CleanMark{})
	close(begun)
}

// TestFlushMessagesCountsTheRestAtOnce (S6): until the number is reached nothing
// waits.
func TestFlushMessagesCountsTheRestAtOnce(t *testing.T) {
	block := make(chan struct{})
	fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && op.Name == firstLog {
			<-block
		}
		return nil
	})
	l := openLog(t, openDir(t, quiet(fsys)), Options{FlushMessages: 3})
	release := sync.OnceFunc(func() { close(block) })
	t.Cleanup(release) // before the log is closed, which waits for the sync
	for i := range 2 {
		mustAppend(t, l, records(1, 10, testNow))
		if o := l.Offsets(); o.Counted != int64(i+1) {
			t.Fatalf("after %d: %+v", i+1, o)
		}
	}
	mustAppend(t, l, records(1, 10, testNow))
	if o := l.Offsets(); o.Counted != 2 {
		t.Fatalf("the third waits: %+v", o)
	}
	release()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if o := l.Offsets(); o.Counted != 3 {
		t.Fatalf("%+v", o)
	}
}
