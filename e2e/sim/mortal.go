package main

import (
	"io"
	"io/fs"

	"firn/segment/vfs"
)

// mortal is a process's view of its disk: once the process is dead, nothing it
// calls has any effect. It stands before the faults of the disk, since a dead
// process doesn't even fail a sync.
type mortal struct {
	fs   vfs.FS
	dead func() bool
}

var _ vfs.FS = mortal{}

func (m mortal) do(f func() error) error {
	if m.dead() {
		return errCrashed
	}
	return f()
}

func (m mortal) OpenFile(name string, flag int, perm fs.FileMode) (f vfs.File, err error) {
	err = m.do(func() error {
		f, err = m.fs.OpenFile(name, flag, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	return mortalFile{f, m}, nil
}

func (m mortal) Remove(name string) error { return m.do(func() error { return m.fs.Remove(name) }) }
func (m mortal) Rename(from, to string) error {
	return m.do(func() error { return m.fs.Rename(from, to) })
}
func (m mortal) MkdirAll(dir string, perm fs.FileMode) error {
	return m.do(func() error { return m.fs.MkdirAll(dir, perm) })
}
func (m mortal) SyncDir(dir string) error { return m.do(func() error { return m.fs.SyncDir(dir) }) }

func (m mortal) ReadDir(dir string) (list []fs.DirEntry, err error) {
	err = m.do(func() error {
		list, err = m.fs.ReadDir(dir)
		return err
	})
	return list, err
}

func (m mortal) Stat(name string) (info vfs.Info, err error) {
	err = m.do(func() error {
		info, err = m.fs.Stat(name)
		return err
	})
	return info, err
}

func (m mortal) Free(dir string) (free, total int64, err error) {
	err = m.do(func() error {
		free, total, err = m.fs.Free(dir)
		return err
	})
	return free, total, err
}

func (m mortal) Lock(name string) (c io.Closer, err error) {
	err = m.do(func() error {
		c, err = m.fs.Lock(name)
		return err
	})
	return c, err
}

// mortalFile is an open file of a mortal. Closing it works for ever.
type mortalFile struct {
	vfs.File
	m mortal
}

func (f mortalFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.m.do(func() error {
		n, err = f.File.ReadAt(p, off)
		return err
	})
	return n, err
}

func (f mortalFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.m.do(func() error {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	return n, err
}

func (f mortalFile) Sync() error { return f.m.do(f.File.Sync) }
func (f mortalFile) Truncate(size int64) error {
	return f.m.do(func() error { return f.File.Truncate(size) })
}

func (f mortalFile) Size() (n int64, err error) {
	err = f.m.do(func() error {
		n, err = f.File.Size()
		return err
	})
	return n, err
}
