package vfs

import (
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// fileState is the bytes of a file: as calls see them, as a crash leaves them
// for certain, and the changes between the two, in order.
type fileState struct {
	cur, durable []byte
	pending      []fileChange
}

// fileChange is a write of data at off, or, if data is nil, a truncation to off.
type fileChange struct {
	off  int64
	data []byte
}

func (s *fileState) write(off int64, p []byte) {
	c := fileChange{off: off, data: append([]byte{}, p...)}
	s.cur = c.applyTo(s.cur)
	s.pending = append(s.pending, c)
}

func (s *fileState) truncate(size int64) {
	c := fileChange{off: size}
	s.cur = c.applyTo(s.cur)
	s.pending = append(s.pending, c)
}

func (s *fileState) sync() {
	for _, c := range s.pending {
		s.durable = c.applyTo(s.durable)
	}
	s.pending = nil
}

func (c fileChange) applyTo(b []byte) []byte {
	if c.data == nil {
		return resize(b, c.off)
	}
	if len(c.data) == 0 {
		return b
	}
	if end := c.off + int64(len(c.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[c.off:], c.data)
	return b
}

// resize cuts b, or lengthens it with zeros.
func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	if size > int64(cap(b)) {
		return append(b, make([]byte, size-int64(len(b)))...)
	}
	old := len(b)
	b = b[:size]
	clear(b[old:]) // what an earlier cut left there
	return b
}

// memFile is an open file of Mem.
type memFile struct {
	m      *Mem
	n      *node
	name   string
	access int
	closed atomic.Bool
}

var _ File = (*memFile)(nil)

func (f *memFile) check(op string, write bool) error {
	switch {
	case f.closed.Load():
		return pathError(op, f.name, fs.ErrClosed)
	case write && f.access == os.O_RDONLY, !write && f.access == os.O_WRONLY:
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	if off >= int64(len(f.n.file.cur)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, f.n.file.cur[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	f.m.mu.Lock()
	f.n.file.write(off, p)
	f.n.modTime = time.Now()
	f.m.told(Op{Kind: OpWrite, Name: f.name, Off: off, Len: len(p)})
	return len(p), nil
}

func (f *memFile) Truncate(size int64) error {
	if err := f.check("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathError("truncate", f.name, syscall.EINVAL)
	}
	f.m.mu.Lock()
	f.n.file.truncate(size)
	f.n.modTime = time.Now()
	f.m.told(Op{Kind: OpTruncate, Name: f.name, Off: size})
	return nil
}

func (f *memFile) Sync() error {
	if f.closed.Load() {
		return pathError("sync", f.name, fs.ErrClosed)
	}
	f.m.mu.Lock()
	f.n.file.sync()
	f.m.told(Op{Kind: OpSync, Name: f.name})
	return nil
}

// failSync does to the file what a failed fsync does on Linux: the pages that
// could not be written are clean from now on, so a second fsync reports success
// and the bytes, though still readable, are gone after a crash. // S4
func (f *memFile) failSync() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.file.pending = nil
}

func (f *memFile) Size() (int64, error) {
	if f.closed.Load() {
		return 0, pathError("stat", f.name, fs.ErrClosed)
	}
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	return int64(len(f.n.file.cur)), nil
}

func (f *memFile) Name() string { return f.name }

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	return nil
}
