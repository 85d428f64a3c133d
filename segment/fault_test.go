package segment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"firn/segment/vfs"
)

// faults fails the n-th call that changes something, or the n-th call at all.
type faults struct {
	mu    sync.Mutex
	left  int
	every bool
	err   error
	hit   *vfs.Op
}

func (f *faults) hook(op vfs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.every && !op.Changes() || op.Kind == vfs.OpClose || op.Kind == vfs.OpLock {
		return nil
	}
	if f.left--; f.left != 0 {
		return nil
	}
	f.hit = &op
	if op.Kind == vfs.OpWrite {
		return &vfs.Fault{Err: f.err, Bytes: op.Len / 2}
	}
	return f.err
}

// TestEveryFault fails every call once, with an I/O error and with a full disk:
// whatever fails, what was acknowledged is there after a power loss (S4, S6).
func TestEveryFault(t *testing.T) {
	for _, fault := range []error{syscall.EIO, syscall.ENOSPC} {
		synctest.Test(t, func(t *testing.T) { everyFault(t, fault) })
	}
}

func everyFault(t *testing.T, fault error) {
	for n := 1; ; n++ {
		mem := vfs.NewMem()
		f := &faults{left: n, every: true, err: fault}
		acked, start := writeSome(vfs.Inject(mem, f.hook))
		if f.hit == nil {
			t.Logf("%v: %d calls", fault, n)
			return
		}
		if err := survives(mem, acked, start); err != nil {
			t.Errorf("%v in call %d, %v: %v", fault, n, *f.hit, err)
		}
	}
}

// writeSome lives until something fails for good, and returns the end of what was
// acknowledged and the log start that was.
func writeSome(fsys vfs.FS) (acked, start int64) {
	c := quiet(fsys)
	opts := Options{SegmentBytes: 700, FlushMessages: 1, FileDeleteDelayMs: 1}
	for range 2 {
		d, err := OpenDir(c)
		if err != nil {
			continue
		}
		l, err := d.Open(testTP, [16]byte{1}, opts)
		if err != nil {
			d.Close(CleanMark{})
			continue
		}
		l.Lead(context.Background(), 3)
		for i := range 12 {
			if _, err := l.Append(records(2, 40, testNow+int64(i)), AppendOptions{Epoch: 3, Now: testNow}); err == nil && l.Flush() == nil {
				acked = max(acked, l.Offsets().Counted)
			}
			if i == 5 {
				d.Checkpoint()
				l.SetHighWatermark(acked)
			}
			if i == 8 && l.Offsets().HighWatermark >= 6 && l.SetLogStart(context.Background(), 6) == nil {
				start = 6
			}
		}
		d.Close(CleanMark{})
	}
	return acked, start
}

func survives(mem *vfs.Mem, acked, start int64) error {
	d, err := OpenDir(quiet(mem.CrashClone(vfs.CrashOptions{})))
	if err != nil {
		return err
	}
	defer d.Close(CleanMark{})
	l, err := d.Open(testTP, [16]byte{1}, Options{})
	if err != nil {
		return err
	}
	o := l.Offsets()
	if l.Err() != nil || o.End < acked || o.LogStart < start && acked > 0 {
		return fmt.Errorf("log is %d to %d, %d to %d was acknowledged: %w", o.LogStart, o.End, start, acked, l.Err())
	}
	_, err = tryReadAll(l, o.LogStart)
	return err
}

// TestFailedSyncIsFinal (S4, hazard C6): the log takes nothing more, though the
// disk would.
func TestFailedSyncIsFinal(t *testing.T) {
	mem := vfs.NewMem()
	broken := false
	syncs := 0
	fsys := vfs.Inject(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && op.Name == firstLog {
			syncs++
			if broken {
				broken = false
				return syscall.EIO
			}
		}
		return nil
	})
	d := openDir(t, quiet(fsys))
	l := openLog(t, d, Options{FlushMessages: 1})
	woken := make(chan struct{}, 10)
	l.OnCounted(func() { woken <- struct{}{} })
	mustAppend(t, l, records(1, 10, testNow))
	<-woken
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	broken = true
	mustAppend(t, l, records(1, 10, testNow))
	if err := l.Flush(); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("Flush: %v", err)
	}
	<-woken // whoever waits for the flush hears that it won't come
	before := syncs
	if _, err := l.Append(records(1, 10, testNow), AppendOptions{Now: testNow}); !errors.Is(err, ErrFailed) {
		t.Fatalf("Append after a failed sync: %v", err)
	}
	if o := l.Offsets(); o.Counted != 1 {
		t.Fatalf("counted %d", o.Counted)
	}
	if err := d.Close(CleanMark{}); err == nil {
		t.Fatal("a directory with a failed log closed as if all were well")
	}
	if syncs != before {
		t.Fatal("the sync was tried again")
	}
}

