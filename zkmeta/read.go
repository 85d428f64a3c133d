package zkmeta

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"firn/replication/meta"
)

// Get reads a node.
func (s *Store) Get(ctx context.Context, path string) (meta.Node, error) {
	if meta.CheckPath(path) != nil {
		return meta.Node{}, meta.ErrNotFound
	}
	return read(ctx, s, func(x *session, c *zk.Conn) (meta.Node, error) {
		value, stat, err := c.Get(x.path(path))
		if err != nil {
			return meta.Node{}, err
		}
		return meta.Node{Value: value, Version: stat.Version, Rev: stat.Mzxid}, nil
	})
}

// Children lists the names below path, sorted.
func (s *Store) Children(ctx context.Context, path string) ([]string, error) {
	if path != "/" && meta.CheckPath(path) != nil {
		return nil, meta.ErrNotFound
	}
	return read(ctx, s, func(x *session, c *zk.Conn) ([]string, error) {
		p := x.path(path)
		if p == "" {
			p = "/"
		}
		names, _, err := c.Children(p)
		slices.Sort(names)
		return names, err
	})
}

// pause is how long a read waits before it is made again on a connection that has
// failed and doesn't know yet.
const pause = 10 * time.Millisecond

// read makes a request that changes nothing, again if the connection or the
// session ends on the way.
func read[T any](ctx context.Context, s *Store, f func(*session, *zk.Conn) (T, error)) (T, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var none T
	for {
		if ctx.Err() != nil {
			return none, s.unreachable(context.Cause(ctx))
		}
		x, err := s.session(ctx)
		if err != nil {
			return none, s.unreachable(err)
		}
		if err = x.ready(ctx); err == nil {
			var v T
			if v, err = ask(ctx, x, func(c *zk.Conn) (T, error) { return f(x, c) }); err == nil {
				return v, nil
			}
		}
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return none, meta.ErrNotFound
		case !transient(err):
			return none, s.unreachable(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
