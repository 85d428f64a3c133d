package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// A Fault, returned by the hook of an Injector, says what goes wrong with the
// call and how far it gets. A hook may also return any other error, which is a
// Fault without effect.
type Fault struct {
	// Err is what the call returns.
	Err error
	// Done: the call takes full effect all the same, as when an answer is lost.
	Done bool
	// Bytes: of an OpWrite this many take effect, of an OpRead this many are read.
	Bytes int
}

func (f *Fault) Error() string { return f.Err.Error() }
func (f *Fault) Unwrap() error { return f.Err }

// Injector is an FS with faults; see Inject.
type Injector struct {
	fs   FS
	hook func(Op) error
	mu   struct {
		sync.Mutex
		limited bool
		quota   int64 // bytes by which files may still grow
	}
}

var _ FS = (*Injector)(nil)

// Inject puts hook before every call of fs and its files: nil lets the call
// through, an error fails it before it has an effect, a *Fault after or in the
// midst of it. The hook may be called concurrently and may itself use fs.
//
// A Sync that fails before its effect on a file of Mem loses what was not
// synced, as it does on Linux: a later Sync succeeds and does not bring it back.
//
// Its files do not offer Descriptor: sendfile would go around the faults.
// A nil hook is for SetQuota alone.
func Inject(fs FS, hook func(Op) error) *Injector {
	if hook == nil {
		hook = func(Op) error { return nil }
	}
	return &Injector{fs: fs, hook: hook}
}

// SetQuota makes a disk of which bytes are left: files can grow by no more in
// all, the write that would is cut short with ENOSPC, and Free tells. Truncate
// and Remove give back. A negative number lifts the quota.
func (i *Injector) SetQuota(bytes int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.limited, i.mu.quota = bytes >= 0, max(bytes, 0)
}

// grow takes n bytes from the quota, as many as there are; a negative n gives back.
func (i *Injector) grow(n int64) (granted int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.mu.limited {
		return n
	}
	n = min(n, i.mu.quota)
	i.mu.quota -= n
	return n
}

// do runs call under the hook.
func (i *Injector) do(op Op, call func() error) error {
	err := i.hook(op)
	if err == nil {
		return call()
	}
	var f *Fault
	if !errors.As(err, &f) {
		return err
	}
	if f.Done {
		if err := call(); err != nil {
			return err
		}
	}
	return f.Err
}

func (i *Injector) OpenFile(name string, flag int, perm fs.FileMode) (file File, err error) {
	op := Op{Kind: OpOpen, Name: name}
	if flag&os.O_CREATE != 0 {
		op.Kind = OpCreate
	}
	err = i.do(op, func() (err error) {
		var before Info
		if flag&os.O_TRUNC != 0 {
			before, _ = i.fs.Stat(name) // a missing file has no bytes to give back
		}
		if file, err = i.fs.OpenFile(name, flag, perm); err == nil {
			i.grow(-before.Size)
		}
		return err
	})
	if err != nil {
		if file != nil {
			file.Close()
		}
		return nil, err
	}
	return &faultyFile{File: file, i: i}, nil
}

func (i *Injector) Remove(name string) error {
	return i.do(Op{Kind: OpRemove, Name: name}, func() error { return i.freeing(name, i.fs.Remove) })
}

// freeing runs call, which takes name away, and gives its bytes back.
func (i *Injector) freeing(name string, call func(string) error) error {
	info, serr := i.fs.Stat(name)
	err := call(name)
	if err == nil && serr == nil && !info.IsDir {
		i.grow(-info.Size)
	}
	return err
}

func (i *Injector) Rename(oldname, newname string) error {
	return i.do(Op{Kind: OpRename, Name: oldname, NewName: newname}, func() error {
		return i.freeing(newname, func(string) error { return i.fs.Rename(oldname, newname) })
	})
}

func (i *Injector) MkdirAll(dir string, perm fs.FileMode) error {
	return i.do(Op{Kind: OpMkdir, Name: dir}, func() error { return i.fs.MkdirAll(dir, perm) })
}