// TestFullDisk (S4, hazard C7): appends are refused, nothing of them is left, and
// the log goes on by itself when there is space.
func TestFullDisk(t *testing.T) {
	size := len(records(2, 50, testNow))
	for room := int64(0); room < 600; room += 13 {
		mem := vfs.NewMem()
		fsys := vfs.Inject(mem, nil)
		d := openDir(t, quiet(fsys))
		l := openLog(t, d, Options{SegmentBytes: 500})
		mustAppend(t, l, records(2, 50, testNow))
		fsys.SetQuota(room)
		acked := int64(2)
		for range 5 {
			a, err := l.Append(records(2, 50, testNow), AppendOptions{Now: testNow})
			if err == nil {
				acked = a.Last + 1
			} else if !errors.Is(err, ErrNoSpace) {
				t.Fatalf("room %d: %v", room, err)
			}
		}
		if got := readAll(t, l, 0); int64(2*len(got)) != acked {
			t.Fatalf("room %d: read %v, acknowledged to %d", room, got, acked)
		}
		for _, seg := range append(l.st.load().sealed, l.st.load().active) {
			n := len(fileBytes(t, mem, seg.path(logSuffix)))
			if want := int(acked-seg.base) * size / 2; seg.end == never && n != want {
				t.Fatalf("room %d: active segment has %d bytes, %d are whole batches", room, n, want)
			}
		}
		fsys.SetQuota(-1)
		if a := mustAppend(t, l, records(2, 50, testNow)); a.First != acked {
			t.Fatalf("room %d: first append with space at %d, want %d", room, a.First, acked)
		}
		if err := l.Flush(); err != nil {
			t.Fatalf("room %d: %v", room, err)
		}
		l2 := openLog(t, openDir(t, quiet(mem.CrashClone(vfs.CrashOptions{}))), Options{})
		wantOffsets(t, l2, 0, acked+2)
	}
}

// TestReserve: below log.dir.min.free.bytes clients are refused before the disk
// is full, replicas and coordinators are not.
func TestReserve(t *testing.T) {
	fsys := vfs.Inject(vfs.NewMem(), nil)
	c := quiet(fsys)
	c.MinFreeBytes = 10_000
	d := openDir(t, c)
	l := openLog(t, d, Options{})
	mustAppend(t, l, records(1, 10, testNow))
	fsys.SetQuota(9_000)
	d.checkSpace()
	if _, err := l.Append(records(1, 10, testNow), AppendOptions{Now: testNow}); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("client: %v", err)
	}
	if _, err := l.Append(records(1, 10, testNow), AppendOptions{Now: testNow, Origin: OriginCoordinator}); err != nil {
		t.Fatalf("coordinator: %v", err)
	}
	if s := d.Space(); !s.Low || s.Reserve != 10_000 {
		t.Fatalf("%+v", s)
	}
	fsys.SetQuota(20_000)
	d.checkSpace()
	mustAppend(t, l, records(1, 10, testNow))
}

// TestReserveHoldsBetweenChecks: appends themselves notice that the reserve is
// reached, however fast they come.
func TestReserveHoldsBetweenChecks(t *testing.T) {
	const reserve, batchBytes = 50_000, 2_000
	fsys := vfs.Inject(vfs.NewMem(), nil)
	c := quiet(fsys)
	c.MinFreeBytes = reserve
	fsys.SetQuota(2 * reserve)
	d := openDir(t, c)
	l := openLog(t, d, Options{})
	for n := 1; ; n++ {
		_, err := l.Append(records(1, batchBytes, testNow), AppendOptions{Now: testNow})
		if errors.Is(err, ErrNoSpace) {
			break
		}
		if err != nil || n > reserve/batchBytes+1 {
			t.Fatalf("append %d: %v; %+v", n, err, d.Space())
		}
	}
}

// TestReserveHoldsBesideAnArchive: on a disk that an archive takes as much of as the
// log does, behind the log's back, the reserve is noticed in time.
func TestReserveHoldsBesideAnArchive(t *testing.T) {
	const reserve, batchBytes = 50_000, 2_000
	fsys := vfs.Inject(vfs.NewMem(), nil)
	c := quiet(fsys)
	c.MinFreeBytes = reserve
	fsys.SetQuota(3 * reserve)
	d := openDir(t, c)
	l := openLog(t, d, Options{})
	archive, err := fsys.OpenFile("/archive", os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for n := int64(0); ; n++ {
		if _, err := l.Append(records(1, batchBytes, testNow), AppendOptions{Now: testNow}); errors.Is(err, ErrNoSpace) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if _, err := archive.WriteAt(make([]byte, batchBytes), n*batchBytes); err != nil {
			t.Fatal(err)
		}
	}
	if s := d.Space(); s.Free < reserve-4*batchBytes {
		t.Errorf("%d bytes are free, the reserve is %d", s.Free, reserve)
	}
}

// TestFailpoints: every named point fails the call that it is in.
func TestFailpoints(t *testing.T) {
	errPoint := errors.New("failpoint")
	var at atomic.Value // of string; sealed files are synced in the background
	at.Store("")
	c := quiet(vfs.NewMem())
	c.Failpoint = func(name string) error {
		if name == at.Load() {
			return errPoint
		}
		return nil
	}
	d := openDir(t, c)
	n := int32(0)
	for name, call := range map[string]func(l *Log) error{
		"segment.append": func(l *Log) error {
			_, err := l.Append(records(1, 10, testNow), AppendOptions{Now: testNow})
			return err
		},
		"segment.written": func(l *Log) error {
			_, err := l.Append(records(1, 10, testNow), AppendOptions{Now: testNow})
			return err
		},
		"segment.seal": func(l *Log) error {
			if err := l.Roll(time.Time{}); err != nil {
				return err
			}
			return l.Flush()
		},
		"segment.roll":       func(l *Log) error { return l.Roll(time.Time{}) },
		"segment.truncate":   func(l *Log) error { return l.TruncateTo(2) },
		"segment.delete":     func(l *Log) error { return l.SetLogStart(context.Background(), 3) },
		"segment.checkpoint": func(*Log) error { return d.Checkpoint() },
	} {
		n++
		at.Store("")
		l, err := d.Open(TopicPartition{"t", n}, [16]byte{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, records(3, 10, testNow))
		if err := l.Roll(time.Time{}); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, records(3, 10, testNow))
		l.SetHighWatermark(6)
		at.Store(name)
		if err := call(l); !errors.Is(err, errPoint) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
