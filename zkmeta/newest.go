package zkmeta

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"firn/replication/meta"
)

// position is a place in ZooKeeper's notes, before the one numbered next, and the
// number of the last of them in the session's.
type position struct{ gen, next, number int64 }

// reach notes how far the session's notes go with the one that is about to be
// added.
func (f *follower) reach() {
	f.x.taken.Store(&position{f.gen, f.next, f.x.notes.Last() + 1})
}

// Newest is the number of the newest note that stands, in the session's notes. It
// waits until they go so far.
func (s *Store) Newest(ctx context.Context) (int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	type newest struct {
		x         *session
		gen, next int64
	}
	n, err := read(ctx, s, func(x *session, c *zk.Conn) (n newest, err error) {
		if _, err = c.Sync(x.path(changesPath)); err != nil {
			return n, err
		}
		gen, err := x.loadGeneration(c)
		if err != nil {
			return n, err
		}
		next, err := x.countNotes(c, gen.number)
		return newest{x, gen.number, next}, err
	})
	if err != nil {
		return 0, err
	}
	for {
		last := n.x.notes.Last()
		at := n.x.taken.Load()
		if at.gen > n.gen || at.gen == n.gen && at.next >= n.next {
			return at.number, nil
		}
		_, err := n.x.notes.Changes(ctx, last, n.x.lost)
		if gap := (*meta.ErrGap)(nil); err != nil && !errors.As(err, &gap) {
			return 0, s.unreachable(err)
		}
	}
}