func (i *Injector) ReadDir(dir string) (list []fs.DirEntry, err error) {
	err = i.do(Op{Kind: OpReadDir, Name: dir}, func() (err error) {
		list, err = i.fs.ReadDir(dir)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (i *Injector) Stat(name string) (info Info, err error) {
	err = i.do(Op{Kind: OpStat, Name: name}, func() (err error) {
		info, err = i.fs.Stat(name)
		return err
	})
	return info, err
}

func (i *Injector) SyncDir(dir string) error {
	return i.do(Op{Kind: OpSyncDir, Name: dir}, func() error { return i.fs.SyncDir(dir) })
}

func (i *Injector) Free(dir string) (free, total int64, err error) {
	err = i.do(Op{Kind: OpFree, Name: dir}, func() (err error) {
		free, total, err = i.fs.Free(dir)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.mu.limited {
		free = min(free, i.mu.quota)
	}
	return free, total, nil
}

func (i *Injector) Lock(name string) (c io.Closer, err error) {
	err = i.do(Op{Kind: OpLock, Name: name}, func() (err error) {
		c, err = i.fs.Lock(name)
		return err
	})
	if err != nil && c != nil {
		c.Close()
		c = nil
	}
	return c, err
}

// faultyFile is a File of an Injector.
type faultyFile struct {
	File // Name
	i    *Injector
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	err := f.i.hook(Op{Kind: OpRead, Name: f.Name(), Off: off, Len: len(p)})
	if err == nil {
		return f.File.ReadAt(p, off)
	}
	fault := asFault(err, len(p))
	n, rerr := f.File.ReadAt(p[:fault.Bytes], off)
	if rerr != nil {
		return n, rerr
	}
	return n, fault.Err
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	fault := asFault(f.i.hook(Op{Kind: OpWrite, Name: f.Name(), Off: off, Len: len(p)}), len(p))
	n, err := f.write(p[:fault.Bytes], off)
	if err != nil {
		return n, err
	}
	return n, fault.Err
}

// asFault makes of a hook's answer about n bytes how many of them take effect.
func asFault(err error, n int) Fault {
	var f *Fault
	switch {
	case err == nil:
		return Fault{Bytes: n}
	case !errors.As(err, &f):
		return Fault{Err: err}
	case f.Done:
		return Fault{Err: f.Err, Bytes: n}
	}
	return Fault{Err: f.Err, Bytes: min(max(f.Bytes, 0), n)}
}

// write writes what the quota allows.
func (f *faultyFile) write(p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	size, err := f.File.Size()
	if err != nil {
		return 0, err
	}
	want := max(off+int64(len(p))-max(size, off), 0) // a hole costs nothing
	got := f.i.grow(want)
	n, err := f.File.WriteAt(p[:len(p)-int(want-got)], off)
	if err == nil && got < want {
		err = pathError("write", f.Name(), syscall.ENOSPC)
	}
	return n, err
}

func (f *faultyFile) Sync() error {
	err := f.i.do(Op{Kind: OpSync, Name: f.Name()}, f.File.Sync)
	if m, ok := f.File.(*memFile); ok && err != nil {
		m.failSync() // nothing is left to lose if the effect came first
	}
	return err
}

func (f *faultyFile) Truncate(size int64) error {
	return f.i.do(Op{Kind: OpTruncate, Name: f.Name(), Off: size}, func() error {
		before, err := f.File.Size()
		if err != nil {
			return err
		}
		if err := f.File.Truncate(size); err != nil {
			return err
		}
		if size < before { // what lengthens is a hole
			f.i.grow(size - before)
		}
		return nil
	})
}

func (f *faultyFile) Size() (size int64, err error) {
	err = f.i.do(Op{Kind: OpSize, Name: f.Name()}, func() (err error) {
		size, err = f.File.Size()
		return err
	})
	return size, err
}

// Close closes the file even if the hook objects.
func (f *faultyFile) Close() error {
	err := f.i.hook(Op{Kind: OpClose, Name: f.Name()})
	if cerr := f.File.Close(); cerr != nil {
		return cerr
	}
	return err
}
