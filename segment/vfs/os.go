package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Descriptor is what a File of OS offers besides File, and one of Mem does not:
// the descriptor, for sendfile. The File stays its owner and must be kept open.
type Descriptor interface {
	SyscallConn() (syscall.RawConn, error)
}

// OS is the file system of the operating system.
func OS() FS { return osFS{} }

type osFS struct{}

var (
	_ FS         = osFS{}
	_ File       = (*osFile)(nil)
	_ Descriptor = (*osFile)(nil)
)

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &osFile{f}, nil
}

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

func (osFS) MkdirAll(dir string, perm fs.FileMode) error { return os.MkdirAll(dir, perm) }

func (osFS) ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }

func (osFS) Stat(name string) (Info, error) {
	i, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: i.Size(), ModTime: i.ModTime(), IsDir: i.IsDir()}, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		d.Close()
		return err
	}
	return d.Close()
}

func (osFS) Free(dir string) (free, total int64, err error) {
	var st syscall.Statfs_t
	for {
		err = syscall.Statfs(dir, &st)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := blockSize(&st)
	return int64(st.Bavail) * unit, int64(st.Blocks) * unit, nil
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	// flock belongs to the open file, not to the process: it also keeps out
	// another Lock of ours, and goes with the last descriptor.
	err = control(f, func(fd int) error { return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) })
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: %s", ErrLocked, name)
	}
	return nil, &fs.PathError{Op: "flock", Path: name, Err: err}
}

// osFile is an *os.File that counts its size by fstat and syncs by fdatasync.
type osFile struct{ *os.File }

func (f *osFile) Size() (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}

// control runs call on f's descriptor, again when a signal interrupts it. The
// descriptor cannot be closed, nor its number reused, meanwhile.
func control(f *os.File, call func(fd int) error) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return fs.ErrClosed
	}
	var cerr error
	err = rc.Control(func(fd uintptr) {
		for {
			cerr = call(int(fd))
			if cerr != syscall.EINTR {
				return
			}
		}
	})
	if err != nil {
		return fs.ErrClosed // the one reason that Control has, in words of its own
	}
	return cerr
}
