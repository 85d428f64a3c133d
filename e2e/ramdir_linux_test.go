package e2e

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// ramDir is a data directory in memory where there is one: what a killed process
// has written is as safe there as on a disk, and its fsyncs cost nothing.
func ramDir(t testing.TB) string {
	t.Helper()
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) == nil && int64(st.Bavail)*st.Bsize >= 1<<30 {
		if dir, err := os.MkdirTemp("/dev/shm", "firn-e2e-"); err == nil {
			t.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}
