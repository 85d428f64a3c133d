package filestore

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"firn/segment/vfs"
)

const createNew = os.O_RDWR | os.O_CREATE | os.O_EXCL

// tmpFiles names the temporary files of one Store. Its lock file tells other
// processes that they are in use, without a clock.
type tmpFiles struct {
	fs   vfs.FS
	dir  string
	id   string
	lock io.Closer
	n    atomic.Int64
}

// temps makes the temporary directory, and sweeps it, on the first write.
func (s *Store) temps() (*tmpFiles, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.tmp != nil {
		return s.mu.tmp, nil
	}
	t := &tmpFiles{fs: s.fs, dir: filepath.Join(s.dir, tmpName), id: rand.Text()}
	if s.mu.marked {
		// It was there: if it is not now, this is not our directory.
		if _, err := s.fs.Stat(t.dir); err != nil {
			return nil, fmt.Errorf("the archive directory is not what it was (unmounted?): %w", vanished{err})
		}
	}
	if err := s.fs.MkdirAll(t.dir, 0o755); err != nil {
		return nil, err
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return nil, err
	}
	lock, err := s.fs.Lock(filepath.Join(t.dir, t.id+".lock"))
	if err != nil {
		return nil, err
	}
	t.lock = lock
	t.sweep()
	s.mu.marked, s.mu.tmp = true, t
	return t, nil
}

// next is a new name.
func (t *tmpFiles) next() string {
	return filepath.Join(t.dir, fmt.Sprintf("%s-%d", t.id, t.n.Add(1)))
}

// sweep removes the files of processes that are gone: those whose lock can be
// had, or is missing. Should it hit one that has just begun, that one's write
// fails and is tried again. Errors leave a file for the next sweep.
func (t *tmpFiles) sweep() {
	entries, err := t.fs.ReadDir(t.dir)
	if err != nil {
		return
	}
	alive := map[string]bool{t.id: true}
	for _, e := range entries {
		id, isLock := strings.CutSuffix(e.Name(), ".lock")
		if !isLock || id == t.id || id == "write" {
			continue
		}
		l, err := t.fs.Lock(filepath.Join(t.dir, e.Name()))
		if err != nil {
			alive[id] = true
			continue
		}
		t.fs.Remove(filepath.Join(t.dir, e.Name()))
		l.Close()
	}
	for _, e := range entries {
		if id, _, ok := strings.Cut(e.Name(), "-"); ok && !alive[id] {
			t.fs.Remove(filepath.Join(t.dir, e.Name()))
		}
	}
}

func (t *tmpFiles) close() error {
	t.fs.Remove(filepath.Join(t.dir, t.id+".lock"))
	return t.lock.Close()
}
