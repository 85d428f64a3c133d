package vfs

import (
	"io/fs"
	"syscall"
)

// Sync is fdatasync: the data and the size, but not the times, which would cost
// a second write to the journal.
func (f *osFile) Sync() error {
	if err := control(f.File, syscall.Fdatasync); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// blockSize is the unit in which statfs counts blocks: the fragment size, where
// the file system tells one.
func blockSize(st *syscall.Statfs_t) int64 {
	if st.Frsize > 0 {
		return int64(st.Frsize)
	}
	return int64(st.Bsize)
}
