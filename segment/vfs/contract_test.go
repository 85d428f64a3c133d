package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"firn/segment/vfs"
)

// TestContract runs what FS promises over every implementation.
func TestContract(t *testing.T) {
	for _, impl := range []struct {
		name string
		make func(t *testing.T) (vfs.FS, string)
	}{
		{"OS", func(t *testing.T) (vfs.FS, string) { return vfs.OS(), t.TempDir() }},
		{"Mem", func(t *testing.T) (vfs.FS, string) { return memWithDir(t, "/data") }},
		{"Mem after a crash", func(t *testing.T) (vfs.FS, string) {
			m, dir := memWithDir(t, "/data")
			return m.CrashClone(vfs.CrashOptions{Keep: 100}), dir
		}},
		{"Injector", func(t *testing.T) (vfs.FS, string) {
			return vfs.Inject(vfs.OS(), func(vfs.Op) error { return nil }), t.TempDir()
		}},
		{"Injector with quota", func(t *testing.T) (vfs.FS, string) {
			m, dir := memWithDir(t, "/data")
			i := vfs.Inject(m, nil)
			i.SetQuota(1 << 20)
			return i, dir
		}},
	} {
		t.Run(impl.name, func(t *testing.T) {
			for _, c := range contract {
				t.Run(c.name, func(t *testing.T) {
					fsys, dir := impl.make(t)
					c.test(t, fsys, func(name string) string { return filepath.Join(dir, name) })
				})
			}
		})
	}
}

func memWithDir(t *testing.T, dir string) (*vfs.Mem, string) {
	m := vfs.NewMem()
	must(t, m.MkdirAll(dir, 0o755))
	return m, dir
}

