package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"firn/replication/meta"
)

// ErrUnreachable: no ZooKeeper server has answered in time.
var ErrUnreachable = errors.New("zkmeta: ZooKeeper is out of reach")

// Store is a meta.Store in ZooKeeper. It lives through any number of sessions.
type Store struct {
	cfg     Config
	servers []string
	giveUp  time.Time // when Open stops waiting
	root    string    // chroot
	acl     func(path string) []zk.ACL

	ctx    context.Context // ends with Close, or because of ErrPlace
	cancel context.CancelCauseFunc
	done   chan struct{}
	ending sync.WaitGroup // clients that are being closed

	mu         sync.Mutex
	now        *session // the current session, or the last one, lost
	next       chan struct{}
	link       *link     // the newest client's
	err        error     // why the last try to get a session failed
	told       time.Time // when it was last said that ZooKeeper is waited for; zero: a server has us
	nextNumber int64     // above every note number of the sessions before
}

var (
	_ meta.Expiring = (*Store)(nil)
	_ meta.Trimming = (*Store)(nil)
	_ meta.Current  = (*Store)(nil)
)

// Open connects to ZooKeeper and waits for the first session, at most for
// ConnectTimeout; ErrUnreachable if that is not enough. It makes the chroot if it
// is missing; ErrPlace where that would not be what was meant.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	servers, root, err := parseConnect(cfg.Connect)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg.withDefaults(), servers: servers, root: root, acl: acls(cfg.SetACL), done: make(chan struct{}), next: make(chan struct{})}
	s.giveUp = time.Now().Add(s.cfg.ConnectTimeout)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	go s.run()
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.ConnectTimeout, ErrUnreachable)
	defer cancel()
	if _, err := s.session(ctx); err != nil {
		why := s.why()
		s.Close()
		if errors.Is(err, ErrUnreachable) {
			return nil, fmt.Errorf("%w: %s gave no session within %v%s", ErrUnreachable, strings.Join(servers, ", "), s.cfg.ConnectTimeout, why)
		}
		return nil, err
	}
	return s, nil
}

// why is the last failure in words, empty if there was none.
func (s *Store) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil && s.link.failure() != nil {
		return ": " + s.link.failure().Error()
	}
	if s.err != nil {
		return ": " + s.err.Error()
	}
	return ""
}

// Close ends the session, whose ephemeral nodes go with it if a server can be
// told.
func (s *Store) Close() error {
	s.cancel(meta.ErrClosed)
	<-s.done
	s.ending.Wait()
	return nil
}

// again is how long run waits after a failure that isn't the network's.
const again = 500 * time.Millisecond

// run keeps a session: one after the other, until Close.
func (s *Store) run() {
	defer close(s.done)
	for s.ctx.Err() == nil {
		x, err := s.connect()
		if err == nil {
			err = s.first(x)
		}
		if errors.Is(err, ErrPlace) {
			s.cancel(err)
			return
		}
		if err != nil {
			s.failed(err)
			select {
			case <-time.After(again):
			case <-s.ctx.Done():
			}
			continue
		}
		why := x.await(s.ctx)
		s.retire(x)
		if s.ctx.Err() == nil {
			s.cfg.Log.Warn("ZooKeeper session lost", "session", fmt.Sprintf("0x%x", x.id), "why", why)
		}
	}
}

// first gets a session going and makes it the current one. A client that no
// server accepts for three session timeouts gives way to a fresh one, which knows
// no zxid that the servers could lack (Z1).
func (s *Store) first(x *session) error {
	s.mu.Lock()
	s.link = x.link
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(s.ctx, 3*s.cfg.SessionTimeout, ErrUnreachable)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { // an expiry on the way ends the try
		x.await(ctx)
		stop(errSessionOver)
	}()
	if err := x.begin(ctx, s); err != nil {
		if failure := x.link.failure(); failure != nil {
			err = fmt.Errorf("%w: %w", err, failure)
		}
		close(x.lost)
		s.end(x)
		return err
	}
	s.mu.Lock()
	s.now, s.err = x, nil
	close(s.next)
	s.next = make(chan struct{})
	s.mu.Unlock()
	s.cfg.Log.Info("ZooKeeper session", "session", fmt.Sprintf("0x%x", x.id), "server", x.conn.Server(), "timeout", x.link.sessionTimeout())
	return nil
}

// unproven: there has been no session yet, and zookeeper.connect may be wrong.
func (s *Store) unproven() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now == nil
}

// How often it is said that ZooKeeper is waited for: by Open, which nobody gets
// anything else to see from, and by a store that serves.
const (
	tellOpening = 5 * time.Second
	tellAgain   = 30 * time.Second
)

// waits says at once that no server takes us, because of err, and then now and
// then; nil: one does.
func (s *Store) waits(err error) {
	s.mu.Lock()
	before, began, every := s.told, s.now != nil, tellAgain
	if !began {
		every = tellOpening
	}
	tell := err != nil && time.Since(before) >= every
	switch {
	case err == nil:
		s.told = time.Time{}
	case tell:
		s.told = time.Now()
	}
	s.mu.Unlock()
	switch {
	case tell && !began:
		s.cfg.Log.Warn("waiting for ZooKeeper", "servers", strings.Join(s.servers, ","), "left", time.Until(s.giveUp).Round(time.Second), "err", err)
	case tell:
		s.cfg.Log.Warn("waiting for ZooKeeper", "servers", strings.Join(s.servers, ","), "err", err)
	case err == nil && !before.IsZero() && began:
		s.cfg.Log.Info("ZooKeeper answers again")
	}
}

func (s *Store) failed(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.cfg.Log.Warn("no ZooKeeper session; will retry", "err", err)
	}
}

// retire ends the current session.
func (s *Store) retire(x *session) {
	s.mu.Lock()
	s.nextNumber = max(s.nextNumber, x.notes.Last()+1)
	s.mu.Unlock()
	close(x.lost)
	s.end(x)
}

// end closes a client, while the next may already begin.
func (s *Store) end(x *session) { s.ending.Go(x.close) }

// session is the current session, as soon as there is one.
func (s *Store) session(ctx context.Context) (*session, error) {
	for {
		s.mu.Lock()
		x, next := s.now, s.next
		s.mu.Unlock()
		if x != nil {
			select {
			case <-x.lost:
			default:
				return x, nil
			}
		}
		select {
		case <-next:
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Session identifies the current session, or the last one while there is none:
// then lost is closed already. Requests wait for the next session.
func (s *Store) Session() (id int64, lost <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.id, s.now.lost
}

// SessionTimeout is what the server has granted the current session.
func (s *Store) SessionTimeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.link.sessionTimeout()
}

// bounded is ctx with an end: without one of its own, a request is given up after
// a session timeout, so that nobody waits for ever for a ZooKeeper that is gone.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.cfg.SessionTimeout, ErrUnreachable)
}

// unreachable tells what was waited for when our own bound ended a request.
func (s *Store) unreachable(err error) error {
	if !errors.Is(err, ErrUnreachable) {
		return err
	}
	return fmt.Errorf("%w: no answer from %s for %v%s", ErrUnreachable, strings.Join(s.servers, ", "), s.cfg.SessionTimeout, s.why())
}

// transient: the request may be made again as far as the connection is concerned.
// What the library gets from a write to it, it passes on as it is.
func transient(err error) bool {
	for _, e := range []error{zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrClosing,
		errSessionOver, errNotSent, io.EOF, net.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.As(err, new(*net.OpError))
}
