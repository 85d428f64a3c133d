package vfs

import (
	"io"
	"io/fs"
	"time"
)

// FS is the few file-system calls that firn makes. Names are paths of the
// operating system. Errors are those of package os: errors.Is with
// fs.ErrNotExist, fs.ErrExist and syscall.ENOSPC must work.
//
// OS, Mem, the crash version and Inject all pass the same contract test.
type FS interface {
	// OpenFile opens name with os flags (os.O_RDWR, os.O_CREATE, os.O_EXCL,
	// os.O_TRUNC; never os.O_APPEND). A created file is durable only once it is
	// synced and its directory is synced.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// Rename replaces newname atomically; durable once both directories are synced.
	Rename(oldname, newname string) error
	// MkdirAll creates dir and its missing parents.
	MkdirAll(dir string, perm fs.FileMode) error
	// ReadDir lists dir, sorted by name.
	ReadDir(dir string) ([]fs.DirEntry, error)
	// Stat tells of a file or directory.
	Stat(name string) (Info, error)
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Free tells the bytes of the file system that holds dir: what an
	// unprivileged writer may still use, and the whole.
	Free(dir string) (free, total int64, err error)
	// Lock takes an exclusive lock on name (created if missing) that the
	// kernel drops with the process. It does not wait: ErrLocked if another
	// process or another Lock of this process holds it.
	Lock(name string) (io.Closer, error)
}

// File is an open file. Reads and writes carry their position, so one File is
// safe for concurrent use.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the file's data and size durable (fdatasync where there is one).
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
	Name() string
}

// Info is what Stat tells.
type Info struct {
	Size    int64
	ModTime time.Time
	IsDir   bool
}
