package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"firn/segment/vfs"
	"firn/tiering/objstore"
)

// copyBytes is the size of the buffers that objects are written through.
const copyBytes = 1 << 20

var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

func (s *Store) Put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	return s.mapped("put", key, s.write(ctx, path, body, size))
}

func (s *Store) Create(ctx context.Context, key string, value []byte) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	unlock, err := s.lockWrites(ctx)
	if err != nil {
		return s.mapped("create", key, err)
	}
	defer unlock()
	switch _, err := s.fs.Stat(path); {
	case err == nil:
		return fmt.Errorf("filestore: create %s: %w", key, objstore.ErrExists)
	case !isMissing(err):
		return s.mapped("create", key, err)
	}
	return s.mapped("create", key, s.write(ctx, path, bytes.NewReader(value), int64(len(value))))
}

func (s *Store) Swap(ctx context.Context, key string, old, value []byte) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	unlock, err := s.lockWrites(ctx)
	if err != nil {
		return s.mapped("swap", key, err)
	}
	defer unlock()
	have, err := objstore.ReadAll(ctx, s, key, objstore.MaxSwap)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, old) {
		return fmt.Errorf("filestore: swap %s: %w", key, objstore.ErrChanged)
	}
	return s.mapped("swap", key, s.write(ctx, path, bytes.NewReader(value), int64(len(value))))
}

func (s *Store) Delete(ctx context.Context, key string) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// Remove would also take an empty directory, which is no object.
	switch i, err := s.fs.Stat(path); {
	case err != nil && !isMissing(err):
		return s.mapped("delete", key, err)
	case err != nil || i.IsDir:
		return nil
	}
	if err := s.fs.Remove(path); err != nil && !isMissing(err) {
		return s.mapped("delete", key, err)
	}
	// Deletions reach the disk in the order in which they are made: a purge
	// relies on its tombstone going last.
	if err := s.fs.SyncDir(filepath.Dir(path)); err != nil && !isMissing(err) {
		return s.mapped("delete", key, err)
	}
	s.prune(filepath.Dir(path))
	return nil
}

// lockWrites waits until no other Create or Swap is under way, in this process
// or another.
func (s *Store) lockWrites(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tmp, err := s.temps()
	if err != nil {
		return nil, err
	}
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for {
		l, err := s.fs.Lock(filepath.Join(tmp.dir, "write.lock"))
		if err == nil {
			return func() { l.Close(); <-s.writing }, nil
		}
		if errors.Is(err, vfs.ErrLocked) {
			err = sleep(ctx, 5*time.Millisecond)
		}
		if err != nil {
			<-s.writing
			return nil, err
		}
	}
}

// sleep waits d, or for ctx to end.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write makes path hold body: whole or not at all.
func (s *Store) write(ctx context.Context, path string, body io.ReaderAt, size int64) error {
	if size < 0 {
		return fmt.Errorf("negative size %d", size)
	}
	if err := s.hasRoom(size); err != nil {
		return err
	}
	tmp, err := s.temps()
	if err != nil {
		return err
	}
	name := tmp.next()
	if err := s.fill(ctx, name, body, size); err != nil {
		s.fs.Remove(name)
		return err
	}
	if err := s.publish(name, path); err != nil {
		s.fs.Remove(name)
		return err
	}
	return errors.Join(s.fs.SyncDir(filepath.Dir(path)), s.fs.SyncDir(tmp.dir))
}

// smallObject is the largest object that may use half of the reserve: manifests
// must go on being written on a full disk, for retention frees space by them.
const smallObject = 1 << 20

// hasRoom refuses an object that would eat into what is to stay free.
func (s *Store) hasRoom(size int64) error {
	if s.minFree < 0 {
		return nil
	}
	free, total, err := s.fs.Free(s.dir)
	if err != nil {
		return err
	}
	keep := s.minFree
	if keep == 0 {
		keep = min(total/20, 5<<30)
	}
	if size <= smallObject {
		keep /= 2
	}
	if free-size < keep {
		return fmt.Errorf("%d bytes are free on the file system of %s, of which %d must stay so: no room for %d more: %w",
			free, s.dir, keep, size, syscall.ENOSPC)
	}
	return nil
}

// fill writes body to a new file and syncs it.
func (s *Store) fill(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	f, err := s.fs.OpenFile(name, createNew, 0o644)
	if err != nil {
		return err
	}
	if err := copyAt(ctx, f, body, size); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func copyAt(ctx context.Context, f vfs.File, body io.ReaderAt, size int64) error {
	buf := copyBuffers.Get().(*[copyBytes]byte)
	defer copyBuffers.Put(buf)
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := buf[:min(copyBytes, size-off)]
		if n, err := body.ReadAt(b, off); n < len(b) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read the body at %d of %d: %w", off, size, err)
		}
		if _, err := f.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return ctx.Err()
}

// publishTries bounds the rounds of publish, should a directory never come to stay.
const publishTries = 1000

// publish renames a whole temporary file to path. Another's Delete may prune the
// directory at any moment before: then it is made again. (mkdir says that it exists
// where it is pruned at the same time.) Brokers that put and delete the same few
// keys can prune it many times in a row, and a round costs nothing.
func (s *Store) publish(name, path string) error {
	dir := filepath.Dir(path)
	for try := 0; ; try++ {
		err := s.makeDurable(dir)
		if err == nil {
			err = s.fs.Rename(name, path)
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) || try == publishTries {
			return err
		}
		s.forget(dir)
	}
}

// makeDurable makes dir and what is missing above it, so that a crash can't
// take them away: each parent is synced, whoever made the child.
func (s *Store) makeDurable(dir string) error {
	if dir == s.dir || s.isDurable(dir) {
		return nil
	}
	if err := s.makeDurable(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := s.fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := s.fs.SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.durable[dir] = true
	return nil
}

func (s *Store) isDurable(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.durable[dir]
}

// forget drops what is known of dir and the directories above it.
func (s *Store) forget(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; len(dir) > len(s.dir); dir = filepath.Dir(dir) {
		delete(s.mu.durable, dir)
	}
}

// prune removes dir and the directories above it as far as they are empty.
func (s *Store) prune(dir string) {
	for ; len(dir) > len(s.dir); dir = filepath.Dir(dir) {
		s.mu.Lock()
		delete(s.mu.durable, dir)
		s.mu.Unlock()
		if s.fs.Remove(dir) != nil {
			return // not empty
		}
	}
}
