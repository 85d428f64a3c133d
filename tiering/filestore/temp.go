package filestore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

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
	if err := t.begin(); err != nil {
		return nil, err
	}
	s.mu.marked, s.mu.tmp = true, t
	return t, nil
}

// beginWait bounds how long a store waits for others that begin.
const beginWait = 10 * time.Second

// begin takes the lock that keeps others away from our files, and removes those of
// processes that are gone. One process at a time does so: a lock that has been made
// and isn't held yet would pass for one of a process that is gone, and from then on
// whoever begins would remove what we write.
func (t *tmpFiles) begin() error {
	deadline := time.Now().Add(beginWait)
	turn, err := t.fs.Lock(filepath.Join(t.dir, "begin.lock"))
	for errors.Is(err, vfs.ErrLocked) && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
		turn, err = t.fs.Lock(filepath.Join(t.dir, "begin.lock"))
	}
	if err != nil {
		return err
	}
	defer turn.Close()
	if t.lock, err = t.fs.Lock(filepath.Join(t.dir, t.id+".lock")); err != nil {
		return err
	}
	t.sweep()
	return nil
}

// next is a new name.
func (t *tmpFiles) next() string {
	return filepath.Join(t.dir, fmt.Sprintf("%s-%d", t.id, t.n.Add(1)))
}

// sweep removes the files of processes that are gone: those whose lock can be
// had, or is missing. Errors leave a file for the next sweep.
func (t *tmpFiles) sweep() {
	entries, err := t.fs.ReadDir(t.dir)
	if err != nil {
		return
	}
	alive := map[string]bool{t.id: true}
	for _, e := range entries {
		id, isLock := strings.CutSuffix(e.Name(), ".lock")
		if !isLock || id == t.id || id == "write" || id == "begin" {
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
