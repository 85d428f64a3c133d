package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"firn/segment/vfs"
	"firn/tiering/objstore"
	"firn/tiering/objstoretest"
)

func open(t *testing.T, c Config) *Store {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t *testing.T, s objstore.Store, key, v string) {
	t.Helper()
	if err := s.Put(t.Context(), key, strings.NewReader(v), int64(len(v))); err != nil {
		t.Fatal(err)
	}
}

func TestStore(t *testing.T) {
	objstoretest.Run(t, func(t *testing.T) objstore.Store { return open(t, Config{Dir: t.TempDir(), MinFree: -1}) })
}

// free is the operating system's files, with a disk as full as the test likes.
type free struct {
	vfs.FS
	free, total int64
}

func (f free) Free(string) (int64, int64, error) { return f.free, f.total, nil }

func TestTheReserveStaysFree(t *testing.T) {
	fs := &free{FS: vfs.OS(), total: 1 << 40}
	s := open(t, Config{Dir: t.TempDir(), FS: fs})
	big := bytes.NewReader(make([]byte, 2<<20))
	for _, c := range []struct {
		free       int64
		small, big bool
	}{
		{5<<30 + 2<<20, true, true}, // 5 GiB are less than 5 %
		{5<<30 + 2<<20 - 1, true, false},
		{5<<29 + 100, true, false}, // manifests go on for as long again
		{5<<29 - 1, false, false},
	} {
		fs.free = c.free
		if err := s.Put(t.Context(), "big", big, big.Size()); (err == nil) != c.big || err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%d free: Put of 2 MiB = %v", c.free, err)
		}
		s.Delete(t.Context(), "small")
		if err := s.Create(t.Context(), "small", []byte("x")); (err == nil) != c.small || err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%d free: Create of a byte = %v", c.free, err)
		}
	}
}

func TestAMissingDirectoryIsAnErrorUnlessItMayBeCreated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrNoDir) {
		t.Errorf("Open = %v, want ErrNoDir", err)
	}
	put(t, open(t, Config{Dir: dir, Create: true}), "k", "v")
	if _, err := os.Stat(filepath.Join(dir, "k")); err != nil {
		t.Error(err)
	}
}

func TestOpeningAndReadingWritesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	if _, err := s.GetRange(t.Context(), "none", 0, -1); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("GetRange = %v", err)
	}
	if e, _ := os.ReadDir(dir); len(e) != 0 {
		t.Errorf("the directory holds %v", e)
	}
}

func TestAnUnmountedArchiveIsAnOutageNotALoss(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "archive")
	s := open(t, Config{Dir: dir, Create: true, MinFree: -1})
	put(t, s, "k", "v")
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		if _, err := s.GetRange(t.Context(), "k", 0, -1); err == nil || errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("%s: GetRange = %v, want an outage", what, err)
		}
		if err := s.List(t.Context(), "", func(objstore.Object) error { return nil }); err == nil && what == "gone" {
			t.Errorf("%s: List = %v, want an outage", what, err)
		}
		if err := s.Put(t.Context(), "k2", strings.NewReader("v"), 1); err == nil {
			t.Errorf("%s: Put succeeded", what)
		}
	}
	check("gone")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	check("empty")
}

func TestLeftoversOfDeadWritersGo(t *testing.T) {
	dir := t.TempDir()
	dead := open(t, Config{Dir: dir, MinFree: -1})
	put(t, dead, "k", "v")
	alive := open(t, Config{Dir: dir, MinFree: -1})
	put(t, alive, "k", "v")
	for _, s := range []*Store{dead, alive} {
		if err := os.WriteFile(s.mu.tmp.next(), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dead.mu.tmp.lock.Close() // as the kernel does for a killed process
	dead.mu.tmp = nil
	put(t, open(t, Config{Dir: dir, MinFree: -1}), "k2", "v")
	var left []string
	e, err := os.ReadDir(filepath.Join(dir, tmpName))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range e {
		if !strings.HasSuffix(e.Name(), ".lock") {
			left = append(left, e.Name())
		}
	}
	if len(left) != 1 || !strings.HasPrefix(left[0], alive.mu.tmp.id) {
		t.Errorf("left: %q, want the living writer's only", left)
	}
}

func TestEmptyDirectoriesGoWithTheirLastObject(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, MinFree: -1})
	put(t, s, "t/0/a", "v")
	put(t, s, "t/1/a", "v")
	for _, c := range []struct{ delete, gone, stays string }{{"t/0/a", "t/0", "t/1/a"}, {"t/1/a", "t", "."}} {
		if err := s.Delete(t.Context(), c.delete); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, c.gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", c.gone, err)
		}
		if _, err := os.Stat(filepath.Join(dir, c.stays)); err != nil {
			t.Error(err)
		}
	}
	if err := s.Delete(t.Context(), "t"); err != nil { // a directory is no object
		t.Error(err)
	}
	put(t, s, "t/0/b", "v")
}

func TestTheTemporaryDirectoryIsNoKey(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), MinFree: -1})
	put(t, s, "k", "v")
	if err := s.Put(t.Context(), tmpName+"/x", strings.NewReader("x"), 1); err == nil {
		t.Error("Put into the temporary directory succeeded")
	}
}

// Another store's Delete may prune a directory at any moment of a Put that needs
// it: mkdir then says that it is there, and the next call that it isn't.
func TestPutMakesAPrunedDirectoryAgain(t *testing.T) {
	for kind, err := range map[vfs.Kind]error{vfs.OpMkdir: os.ErrExist, vfs.OpSyncDir: os.ErrNotExist, vfs.OpRename: os.ErrNotExist} {
		dir := t.TempDir()
		var pruned, watch bool
		fsys := vfs.Inject(vfs.OS(), func(op vfs.Op) error {
			if !watch || op.Kind != kind || pruned {
				return nil
			}
			pruned = true
			return err
		})
		s := open(t, Config{Dir: dir, FS: fsys, MinFree: -1})
		put(t, s, "first", "v")
		watch = true
		put(t, s, "t/0/a", "v")
		if !pruned {
			t.Errorf("no %v", kind)
		}
	}
}

// Brokers that start at once share a directory: none sweeps what another has just
// begun to write.
func TestStoresThatBeginTogetherLeaveEachOtherAlone(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for round := range 30 {
				s, err := Open(Config{Dir: dir, MinFree: -1})
				if err != nil {
					t.Error(err)
					return
				}
				key := fmt.Sprintf("probe/%d-%d", n, round)
				if err := s.Put(t.Context(), key, strings.NewReader("x"), 1); err != nil {
					t.Error(err)
				}
				if err := s.Delete(t.Context(), key); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
