package vfs

import "syscall"

// Sync is (*os.File).Sync: F_FULLFSYNC, because fsync on darwin does not reach
// the medium and there is no fdatasync.
func (f *osFile) Sync() error { return f.File.Sync() }

func blockSize(st *syscall.Statfs_t) int64 { return int64(st.Bsize) }
