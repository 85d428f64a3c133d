package cache

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"firn/segment/vfs"
	"firn/tiering/objstore"
)

// folder is a store whose objects are files, which GETs give away; get sees each
// before it opens one.
type folder struct {
	objstore.Store
	dir  string
	open atomic.Int64
	get  func(key string, off int64) error
}

// keepIn puts the objects of s in files, too, and tells the store that has those.
func (s *shelf) keepIn(t *testing.T) *folder {
	d := &folder{Store: s.store, dir: t.TempDir()}
	for key := range s.data {
		d.write(t, key, s.data[key])
	}
	t.Cleanup(func() {
		if n := d.open.Load(); n != 0 {
			t.Errorf("%d files are open in the end", n)
		}
	})
	return d
}

// write replaces the file of key.
func (d *folder) write(t *testing.T, key string, b []byte) {
	t.Helper()
	path := filepath.Join(d.dir, key)
	if err := os.WriteFile(path+"~", b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

func (d *folder) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if d.get != nil {
		if err := d.get(key, off); err != nil {
			return nil, err
		}
	}
	f, err := vfs.OS().OpenFile(filepath.Join(d.dir, key), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	d.open.Add(1)
	return &folderStream{io.NewSectionReader(f, off, n), &folderFile{File: f, d: d}, off, false}, nil
}

type folderFile struct {
	vfs.File
	d *folder
}

func (f *folderFile) Close() error {
	f.d.open.Add(-1)
	return f.File.Close()
}

type folderStream struct {
	*io.SectionReader
	f     *folderFile
	off   int64
	taken bool
}

func (s *folderStream) TakeFile() (objstore.File, int64, bool) {
	s.taken = true
	return s.f, s.off, true
}

func (s *folderStream) Close() error {
	if s.taken {
		return nil
	}
	return s.f.Close()
}

// TestBlocksOfFilesTakeNoMemory: they are verified and stay where they are, for as
// long as somebody holds them.
func TestBlocksOfFilesTakeNoMemory(t *testing.T) {
	for _, units := range []bool{true, false} {
		s := newShelf()
		objs := s.fill(t, 3, 12)
		if !units {
			for _, o := range objs {
				o.Units = nil
			}
		}
		d := s.keepIn(t)
		c := open(t, Config{Store: d, Memory: 16 << 20})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := s.scan(c, objs, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		b, err := c.Fetch(t.Context(), objs[2], 3)
		if err != nil {
			t.Fatal(err)
		}
		d.write(t, objs[2].Key, nil) // another file by that name is no matter
		c.Close()
		c.Forget(objs[2])
		if f, off := b.File(); f == nil || off != 3<<20 || b.Bytes() != nil {
			t.Errorf("the block lies in %v at %d", f, off)
		}
		if got, err := content(b, 0, b.Len()); err != nil || !bytes.Equal(got, s.block(objs[2], 3)) {
			t.Errorf("other bytes, or %v", err)
		}
		b.Release()
		for _, o := range objs {
			c.Forget(o)
		}
		if n := len(c.mu.pool.free); n != 0 || c.mu.used != 0 {
			t.Errorf("%d buffers were made; %d bytes in use", n, c.mu.used)
		}
	}
}

// TestDamagedFileIsOpenedAgain: what another file holds is verified from the
// block's beginning, though a reader has some of the first one.
func TestDamagedFileIsOpenedAgain(t *testing.T) {
	for _, units := range []bool{true, false} {
		for times := range 3 {
			s := newShelf()
			o := s.put(t, "o", 3<<20+5)
			if !units {
				o.Units = nil
			}
			d := s.keepIn(t)
			bad := bytes.Clone(s.data["o"])
			bad[1<<20+900_000] ^= 1
			gets := 0
			d.get = func(string, int64) error {
				if gets++; gets <= times || times == 2 { // twice: for good
					d.write(t, "o", bad)
				} else {
					d.write(t, "o", s.data["o"])
				}
				return nil
			}
			c := open(t, Config{Store: d})
			st := c.NewStream()
			st.At(o, 0, o.Blocks())
			if err := s.read(st, o, 0); err != nil {
				t.Error(err)
			}
			// The good part may be handed on, from either file.
			err := s.part(st, o, 1, 0, 100)
			if err == nil {
				err = s.read(st, o, 1)
			}
			if corrupt := errors.Is(err, ErrCorrupt); corrupt != (times == 2) || !corrupt && err != nil {
				t.Errorf("damaged %d times: %v", times, err)
			}
			if times < 2 {
				if err := s.read(st, o, 3); err != nil {
					t.Error(err)
				}
				if gets != 1+times {
					t.Errorf("damaged %d times: %d GETs", times, gets)
				}
			}
			st.Close()
			c.Close()
			c.Forget(o)
		}
	}
}
