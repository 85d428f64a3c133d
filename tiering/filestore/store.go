package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"firn/segment/vfs"
	"firn/tiering/objstore"
)

// tmpName is the directory of temporary files and locks. It also marks a
// directory that was written to, see missing.
const tmpName = ".firn-tmp"

// Config says where objects are kept. Only Dir is required.
type Config struct {
	// Dir is the directory.
	Dir string
	// Create makes Dir if it is missing; otherwise that is an error.
	Create bool
	// MinFree is how many bytes of the file system stay free: an object that
	// would leave less is refused, so that an archive beside a log does not
	// eat the log's reserve. 0 means the smaller of 5 % and 5 GiB, as for
	// log.dir.min.free.bytes; negative means none.
	MinFree int64
	// FS is the file system; nil means the operating system's.
	FS vfs.FS
}

// Store is a directory of objects.
type Store struct {
	dir     string
	fs      vfs.FS
	minFree int64
	// writing is held by who looks and then writes: Create and Swap.
	writing chan struct{}

	mu struct {
		sync.Mutex
		// marked: tmpName exists, or did.
		marked bool
		tmp    *tmpFiles // nil before the first write
		// durable holds the directories whose entry in their parent is synced.
		durable map[string]bool
	}
}

var (
	_ objstore.Store    = (*Store)(nil)
	_ objstore.Swapper  = (*Store)(nil)
	_ objstore.Foldered = (*Store)(nil)
)

// ErrNoDir: the directory does not exist, and Config.Create was not set.
var ErrNoDir = errors.New("filestore: no such directory")

// Open opens the directory. It writes nothing, unless it has to create it.
func Open(c Config) (*Store, error) {
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}
	s := &Store{dir: dir, fs: c.FS, minFree: c.MinFree, writing: make(chan struct{}, 1)}
	s.mu.durable = make(map[string]bool)
	switch i, err := s.fs.Stat(dir); {
	case err == nil && !i.IsDir:
		return nil, fmt.Errorf("filestore: %s is not a directory", dir)
	case errors.Is(err, fs.ErrNotExist) && !c.Create:
		return nil, fmt.Errorf("%w: %s", ErrNoDir, dir)
	case errors.Is(err, fs.ErrNotExist):
		if err := s.makeRoot(); err != nil {
			return nil, fmt.Errorf("filestore: %w", err)
		}
	case err != nil:
		return nil, fmt.Errorf("filestore: %w", err)
	}
	_, err = s.fs.Stat(filepath.Join(dir, tmpName))
	s.mu.marked = err == nil
	return s, nil
}

// makeRoot makes the directory and what is missing above it.
func (s *Store) makeRoot() error {
	exists := filepath.Dir(s.dir)
	for exists != filepath.Dir(exists) {
		if _, err := s.fs.Stat(exists); err == nil {
			break
		}
		exists = filepath.Dir(exists)
	}
	if err := s.fs.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	for d := filepath.Dir(s.dir); len(d) >= len(exists); d = filepath.Dir(d) {
		if err := s.fs.SyncDir(d); err != nil {
			return err
		}
		if d == exists {
			break
		}
	}
	return nil
}

// Close gives back the lock of this store's temporary files.
func (s *Store) Close() error {
	s.mu.Lock()
	tmp := s.mu.tmp
	s.mu.tmp = nil
	s.mu.Unlock()
	if tmp == nil {
		return nil
	}
	return tmp.close()
}

// path is the file of key. CheckKey keeps it inside the directory.
func (s *Store) path(key string) (string, error) {
	if err := objstore.CheckKey(key); err != nil {
		return "", err
	}
	if first, _, _ := strings.Cut(key, "/"); first == tmpName {
		return "", fmt.Errorf("filestore: key %q is reserved", key)
	}
	return filepath.Join(s.dir, filepath.FromSlash(key)), nil
}

// mapped wraps an error of the file system. Only what is certain becomes one of
// objstore's errors; the rest is an outage.
func (s *Store) mapped(op, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case isMissing(err):
		return fmt.Errorf("filestore: %s %s: %w", op, key, s.missing(err))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("filestore: %s %s: %w: %w", op, key, objstore.ErrDenied, err)
	}
	return fmt.Errorf("filestore: %s %s: %w", op, key, err)
}

// isMissing: the file, or a directory on the way to it, does not exist.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// missing tells a missing object from a missing archive: behind an unmounted
// disk lies an empty directory, and to take its objects for lost would be wrong.
func (s *Store) missing(err error) error {
	if _, rootErr := s.fs.Stat(s.dir); rootErr != nil {
		return fmt.Errorf("the archive directory is gone: %w", rootErr)
	}
	s.mu.Lock()
	marked := s.mu.marked
	s.mu.Unlock()
	if marked {
		if _, tmpErr := s.fs.Stat(filepath.Join(s.dir, tmpName)); tmpErr != nil {
			return fmt.Errorf("the archive directory is not what it was (unmounted?): %w", vanished{tmpErr})
		}
	}
	return objstore.ErrNotFound
}

// vanished hides that an error is about a missing file: callers ask only
// whether an object is missing.
type vanished struct{ error }

func (vanished) Is(error) bool { return false }
