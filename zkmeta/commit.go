package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"firn/replication/meta"
)

// generationTries bounds how often a commit goes again because the notes have
// begun a new generation, which happens once in a thousand million notes.
const generationTries = 3

// Commit applies all ops or none, in one Multi. It waits for a connection, but
// sends once: what was sent and not answered may have happened, or may yet (Z3).
func (s *Store) Commit(ctx context.Context, ops ...meta.Op) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	note, err := meta.Admit(ops)
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	ops = cloned(ops)
	for tries := 0; ; {
		x, err := s.session(ctx)
		if err != nil {
			return s.unreachable(err)
		}
		if len(ops) == 0 {
			return nil
		}
		if err = x.ready(ctx); err == nil {
			var stale bool
			stale, err = x.commit(ctx, ops, note != nil)
			if err == nil {
				return nil
			}
			if stale {
				if tries++; tries == generationTries {
					return err
				}
				if _, err := ask(ctx, x, x.loadGeneration); err != nil && !transient(err) {
					return s.unreachable(err)
				}
				continue
			}
		}
		// A request that no server has seen is made again. ErrNoServer says so of
		// those that were still queued.
		if !errors.Is(err, errNotSent) && !errors.Is(err, errSessionOver) && !errors.Is(err, zk.ErrNoServer) || ctx.Err() != nil {
			return s.unreachable(err)
		}
	}
}

// cloned is ops with values of its own: a request may stay queued after its
// caller has gone.
func cloned(ops []meta.Op) []meta.Op {
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i].Value = slices.Clone(ops[i].Value)
	}
	return ops
}

// commit sends ops. stale: the generation of notes that we knew is over, and
// nothing has happened.
func (x *session) commit(ctx context.Context, ops []meta.Op, noted bool) (stale bool, err error) {
	requests := make([]any, 0, len(ops)+1)
	gen := x.generation.Load()
	if noted {
		requests = append(requests, &zk.CheckVersionRequest{Path: x.path(changesPath), Version: gen.version})
	}
	for _, o := range ops {
		r, err := x.request(o, gen.number)
		if err != nil {
			return false, err
		}
		requests = append(requests, r)
	}
	results, err := ask(ctx, x, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(requests...) })
	if err == nil {
		return false, nil
	}
	i := slices.IndexFunc(results, func(r zk.MultiResponse) bool { return r.Error != nil })
	if i < 0 {
		return false, fmt.Errorf("zkmeta: commit: %w", err)
	}
	if noted {
		i-- // the check before the operations
	}
	if i < 0 || i < len(ops) && ops[i].Kind == meta.Announce {
		return true, fmt.Errorf("zkmeta: commit: change notes: %w", err)
	}
	if i >= len(ops) {
		return false, fmt.Errorf("zkmeta: commit: %w", err)
	}
	if refusal := refusal(err); refusal != nil {
		return false, &meta.Conflict{Index: i, Op: ops[i], Err: refusal}
	}
	return false, fmt.Errorf("zkmeta: operation %d on %s: %w", i, ops[i].Path, err)
}

// refusal is a server's refusal of an operation in the contract's words, nil if
// it has none.
func refusal(err error) error {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return meta.ErrNotFound
	case errors.Is(err, zk.ErrNodeExists):
		return meta.ErrExists
	case errors.Is(err, zk.ErrBadVersion):
		return meta.ErrVersion
	case errors.Is(err, zk.ErrNotEmpty):
		return meta.ErrNotEmpty
	}
	return nil
}

// request is an operation as ZooKeeper has it.
func (x *session) request(o meta.Op, gen int64) (any, error) {
	path := x.path(o.Path)
	switch o.Kind {
	case meta.Create:
		return &zk.CreateRequest{Path: path, Data: o.Value, Acl: x.acl(o.Path)}, nil
	case meta.CreateEphemeral:
		return &zk.CreateRequest{Path: path, Data: o.Value, Acl: x.acl(o.Path), Flags: zk.FlagEphemeral}, nil
	case meta.Set:
		return &zk.SetDataRequest{Path: path, Data: o.Value, Version: o.Version}, nil
	case meta.Delete:
		return &zk.DeleteRequest{Path: path, Version: o.Version}, nil
	case meta.Check:
		return &zk.CheckVersionRequest{Path: path, Version: o.Version}, nil
	case meta.Announce:
		dir := generationPath(gen)
		return &zk.CreateRequest{Path: x.path(dir) + "/", Data: o.Value, Acl: x.acl(dir), Flags: zk.FlagSequence}, nil
	}
	return nil, fmt.Errorf("zkmeta: operation of kind %d", o.Kind)
}

// acls says who may do what with the nodes we create: everybody, or everything
// for us alone and reading for all, but for what is secret.
func acls(only bool) func(path string) []zk.ACL {
	all := zk.WorldACL(zk.PermAll)
	if !only {
		return func(string) []zk.ACL { return all }
	}
	ours := zk.AuthACL(zk.PermAll)
	readable := append(slices.Clone(ours), zk.WorldACL(zk.PermRead)...)
	return func(path string) []zk.ACL {
		for _, secret := range []string{"/config/users", "/config/brokers"} {
			if path == secret || strings.HasPrefix(path, secret+"/") {
				return ours
			}
		}
		return readable
	}
}
