package vfs_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"firn/segment/vfs"
)

var errBroken = errors.New("broken")

// failing fails calls of one kind.
func failing(kind vfs.Kind, err error) func(vfs.Op) error {
	return func(op vfs.Op) error {
		if op.Kind == kind {
			return err
		}
		return nil
	}
}

func TestFaultBeforeAndAfterTheEffect(t *testing.T) {
	m, _ := durable(t, "f")
	is(t, vfs.Inject(m, failing(vfs.OpRemove, errBroken)).Remove("/d/f"), errBroken)
	list(t, m, "/d", "f")
	is(t, vfs.Inject(m, failing(vfs.OpRemove, &vfs.Fault{Err: errBroken, Done: true})).Remove("/d/f"), errBroken)
	list(t, m, "/d")

	_, err := vfs.Inject(m, failing(vfs.OpCreate, &vfs.Fault{Err: errBroken, Done: true})).OpenFile("/d/g", os.O_RDWR|os.O_CREATE, 0o644)
	is(t, err, errBroken)
	list(t, m, "/d", "g")
}

func TestFaultInTheMidstOfAWrite(t *testing.T) {
	m, _ := durable(t, "")
	i := vfs.Inject(m, failing(vfs.OpWrite, &vfs.Fault{Err: syscall.EIO, Bytes: 3}))
	n, err := create(t, i, "/d/f").WriteAt([]byte("abcdef"), 0)
	if is(t, err, syscall.EIO); n != 3 {
		t.Errorf("got %d bytes, want 3", n)
	}
	content(t, m, "/d/f", "abc")
}

func TestFaultInTheMidstOfARead(t *testing.T) {
	m, _ := durable(t, "abcdef")
	i := vfs.Inject(m, failing(vfs.OpRead, &vfs.Fault{Err: syscall.EIO, Bytes: 3}))
	read(t, create(t, i, "/d/f"), 0, 6, "abc", syscall.EIO)
}

// A failed fsync is not made good by the next one (S4).
func TestFailedSyncLosesTheData(t *testing.T) {
	m, _ := durable(t, "old")
	fail := true
	i := vfs.Inject(m, func(op vfs.Op) error {
		if fail && op.Kind == vfs.OpSync {
			return syscall.EIO
		}
		return nil
	})
	f := create(t, i, "/d/f")
	write(t, f, 0, "new")
	is(t, f.Sync(), syscall.EIO)
	fail = false
	must(t, f.Sync())
	content(t, m, "/d/f", "new")
	content(t, m.CrashClone(powerLoss), "/d/f", "old")
	content(t, m.CrashClone(processCrash), "/d/f", "old")
}

func TestQuotaEndsGrowthUntilThereIsRoom(t *testing.T) {
	m, _ := durable(t, "1234")
	i := vfs.Inject(m, nil)
	i.SetQuota(4)
	f := create(t, i, "/d/f")
	write(t, f, 0, "abcd") // over what is there
	n, err := f.WriteAt([]byte("efghij"), 4)
	if is(t, err, syscall.ENOSPC); n != 4 {
		t.Errorf("got %d bytes, want 4", n)
	}
	size(t, f, 8)
	if free, _, err := i.Free("/d"); free != 0 || err != nil {
		t.Errorf("free: got %d, %v, want 0", free, err)
	}
	must(t, f.Truncate(6))
	write(t, f, 6, "xy")
	must(t, f.Close())
	must(t, i.Remove("/d/f"))
	if free, _, _ := i.Free("/d"); free != 8 {
		t.Errorf("free after the removal: got %d, want 8", free)
	}
	g := create(t, i, "/d/g")
	write(t, g, 0, "12345678")
	i.SetQuota(-1)
	write(t, g, 8, "and more")
}
