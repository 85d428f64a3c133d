package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"firn/replication/meta"
)

// maxPacket bounds what a server may send at once: the names of all topics, of
// which 100 000 of the greatest length are 25 MB.
const maxPacket = 32 << 20

// session is one client with its one session. When that has expired the client
// goes, and the next session has a client of its own: a request of one session
// can't be delivered in the next (Z2).
type session struct {
	root string // chroot
	conn *zk.Conn
	link *link
	acl  func(path string) []zk.ACL
	id   int64
	lost chan struct{}

	// slots bounds the requests on their way.
	slots chan struct{}
	ended <-chan zk.Event // closed when the client has ended

	generation atomic.Pointer[generation]
	notes      *meta.Notes
	taken      atomic.Pointer[position] // how far notes goes
	begun      atomic.Bool              // Changes has told the gap that a new session is
}

// connect starts a client. It waits for nothing.
func (s *Store) connect() (*session, error) {
	x := &session{
		root:  s.root,
		link:  newLink(&s.cfg, s.waits),
		acl:   s.acl,
		lost:  make(chan struct{}),
		slots: make(chan struct{}, s.cfg.MaxInFlight),
	}
	var err error
	x.conn, x.ended, err = zk.Connect(s.servers, s.cfg.SessionTimeout,
		zk.WithHostProvider(new(hosts)),
		zk.WithDialer(x.link.dial),
		zk.WithEventCallback(x.link.event),
		zk.WithMaxBufferSize(maxPacket),
		zk.WithLogger(libraryLog{s.cfg.Log}),
		zk.WithLogInfo(false),
	)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return x, nil
}

// begin waits until a server grants a session, and makes it ready: it is
// authenticated, what is read is as new as the leader's, and the notes are
// followed (Z1).
func (x *session) begin(ctx context.Context, s *Store) error {
	for {
		up, _, _, changed := x.link.status()
		if up {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	x.id = x.conn.SessionID()
	if s.cfg.Digest != "" {
		_, err := ask(ctx, x, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.AddAuth("digest", []byte(s.cfg.Digest)) })
		if err != nil {
			return fmt.Errorf("zkmeta: authenticating: %w", err)
		}
	}
	if s.unproven() {
		if err := x.checkPlace(ctx, s.servers); err != nil {
			return err
		}
	}
	if err := x.makeRoots(ctx); err != nil {
		return err
	}
	if _, err := ask(ctx, x, func(c *zk.Conn) (string, error) { return c.Sync(x.path(changesPath)) }); err != nil {
		return fmt.Errorf("zkmeta: sync: %w", err)
	}
	return x.startNotes(ctx, s.nextNumber)
}

// makeRoots makes the chroot and the nodes of the notes, where they are missing.
func (x *session) makeRoots(ctx context.Context) error {
	_, err := ask(ctx, x, func(c *zk.Conn) (struct{}, error) {
		if exists, _, err := c.Exists(x.path(changesPath)); err != nil || exists {
			return struct{}{}, err
		}
		for i := 1; i <= len(x.root); i++ {
			if i == len(x.root) || x.root[i] == '/' {
				if err := make1(c, x.root[:i], nil, x.acl("/")); err != nil {
					return struct{}{}, err
				}
			}
		}
		for _, n := range []struct{ path, value string }{{"/firn", ""}, {changesPath, "0"}, {generationPath(0), ""}} {
			if err := make1(c, x.path(n.path), []byte(n.value), x.acl(n.path)); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		return fmt.Errorf("zkmeta: creating the nodes that everything stands below: %w", err)
	}
	return nil
}

// make1 makes a node if it is missing. Who may not write to the node above it
// would be refused whether it is missing or not, so that is asked first.
func make1(c *zk.Conn, path string, value []byte, acl []zk.ACL) error {
	if exists, _, err := c.Exists(path); err != nil || exists {
		return err
	}
	if _, err := c.Create(path, value, 0, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// await waits until the session is over: expired, or unheard of for three of its
// timeouts, or ctx ended.
func (x *session) await(ctx context.Context) (why string) {
	for {
		up, expired, since, changed := x.link.status()
		if expired {
			return "expired"
		}
		var silent <-chan time.Time
		if !up {
			silent = time.After(time.Until(since.Add(3 * x.link.sessionTimeout())))
		}
		select {
		case <-changed:
		case <-silent:
			return "no server accepts it"
		case <-ctx.Done():
			return "closed"
		}
	}
}

// ready waits until the connection stands.
func (x *session) ready(ctx context.Context) error {
	for {
		up, expired, _, changed := x.link.status()
		if up {
			return nil
		}
		if expired {
			changed = nil // the store is about to let go of it
		}
		select {
		case <-changed:
		case <-x.lost:
			return errSessionOver
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// close ends the client, in order if a server can be told. It returns when
// nothing of it runs any more.
func (x *session) close() {
	if up, _, _, _ := x.link.status(); up {
		x.conn.Close() // waits a second at most
		x.link.cut()
	} else {
		x.link.cut()
		x.conn.Close()
	}
	for range x.ended {
	}
	x.link.calls.Wait()
}

// path is a path of ours as ZooKeeper has it.
func (x *session) path(p string) string {
	if p == "/" && x.root != "" {
		return x.root
	}
	return x.root + p
}

// ask makes a request. It waits for an answer until ctx ends; the request may go
// on after that.
func ask[T any](ctx context.Context, x *session, f func(*zk.Conn) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	select {
	case x.slots <- struct{}{}:
	case <-x.lost:
		return none, errNotSent
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	if !x.link.enter() {
		<-x.slots
		return none, errNotSent
	}
	got := make(chan answer, 1)
	go func() {
		defer x.link.leave()
		defer func() { <-x.slots }()
		v, err := f(x.conn)
		x.link.heard(err)
		got <- answer{v, err}
	}()
	select {
	case a := <-got:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// errNotSent: a request that no server has seen.
var errNotSent = errors.New("zkmeta: request not sent")
