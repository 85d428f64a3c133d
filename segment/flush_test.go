package segment

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"firn/segment/vfs"
)

// Whoever waits for a flush gets it, though none would be due by what flush.messages
// has become.
func TestAFlushThatWasDueIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		l := openLog(t, openDir(t, testConfig(t, vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
			if full.Load() && op.Kind == vfs.OpCreate && strings.Contains(op.Name, "partition.metadata") {
				return syscall.ENOSPC
			}
			return nil
		}))), Options{FlushMessages: 1})
		full.Store(true)
		mustAppend(t, l, records(1, 10, testNow))
		synctest.Wait()
		l.SetOptions(Options{})
		full.Store(false)
		time.Sleep(3 * chorePeriod)
		if o := l.Offsets(); o.Counted != 1 {
			t.Errorf("%+v", o)
		}
	})
}

// A flush that waits for space must not wait for ever once the log is closed: who
// closes it may wait for whoever flushes.
func TestCloseEndsAFlushThatWaitsForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := func(op vfs.Op) error {
			if op.Kind == vfs.OpCreate && strings.Contains(op.Name, ".snapshot") {
				return syscall.ENOSPC
			}
			return nil
		}
		l := openLog(t, openDir(t, testConfig(t, vfs.Inject(vfs.NewMem(), full))), Options{SegmentBytes: 1000, FlushMessages: 1})
		for range 10 {
			mustAppend(t, l, records(2, 100, testNow))
		}
		flushed := make(chan error, 1)
		go func() { flushed <- l.Flush() }()
		synctest.Wait()
		if err := l.Close(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Close = %v", err)
		}
		synctest.Wait()
		select {
		case err := <-flushed:
			if !errors.Is(err, ErrClosed) {
				t.Errorf("Flush = %v", err)
			}
		default:
			t.Error("Flush still waits")
		}
	})
}
