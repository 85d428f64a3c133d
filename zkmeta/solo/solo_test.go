package solo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"firn/replication/meta"
	"firn/zkmeta/metatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	metatest.Run(t, func(t *testing.T) metatest.Harness {
		path := filepath.Join(t.TempDir(), "meta.db")
		return metatest.Harness{
			Begin: func() meta.Store { return open(t, path) },
			End:   func(s meta.Store) { closeStore(t, s.(*Store)) },
		}
	})
}

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meta.db")
	s := open(t, path)
	_, err := Open(path)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), path) {
		t.Fatalf("a second Open = %v", err)
	}
	closeStore(t, s)
	closeStore(t, open(t, path))
}

func TestForeignFilesAreRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()

	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(text); err == nil {
		closeStore(t, s)
		t.Error("opened a text file")
	}

	foreign := filepath.Join(dir, "foreign.db")
	edit(t, foreign, func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	})
	if _, err := Open(foreign); !errors.Is(err, ErrFormat) {
		t.Errorf("another program's database: %v", err)
	}

	later := filepath.Join(dir, "later.db")
	closeStore(t, open(t, later))
	edit(t, later, func(tx *bbolt.Tx) error {
		return tx.Bucket(firnBucket).Put(formatKey, []byte{0, 0, 0, 9})
	})
	if _, err := Open(later); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "format 9") {
		t.Errorf("a later format: %v", err)
	}
}

// edit changes a database behind our back.
func edit(t *testing.T, path string, f func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(f); err != nil {
		t.Fatal(err)
	}
}

func TestClosed(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "meta.db"))
	_, err := s.Changes(ctx, -1)
	gap := (*meta.ErrGap)(nil)
	if !errors.As(err, &gap) {
		t.Fatal(err)
	}
	waiting := make(chan error)
	go func() {
		_, err := s.Changes(ctx, gap.Last)
		waiting <- err
	}()
	closeStore(t, s)
	closeStore(t, s)
	if err := <-waiting; !errors.Is(err, meta.ErrClosed) {
		t.Errorf("a waiting Changes = %v", err)
	}
	if _, err := s.Get(ctx, "/a"); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("Get = %v", err)
	}
	if _, err := s.Children(ctx, "/a"); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("Children = %v", err)
	}
	if err := s.Commit(ctx); !errors.Is(err, meta.ErrClosed) {
		t.Errorf("Commit = %v", err)
	}
}

func TestMovedMetadataIsNotOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meta.db")
	s := open(t, path)
	if err := s.Commit(context.Background(), meta.Op{Kind: meta.Create, Path: "/a", Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := s.MarkMoved("ZooKeeper zk:2181/firn"); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if _, err := Open(path); !errors.Is(err, ErrMoved) || !strings.Contains(err.Error(), "zk:2181/firn") {
		t.Errorf("Open = %v", err)
	}
	s, err := OpenMoved(path)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Get(context.Background(), "/a"); err != nil || string(n.Value) != "x" {
		t.Errorf("what has moved: %q, %v", n.Value, err)
	}
	closeStore(t, s)
}