var contract = []struct {
	name string
	test func(t *testing.T, fsys vfs.FS, at func(string) string)
}{
	{"a write is read back", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		f := create(t, fsys, at("a"))
		write(t, f, 0, "hello")
		write(t, f, 3, "p!!")
		read(t, f, 0, 6, "help!!", nil)
		read(t, f, 4, 10, "!!", io.EOF)
		read(t, f, 6, 1, "", io.EOF)
		read(t, f, 99, 1, "", io.EOF)
		if f.Name() != at("a") {
			t.Errorf("name: got %q, want %q", f.Name(), at("a"))
		}
	}},
	{"a hole reads as zeros", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		f := create(t, fsys, at("a"))
		write(t, f, 3, "x")
		read(t, f, 0, 4, "\x00\x00\x00x", nil)
	}},
	{"truncate cuts, and lengthens with zeros", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		f := create(t, fsys, at("a"))
		write(t, f, 0, "secret")
		must(t, f.Truncate(2))
		size(t, f, 2)
		must(t, f.Truncate(4))
		read(t, f, 0, 4, "se\x00\x00", nil)
		must(t, f.Sync())
	}},
	{"open flags", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		_, err := fsys.OpenFile(at("a"), os.O_RDWR, 0)
		is(t, err, fs.ErrNotExist)
		_, err = fsys.OpenFile(at("no/a"), os.O_RDWR|os.O_CREATE, 0o644)
		is(t, err, fs.ErrNotExist)
		write(t, create(t, fsys, at("a")), 0, "old")
		_, err = fsys.OpenFile(at("a"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		is(t, err, fs.ErrExist)
		f, err := fsys.OpenFile(at("a"), os.O_RDWR|os.O_CREATE, 0o644)
		must(t, err)
		size(t, f, 3)
		f, err = fsys.OpenFile(at("a"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
		must(t, err)
		size(t, f, 0)
	}},
	{"a read-only file is not written", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		write(t, create(t, fsys, at("a")), 0, "x")
		f, err := fsys.OpenFile(at("a"), os.O_RDONLY, 0)
		must(t, err)
		if _, err := f.WriteAt([]byte("y"), 0); err == nil {
			t.Error("written")
		}
		if err := f.Truncate(0); err == nil {
			t.Error("truncated")
		}
		read(t, f, 0, 1, "x", nil)
	}},
	{"a closed file is fs.ErrClosed", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		f := create(t, fsys, at("a"))
		must(t, f.Close())
		_, err := f.ReadAt(make([]byte, 1), 0)
		is(t, err, fs.ErrClosed)
		_, err = f.WriteAt([]byte("x"), 0)
		is(t, err, fs.ErrClosed)
		_, err = f.Size()
		is(t, err, fs.ErrClosed)
		is(t, f.Sync(), fs.ErrClosed)
		is(t, f.Truncate(0), fs.ErrClosed)
		is(t, f.Close(), fs.ErrClosed)
	}},
	{"rename replaces, and open files stay", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		a, b := create(t, fsys, at("a")), create(t, fsys, at("b"))
		write(t, a, 0, "new")
		write(t, b, 0, "old!")
		must(t, fsys.Rename(at("a"), at("b")))
		must(t, fsys.SyncDir(at("")))
		read(t, b, 0, 4, "old!", nil)
		content(t, fsys, at("b"), "new")
		_, err := fsys.Stat(at("a"))
		is(t, err, fs.ErrNotExist)
		is(t, fsys.Rename(at("a"), at("c")), fs.ErrNotExist)
	}},
	{"rename between directories", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		must(t, fsys.MkdirAll(at("x/y"), 0o755))
		must(t, fsys.MkdirAll(at("z"), 0o755))
		write(t, create(t, fsys, at("x/y/f")), 0, "f")
		must(t, fsys.Rename(at("x/y"), at("z/y")))
		content(t, fsys, at("z/y/f"), "f")
		list(t, fsys, at("x"))
		if err := fsys.Rename(at("z"), at("z/y/z")); err == nil {
			t.Error("a directory moved into itself")
		}
		if err := fsys.Rename(at("z/y/f"), at("x")); err == nil {
			t.Error("a file replaced a directory")
		}
	}},
	{"remove", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		must(t, fsys.MkdirAll(at("d"), 0o755))
		f := create(t, fsys, at("d/f"))
		write(t, f, 0, "still")
		if err := fsys.Remove(at("d")); err == nil {
			t.Error("a directory with a file was removed")
		}
		must(t, fsys.Remove(at("d/f")))
		is(t, fsys.Remove(at("d/f")), fs.ErrNotExist)
		read(t, f, 0, 5, "still", nil)
		must(t, fsys.Remove(at("d")))
		_, err := fsys.Stat(at("d"))
		is(t, err, fs.ErrNotExist)
	}},
	{"directories", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		must(t, fsys.MkdirAll(at("d/e"), 0o755))
		must(t, fsys.MkdirAll(at("d/e"), 0o755))
		create(t, fsys, at("d/z"))
		create(t, fsys, at("d/a"))
		list(t, fsys, at("d"), "a", "e/", "z")
		if err := fsys.MkdirAll(at("d/a/b"), 0o755); err == nil {
			t.Error("a directory inside a file")
		}
		_, err := fsys.ReadDir(at("no"))
		is(t, err, fs.ErrNotExist)
		is(t, fsys.SyncDir(at("no")), fs.ErrNotExist)
		must(t, fsys.SyncDir(at("d")))
		if _, err := fsys.OpenFile(at("d"), os.O_RDWR, 0); err == nil {
			t.Error("a directory opened for writing")
		}
	}},
	{"stat", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		write(t, create(t, fsys, at("a")), 0, "four")
		i, err := fsys.Stat(at("a"))
		must(t, err)
		if i.Size != 4 || i.IsDir || i.ModTime.IsZero() {
			t.Errorf("file: got %+v", i)
		}
		if i, err = fsys.Stat(at("")); err != nil || !i.IsDir {
			t.Errorf("directory: got %+v, %v", i, err)
		}
	}},
	{"free", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		free, total, err := fsys.Free(at(""))
		if err != nil || free <= 0 || total < free {
			t.Errorf("got %d of %d, %v", free, total, err)
		}
		_, _, err = fsys.Free(at("no"))
		is(t, err, fs.ErrNotExist)
	}},
	{"lock", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		c, err := fsys.Lock(at(".lock"))
		must(t, err)
		_, err = fsys.Lock(at(".lock"))
		is(t, err, vfs.ErrLocked)
		must(t, c.Close())
		c, err = fsys.Lock(at(".lock"))
		must(t, err)
		must(t, c.Close())
	}},
	{"concurrent writers of one file", func(t *testing.T, fsys vfs.FS, at func(string) string) {
		f := create(t, fsys, at("a"))
		done := make(chan error)
		for i := range 8 {
			go func() {
				_, err := f.WriteAt(bytes.Repeat([]byte{byte('a' + i)}, 100), int64(i)*100)
				done <- errors.Join(err, f.Sync())
			}()
		}
		for range 8 {
			must(t, <-done)
		}
		size(t, f, 800)
	}},
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("got error %v, want %v", got, want)
	}
}

func create(t *testing.T, fsys vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func write(t *testing.T, f vfs.File, off int64, s string) {
	t.Helper()
	if n, err := f.WriteAt([]byte(s), off); n != len(s) || err != nil {
		t.Fatalf("write %q: %d, %v", s, n, err)
	}
}

func read(t *testing.T, f vfs.File, off int64, n int, want string, wantErr error) {
	t.Helper()
	p := make([]byte, n)
	n, err := f.ReadAt(p, off)
	if string(p[:n]) != want || err != wantErr {
		t.Errorf("read at %d: got %q, %v, want %q, %v", off, p[:n], err, want, wantErr)
	}
}

func size(t *testing.T, f vfs.File, want int64) {
	t.Helper()
	if got, err := f.Size(); got != want || err != nil {
		t.Errorf("size: got %d, %v, want %d", got, err, want)
	}
}

func content(t *testing.T, fsys vfs.FS, name, want string) {
	t.Helper()
	if got := slurp(t, fsys, name); got != want {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

func slurp(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	must(t, err)
	defer f.Close()
	n, err := f.Size()
	must(t, err)
	p := make([]byte, n)
	_, err = f.ReadAt(p, 0)
	must(t, err)
	return string(p)
}

func list(t *testing.T, fsys vfs.FS, dir string, want ...string) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	must(t, err)
	var got []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		got = append(got, name)
	}
	if len(got) != len(want) {
		t.Fatalf("%s: got %q, want %q", dir, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: got %q, want %q", dir, got, want)
		}
	}
}
