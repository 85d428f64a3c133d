package vfs_test

import (
	"path/filepath"
	"testing"

	"firn/segment/vfs"
)

func TestOSFileOffersItsDescriptor(t *testing.T) {
	f := create(t, vfs.OS(), filepath.Join(t.TempDir(), "a"))
	d, ok := f.(vfs.Descriptor)
	if !ok {
		t.Fatal("no Descriptor")
	}
	rc, err := d.SyscallConn()
	must(t, err)
	var got uintptr
	must(t, rc.Control(func(fd uintptr) { got = fd }))
	if got == 0 {
		t.Error("no descriptor")
	}
}
