package solo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"firn/replication/meta"
)

const formatVersion = 1

// lockWait is how long Open waits for another process to let go of the file:
// enough for one that is just ending.
const lockWait = time.Second

var (
	// ErrInUse: another process has the file open.
	ErrInUse = errors.New("solo: already in use by another process")
	// ErrMoved: a cluster's store has what was in the file.
	ErrMoved = errors.New("solo: the metadata has moved")
	// ErrFormat: the file isn't one of ours, or a later Firn's.
	ErrFormat = errors.New("solo: not a metadata file of this version")
)

var (
	firnBucket      = []byte("firn")
	nodesBucket     = []byte("nodes")
	ephemeralBucket = []byte("ephemerals")

	formatKey  = []byte("format")
	revKey     = []byte("rev")
	sessionKey = []byte("session")
	movedKey   = []byte("moved")
)

// Store is a meta.Store in one file.
type Store struct {
	db      *bbolt.DB
	file    *os.File // db's
	kept    int64    // that many bytes of it the disk keeps; see keepRoom
	session int64
	notes   *meta.Notes
	lost    chan struct{}
	close   func() error

	commit struct {
		sync.Mutex       // one commit at a time, its note right behind it
		err        error // why nothing more is committed
	}
}

var _ meta.Store = (*Store)(nil)

// Open opens the file at path, or makes it, and begins a session: the ephemeral
// nodes of the one before are gone. ErrInUse if another process has it open,
// ErrMoved if it counts no more.
func Open(path string) (*Store, error) { return openFile(path, false) }

// OpenMoved is Open for whoever moves the metadata, also when they have moved.
func OpenMoved(path string) (*Store, error) { return openFile(path, true) }

func openFile(path string, moved bool) (*Store, error) {
	s := &Store{lost: make(chan struct{})}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:      lockWait,
		FreelistType: bbolt.FreelistMapType,
		OpenFile: func(name string, flag int, perm os.FileMode) (f *os.File, err error) {
			f, err = os.OpenFile(name, flag, perm)
			s.file = f
			return f, err
		},
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, path)
	}
	if err != nil {
		return nil, fmt.Errorf("solo: opening %s: %w", path, err)
	}
	s.db = db
	s.close = sync.OnceValue(s.closeOnce)
	if err := db.Update(func(tx *bbolt.Tx) error { return s.begin(tx, moved) }); err != nil {
		db.Close()
		return nil, fmt.Errorf("solo: opening %s: %w", path, err)
	}
	s.keepRoom()
	return s, nil
}

// room is more than a commit of the most operations and bytes (Z2) writes.
const room = 4 << 20

// keepRoom has the disk keep room for the next commits, if it has some: on a full
// disk a topic can be deleted then, which writes before anything is free.
func (s *Store) keepRoom() {
	info, err := s.file.Stat()
	if err != nil || info.Size()+room <= s.kept {
		return
	}
	if setAside(s.file, info.Size()+room) == nil {
		s.kept = info.Size() + room
	}
}

// begin begins a session.
func (s *Store) begin(tx *bbolt.Tx, moved bool) error {
	firn, err := format(tx)
	if err != nil {
		return err
	}
	if to := firn.Get(movedKey); to != nil && !moved {
		return fmt.Errorf("%w to %s", ErrMoved, to)
	}
	rev := getUint64(firn, revKey) + 1
	session := getUint64(firn, sessionKey) + 1
	if err := errors.Join(putUint64(firn, revKey, rev), putUint64(firn, sessionKey, session)); err != nil {
		return err
	}
	nodes, ephemerals := tx.Bucket(nodesBucket), tx.Bucket(ephemeralBucket)
	c := ephemerals.Cursor()
	for path, _ := c.First(); path != nil; path, _ = c.First() {
		if err := errors.Join(nodes.Delete(key(string(path))), ephemerals.Delete(path)); err != nil {
			return err
		}
	}
	s.session = int64(session)
	s.notes = meta.NotesAfter(int64(rev))
	return nil
}

// format checks the file's format, or makes it ours if it is empty.
func format(tx *bbolt.Tx) (firn *bbolt.Bucket, err error) {
	if firn = tx.Bucket(firnBucket); firn != nil {
		v := firn.Get(formatKey)
		if len(v) != 4 || tx.Bucket(nodesBucket) == nil || tx.Bucket(ephemeralBucket) == nil {
			return nil, ErrFormat
		}
		if n := binary.BigEndian.Uint32(v); n != formatVersion {
			return nil, fmt.Errorf("%w: format %d, want %d", ErrFormat, n, formatVersion)
		}
		return firn, nil
	}
	if first, _ := tx.Cursor().First(); first != nil {
		return nil, ErrFormat
	}
	for _, name := range [][]byte{nodesBucket, ephemeralBucket, firnBucket} {
		if firn, err = tx.CreateBucket(name); err != nil {
			return nil, err
		}
	}
	return firn, firn.Put(formatKey, binary.BigEndian.AppendUint32(nil, formatVersion))
}

// MarkMoved marks the file: from now on Open tells where its metadata went. What it
// holds stays.
func (s *Store) MarkMoved(to string) error {
	err := s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(firnBucket).Put(movedKey, []byte(to)) })
	if err != nil {
		return fmt.Errorf("solo: marking the metadata as moved: %w", err)
	}
	return nil
}

// Close ends the session and lets go of the file.
func (s *Store) Close() error { return s.close() }

func (s *Store) closeOnce() error {
	s.commit.Lock()
	if s.commit.err == nil {
		s.commit.err = meta.ErrClosed
	}
	s.commit.Unlock()
	close(s.lost)
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("solo: closing: %w", err)
	}
	return nil
}

// Session is this opening of the file; it ends with Close.
func (s *Store) Session() (int64, <-chan struct{}) { return s.session, s.lost }

// Get reads a node.
func (s *Store) Get(ctx context.Context, path string) (meta.Node, error) {
	var n meta.Node
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		found, ok := get(tx, path)
		if !ok {
			return meta.ErrNotFound
		}
		n = found.Node
		n.Value = append([]byte(nil), n.Value...) // the file's pages are not ours to keep
		return nil
	})
	return n, err
}

// Children lists the names below path.
func (s *Store) Children(ctx context.Context, path string) ([]string, error) {
	var names []string
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		if _, ok := get(tx, path); !ok && path != "/" {
			return meta.ErrNotFound
		}
		names = children(tx, path)
		return nil
	})
	return names, err
}

func (s *Store) view(ctx context.Context, f func(*bbolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.db.View(f)
	if errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		return meta.ErrClosed
	}
	return err
}

// Changes returns the notes after the given one, waiting until there is one.
func (s *Store) Changes(ctx context.Context, after int64) ([]meta.Note, error) {
	select {
	case <-s.lost:
		return nil, meta.ErrClosed
	default:
		return s.notes.Changes(ctx, after, s.lost)
	}
}

func getUint64(b *bbolt.Bucket, key []byte) uint64 {
	if v := b.Get(key); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func putUint64(b *bbolt.Bucket, key []byte, n uint64) error {
	return b.Put(key, binary.BigEndian.AppendUint64(nil, n))
}
