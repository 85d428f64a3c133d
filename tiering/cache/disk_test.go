package cache

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"firn/segment/vfs"
)

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// scans reads all of objs n times, each time with nothing in memory.
func (s *shelf) scans(t *testing.T, cfg Config, n int, objs []*Object) {
	t.Helper()
	c := open(t, cfg)
	for range n {
		if err := s.scan(c, objs, func() { settle(c) }); err != nil {
			t.Fatal(err)
		}
		for _, o := range objs {
			c.Forget(o)
		}
	}
	settle(c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// settle waits until the writer has written what it was offered.
func settle(c *Cache) {
	for {
		c.disk.mu.Lock()
		n := len(c.disk.mu.writing)
		c.disk.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestDiskTakesWhatWasReadTwiceAndKeepsItOverARestart(t *testing.T) {
	s := newShelf()
	objs := s.fill(t, 2, 6)
	cfg := Config{Store: s.store, FS: vfs.OS(), Dir: t.TempDir(), Disk: 64 << 20, MinFree: -1}
	s.scans(t, cfg, 1, objs)
	if got := files(t, cfg.Dir); len(got) != 0 {
		t.Errorf("after one scan: %d files", len(got))
	}
	s.scans(t, cfg, 2, objs)
	if got := files(t, cfg.Dir); len(got) != 12 {
		t.Errorf("after two scans by one process: %d files, want 12", len(got))
	}
	s.gets.Store(0)
	s.scans(t, cfg, 1, objs)
	if got := s.gets.Load(); got != 0 {
		t.Errorf("after a restart: %d GETs", got)
	}
}

func TestDamagedDiskCacheCostsAGetAndNothingElse(t *testing.T) {
	s := newShelf()
	objs := s.fill(t, 1, 6)
	cfg := Config{Store: s.store, FS: vfs.OS(), Dir: t.TempDir(), Disk: 64 << 20, MinFree: -1}
	s.scans(t, cfg, 2, objs)
	all := files(t, cfg.Dir)
	if len(all) != 6 {
		t.Fatalf("%d files", len(all))
	}
	if err := os.Truncate(all[0], 100); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(all[1], bytes.Repeat([]byte{7}, BlockSize), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(all[2]); err != nil { // the index is read from names before: see below
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(all[3]), "tmp-x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.gets.Store(0)
	s.scans(t, cfg, 1, objs)
	if got := s.gets.Load(); got < 1 || got > 3 {
		t.Errorf("%d GETs, want 1 to 3", got)
	}
	for _, f := range files(t, cfg.Dir) {
		if b, err := os.ReadFile(f); err != nil || !strings.HasSuffix(f, fmt.Sprintf("%08x", Sum(b))) {
			t.Errorf("%s is still there", f)
		}
	}
}

func TestDiskStaysWithinItsBudgetAndKeepsWhatIsReadAgain(t *testing.T) {
	s := newShelf()
	hot, cold := s.fill(t, 1, 4), []*Object{}
	for k := range 4 {
		cold = append(cold, s.put(t, fmt.Sprint("cold", k), 8<<20))
	}
	cfg := Config{Store: s.store, FS: vfs.OS(), Dir: t.TempDir(), Disk: 16 << 20, MinFree: -1}
	s.scans(t, cfg, 3, hot)
	s.scans(t, cfg, 2, cold)
	var sum int64
	for _, f := range files(t, cfg.Dir) {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		sum += st.Size()
	}
	if sum > cfg.Disk || sum < cfg.Disk/2 {
		t.Errorf("%d bytes on the disk, budget %d", sum, cfg.Disk)
	}
}

func TestDiskGivesSpaceBackWhereItIsShort(t *testing.T) {
	s := newShelf()
	objs := s.fill(t, 2, 6)
	cfg := Config{Store: s.store, FS: vfs.OS(), Dir: t.TempDir(), Disk: 64 << 20, MinFree: -1}
	s.scans(t, cfg, 2, objs[:1])
	if got := files(t, cfg.Dir); len(got) != 6 {
		t.Fatalf("%d files", len(got))
	}
	cfg.MinFree = 1 << 60
	s.scans(t, cfg, 2, objs[1:])
	if got := files(t, cfg.Dir); len(got) != 0 {
		t.Errorf("%d files on a disk that is short of space", len(got))
	}
}

func TestDiskIsReadWhileTheStoreIsDown(t *testing.T) {
	s := newShelf()
	objs := s.fill(t, 1, 4)
	cfg := Config{Store: s.store, FS: vfs.OS(), Dir: t.TempDir(), Disk: 64 << 20, MinFree: -1}
	s.scans(t, cfg, 2, objs)
	synctest.Test(t, func(t *testing.T) {
		s.store.Set(nil)
		c := open(t, cfg)
		for range breakAfter {
			c.get.breaker.failed(time.Now(), ErrUnavailable)
		}
		s.fetch(t, c, objs[0], 2).Release()
		c.Close()
	})
}

func FuzzFileName(f *testing.F) {
	f.Add("00112233445566778899aabbccddeeff-3-1048576-deadbeef")
	f.Add("00112233445566778899aabbccddeeff--3-1-0")
	f.Add("tmp-00112233445566778899aabbccddeeff-3-1048576-deadbeef")
	f.Fuzz(func(t *testing.T, name string) {
		key, n, sum, ok := parseName(name)
		if ok && (n <= 0 || n > BlockSize || key.block < 0) {
			t.Errorf("%q: %d bytes, block %d, %08x", name, n, key.block, sum)
		}
	})
}
