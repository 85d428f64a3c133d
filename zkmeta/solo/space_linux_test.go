package solo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"firn/replication/meta"
)

func smallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("no right to mount a small disk:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A full disk refuses commits, keeps what there was, and is got over: uploads
// need the store to make room.
func TestFullDiskIsGotOver(t *testing.T) {
	dir := smallDisk(t, "512k")
	ctx := context.Background()
	path := filepath.Join(dir, "meta.db")
	s := open(t, path)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 128<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(i int) error {
		return s.Commit(ctx, meta.Op{Kind: meta.Create, Path: fmt.Sprintf("/%04d", i), Value: make([]byte, 4000)})
	}
	n := 0
	var err error
	for ; err == nil && n < 1000; n++ {
		err = create(n)
	}
	n--
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("after %d nodes: %v", n, err)
	}
	if err := create(n); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("again: %v", err)
	}
	check := func(want int) {
		t.Helper()
		names, err := s.Children(ctx, "/")
		if err != nil || len(names) != want {
			t.Fatalf("%d nodes, %v, want %d", len(names), err, want)
		}
	}
	check(n)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := create(n + i); err != nil {
			t.Fatalf("with space again: %v", err)
		}
	}
	closeStore(t, s)
	s = open(t, path)
	check(n + 3)
	closeStore(t, s)
}

// What is deleted makes space, so on a full disk there is room for the commits that
// delete, which write before anything is free: those of a topic of many partitions.
func TestAFullDiskTakesDeletions(t *testing.T) {
	dir := smallDisk(t, "8m")
	ctx := context.Background()
	path := filepath.Join(dir, "meta.db")
	s := open(t, path)
	node := func(i int) string { return fmt.Sprintf("/%05d", i) }
	const nodes, large = 3000, 16 << 10
	for n := range nodes {
		if err := s.Commit(ctx, meta.Op{Kind: meta.Create, Path: node(n), Value: make([]byte, 300)}); err != nil {
			t.Fatal(err)
		}
	}
	err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 16<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for again := range 3 {
		ops := []meta.Op{{Kind: meta.Create, Path: fmt.Sprintf("/tombstone%d", again), Value: make([]byte, large)}}
		for n := again; n < nodes; n += 10 {
			ops = append(ops, meta.Op{Kind: meta.Delete, Path: node(n), Version: meta.AnyVersion})
		}
		if err := s.Commit(ctx, ops...); err != nil {
			t.Fatalf("deletion %d: %v", again, err)
		}
	}
	closeStore(t, s)
}
