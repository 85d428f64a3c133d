package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that knows, at any moment, what a power loss
// could leave of it: see CrashClone. Relative names count from the root, which
// is there and durable from the start; everything else, directories above all,
// is durable only once synced as FS says.
type Mem struct {
	mu struct {
		sync.RWMutex
		root  *node
		locks map[string]bool
		onOp  func(Op)
	}
}

// NewMem makes an empty file system.
func NewMem() *Mem {
	m := &Mem{}
	m.mu.root = newDir()
	m.mu.locks = make(map[string]bool)
	return m
}

var _ FS = (*Mem)(nil)

// OnOp has f called after every call that changed something (Op.Changes), so
// that a test can crash after each. f runs without a lock held and may use m.
func (m *Mem) OnOp(f func(Op)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.onOp = f
}

// told ends a changing call: it unlocks m and then tells.
func (m *Mem) told(op Op) {
	f := m.mu.onOp
	m.mu.Unlock()
	if f != nil {
		f(op)
	}
}

// find returns the node of name.
func (m *Mem) find(name string) (*node, error) {
	n := m.mu.root
	for _, part := range split(name) {
		if n.dir == nil {
			return nil, syscall.ENOTDIR
		}
		if n = n.dir.cur[part]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// parent returns the directory that name is or would be in, and its last part.
func (m *Mem) parent(name string) (*node, string, error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", syscall.EBUSY // the root itself
	}
	last := parts[len(parts)-1]
	d, err := m.find(strings.Join(parts[:len(parts)-1], "/"))
	if err == nil && d.dir == nil {
		err = syscall.ENOTDIR
	}
	return d, last, err
}

func split(name string) []string {
	name = strings.Trim(filepath.ToSlash(filepath.Clean("/"+name)), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (m *Mem) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	m.mu.Lock()
	f, changed, err := m.open(name, flag)
	if err != nil {
		m.mu.Unlock()
		return nil, pathError("open", name, err)
	}
	if !changed {
		m.mu.Unlock()
		return f, nil
	}
	m.told(Op{Kind: OpCreate, Name: name})
	return f, nil
}

func (m *Mem) open(name string, flag int) (_ *memFile, changed bool, err error) {
	d, last, err := m.parent(name)
	if err != nil {
		return nil, false, err
	}
	n := d.dir.cur[last]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, false, fs.ErrNotExist
	case n == nil:
		n = &node{modTime: time.Now()}
		d.dir.change(&dirChange{add: last, node: n})
		d.modTime = n.modTime
		changed = true
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, false, fs.ErrExist
	case n.dir != nil:
		return nil, false, syscall.EISDIR
	}
	if flag&os.O_TRUNC != 0 && len(n.file.cur) > 0 {
		n.file.truncate(0)
		n.modTime = time.Now()
		changed = true
	}
	const access = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
	return &memFile{m: m, n: n, name: name, access: flag & access}, changed, nil
}

func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	d, last, err := m.parent(name)
	if err == nil {
		n := d.dir.cur[last]
		switch {
		case n == nil:
			err = fs.ErrNotExist
		case n.dir != nil && len(n.dir.cur) > 0:
			err = syscall.ENOTEMPTY
		}
	}
	if err != nil {
		m.mu.Unlock()
		return pathError("remove", name, err)
	}
	d.dir.change(&dirChange{remove: last})
	d.modTime = time.Now()
	m.told(Op{Kind: OpRemove, Name: name})
	return nil
}

func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	if err := m.rename(oldname, newname); err != nil {
		m.mu.Unlock()
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
	}
	m.told(Op{Kind: OpRename, Name: oldname, NewName: newname})
	return nil
}

func (m *Mem) rename(oldname, newname string) error {
	from, oldlast, err := m.parent(oldname)
	if err != nil {
		return err
	}
	to, newlast, err := m.parent(newname)
	if err != nil {
		return err
	}
	n, over := from.dir.cur[oldlast], to.dir.cur[newlast]
	switch {
	case n == nil:
		return fs.ErrNotExist
	case n == over:
		return nil
	case over != nil && over.dir != nil && n.dir == nil:
		return syscall.EISDIR
	case over != nil && over.dir == nil && n.dir != nil:
		return syscall.ENOTDIR
	case over != nil && over.dir != nil && len(over.dir.cur) > 0:
		return syscall.ENOTEMPTY
	case n.dir != nil && inside(newname, oldname):
		return syscall.EINVAL
	}
	now := time.Now()
	from.modTime, to.modTime = now, now
	if from == to {
		from.dir.change(&dirChange{remove: oldlast, add: newlast, node: n})
		return nil
	}
	add := &dirChange{add: newlast, node: n}
	to.dir.change(add)
	from.dir.change(&dirChange{remove: oldlast, after: add})
	return nil
}

// inside tells whether name lies below dir.
func inside(name, dir string) bool {
	return strings.HasPrefix(strings.Join(split(name), "/")+"/", strings.Join(split(dir), "/")+"/")
}

func (m *Mem) MkdirAll(dir string, perm fs.FileMode) error {
	m.mu.Lock()
	n, changed := m.mu.root, false
	for _, part := range split(dir) {
		if n.dir == nil {
			break
		}
		next := n.dir.cur[part]
		if next == nil {
			next = newDir()
			n.dir.change(&dirChange{add: part, node: next})
			changed = true
		}
		n = next
	}
	if n.dir == nil {
		m.mu.Unlock()
		return pathError("mkdir", dir, syscall.ENOTDIR)
	}
	if !changed {
		m.mu.Unlock()
		return nil
	}
	m.told(Op{Kind: OpMkdir, Name: dir})
	return nil
}

func (m *Mem) ReadDir(dir string) ([]fs.DirEntry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find(dir)
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("readdir", dir, err)
	}
	var list []fs.DirEntry
	for name, child := range n.dir.cur {
		list = append(list, fs.FileInfoToDirEntry(memInfo{name, child.info()}))
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name() < list[j].Name() })
	return list, nil
}

func (m *Mem) Stat(name string) (Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return n.info(), nil
}

func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	n, err := m.find(dir)
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		m.mu.Unlock()
		return pathError("sync", dir, err)
	}
	n.dir.sync()
	m.told(Op{Kind: OpSyncDir, Name: dir})
	return nil
}

// Free tells of a file system without end. For one that fills up, see Injector.SetQuota.
func (m *Mem) Free(dir string) (free, total int64, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if _, err := m.find(dir); err != nil {
		return 0, 0, pathError("statfs", dir, err)
	}
	return math.MaxInt64 / 2, math.MaxInt64 / 2, nil
}

func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	f.Close()
	key := strings.Join(split(name), "/")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.locks[key] {
		return nil, fmt.Errorf("%w: %s", ErrLocked, name)
	}
	m.mu.locks[key] = true
	return &memLock{m: m, key: key}, nil
}

type memLock struct {
	m    *Mem
	key  string
	once sync.Once
}

func (l *memLock) Close() error {
	err := error(fs.ErrClosed)
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		delete(l.m.mu.locks, l.key)
		err = nil
	})
	return err
}
