package solo

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"go.etcd.io/bbolt"

	"firn/replication/meta"
)

// Commit applies all ops or none, durably.
func (s *Store) Commit(ctx context.Context, ops ...meta.Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	note, err := meta.Admit(ops)
	if err != nil {
		return err
	}
	s.commit.Lock()
	defer s.commit.Unlock()
	if s.commit.err != nil {
		return s.commit.err
	}
	var refused *meta.Conflict
	err = s.db.Update(func(tx *bbolt.Tx) error { return s.apply(tx, ops) })
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, errMisuse):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("solo: commit: %w", err) // what it wrote is named by nothing
	case err != nil:
		s.commit.err = fmt.Errorf("solo: commit: %w", err)
		return s.commit.err
	}
	s.keepRoom()
	if note != nil {
		s.notes.Add(*note)
	}
	return nil
}

// errMisuse: a caller's mistake, found while applying; nothing was changed.
var errMisuse = errors.New("solo: operation not allowed")

func (s *Store) apply(tx *bbolt.Tx, ops []meta.Op) error {
	firn := tx.Bucket(firnBucket)
	rev := getUint64(firn, revKey) + 1
	for i, o := range ops {
		refusal, err := s.applyOne(tx, o, int64(rev))
		if err != nil {
			return err
		}
		if refusal != nil {
			return &meta.Conflict{Index: i, Op: o, Err: refusal}
		}
	}
	return putUint64(firn, revKey, rev)
}

// applyOne applies an operation; refusal says why it can't be.
func (s *Store) applyOne(tx *bbolt.Tx, o meta.Op, rev int64) (refusal, err error) {
	switch o.Kind {
	case meta.Announce:
		return nil, nil
	case meta.Create, meta.CreateEphemeral:
		return s.create(tx, o, rev)
	}
	n, ok := get(tx, o.Path)
	switch {
	case !ok:
		return meta.ErrNotFound, nil
	case o.Version != meta.AnyVersion && o.Version != n.Version:
		return meta.ErrVersion, nil
	}
	switch o.Kind {
	case meta.Check:
		return nil, nil
	case meta.Set:
		n.Value, n.Version, n.Rev = o.Value, n.Version+1, rev
		return nil, put(tx, o.Path, n)
	case meta.Delete:
		if hasChildren(tx, o.Path) {
			return meta.ErrNotEmpty, nil
		}
		if n.session != 0 {
			if err := tx.Bucket(ephemeralBucket).Delete([]byte(o.Path)); err != nil {
				return nil, err
			}
		}
		return nil, tx.Bucket(nodesBucket).Delete(key(o.Path))
	}
	return nil, fmt.Errorf("%w: kind %d", errMisuse, o.Kind)
}

func (s *Store) create(tx *bbolt.Tx, o meta.Op, rev int64) (refusal, err error) {
	if _, ok := get(tx, o.Path); ok {
		return meta.ErrExists, nil
	}
	if above := parent(o.Path); above != "" {
		p, ok := get(tx, above)
		if !ok {
			return meta.ErrNotFound, nil
		}
		if p.session != 0 {
			return nil, fmt.Errorf("%w: %s would stand below an ephemeral node", errMisuse, o.Path)
		}
	}
	n := node{Node: meta.Node{Value: o.Value, Rev: rev}}
	if o.Kind == meta.CreateEphemeral {
		n.session = uint64(s.session)
		if err := tx.Bucket(ephemeralBucket).Put([]byte(o.Path), nil); err != nil {
			return nil, err
		}
	}
	return nil, put(tx, o.Path, n)
}
