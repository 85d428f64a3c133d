package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"firn/segment/vfs"
	"firn/tiering/objstore"
)

func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	p, err := s.path(key)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// A directory opens like a file.
	i, err := s.fs.Stat(p)
	if err == nil && i.IsDir {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, s.mapped("get", key, err)
	}
	f, err := s.fs.OpenFile(p, os.O_RDONLY, 0)
	if err != nil {
		return nil, s.mapped("get", key, err)
	}
	size, err := f.Size()
	if err == nil {
		off, n, err = objstore.Clip(key, off, n, size)
	}
	if err != nil {
		f.Close()
		return nil, s.mapped("get", key, err)
	}
	return objstore.Exact(&fileRange{ctx: ctx, f: f, off: off, SectionReader: io.NewSectionReader(f, off, n)}, n), nil
}

// fileRange reads a range of an open file, until its ctx ends.
type fileRange struct {
	*io.SectionReader
	ctx   context.Context
	f     vfs.File
	off   int64 // of the range in f
	taken bool
}

func (r *fileRange) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.SectionReader.Read(p)
}

func (r *fileRange) Close() error {
	if r.taken {
		return nil
	}
	return r.f.Close()
}

// TakeFile gives the file away if it can be sent from: a key's file is replaced
// or removed, but never written again.
func (r *fileRange) TakeFile() (f objstore.File, off int64, ok bool) {
	if _, ok := r.f.(vfs.Descriptor); !ok || r.taken {
		return nil, 0, false
	}
	at, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, 0, false
	}
	r.taken = true
	return r.f, r.off + at, true
}

// List holds the names of one directory at each level in memory, not those of
// the whole archive.
func (s *Store) List(ctx context.Context, prefix string, yield func(objstore.Object) error) error {
	dir, _ := path.Split(prefix) // nothing above it can match
	if err := inside(dir); err != nil {
		return err
	}
	if err := s.walk(ctx, dir, prefix, yield); err != nil {
		return err
	}
	return ctx.Err()
}

// inside refuses a prefix that leads out of the directory.
func inside(prefix string) error {
	if strings.Contains("/"+prefix, "/../") || strings.HasPrefix(prefix, "/") {
		return fmt.Errorf("filestore: list %q: no such prefix", prefix)
	}
	return nil
}

// walk yields the objects below the directory of key prefix dir ("" or ending
// in a slash) that match prefix, in key order: a directory sorts with its slash.
func (s *Store) walk(ctx context.Context, dir, prefix string, yield func(objstore.Object) error) error {
	entries, err := s.fs.ReadDir(filepath.Join(s.dir, filepath.FromSlash(dir)))
	if err != nil {
		err = s.mapped("list", dir, err)
		if errors.Is(err, objstore.ErrNotFound) {
			return nil // pruned, or nothing has such a prefix
		}
		return err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		name := dir + e.Name()
		if e.IsDir() {
			name += "/"
		}
		// A directory may match, or lie on the way to what does.
		if name != tmpName+"/" && (strings.HasPrefix(name, prefix) || e.IsDir() && strings.HasPrefix(prefix, name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if strings.HasSuffix(name, "/") {
			err = s.walk(ctx, name, prefix, yield)
		} else {
			err = s.visit(name, yield)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// visit yields one object, unless it has just gone.
func (s *Store) visit(key string, yield func(objstore.Object) error) error {
	i, err := s.fs.Stat(filepath.Join(s.dir, filepath.FromSlash(key)))
	if err != nil {
		err = s.mapped("list", key, err)
		if errors.Is(err, objstore.ErrNotFound) {
			return nil
		}
		return err
	}
	if i.IsDir {
		return nil
	}
	return yield(objstore.Object{Key: key, Size: i.Size, ModTime: i.ModTime.UnixMilli()})
}

// Folders tells directories as they are; one that is empty shows only while a
// write or a deletion is under way.
func (s *Store) Folders(ctx context.Context, prefix string) ([]string, error) {
	if err := inside(prefix); err != nil {
		return nil, err
	}
	entries, err := s.fs.ReadDir(filepath.Join(s.dir, filepath.FromSlash(prefix)))
	if err != nil {
		if err = s.mapped("list", prefix, err); errors.Is(err, objstore.ErrNotFound) {
			return nil, nil
		}
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && (prefix != "" || e.Name() != tmpName) {
			names = append(names, e.Name())
		}
	}
	return names, ctx.Err()
}
