package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// link is what we know of a client's connection. The client's goroutines tell it,
// and are never kept: it only remembers, and wakes who waits (B0).
type link struct {
	cfg    *Config
	waits  func(err error) // told of each server that doesn't take us; nil: one does
	ctx    context.Context // ends with the client
	cancel context.CancelFunc

	mu      sync.Mutex
	conn    *guarded // the last one dialed
	up      bool     // a server has accepted our session, and the connection stands
	expired bool
	closed  bool
	since   time.Time // when up last changed
	timeout time.Duration
	err     error // the last failure
	changed chan struct{}

	calls sync.WaitGroup // goroutines that use the client
}

func newLink(cfg *Config, waits func(error)) *link {
	ctx, cancel := context.WithCancel(context.Background())
	return &link{cfg: cfg, waits: waits, ctx: ctx, cancel: cancel, since: time.Now(), timeout: cfg.SessionTimeout, changed: make(chan struct{})}
}

// event is the client's callback.
func (l *link) event(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	if e.State == zk.StateHasSession {
		l.waits(nil)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	up := e.State == zk.StateHasSession
	if up != l.up {
		l.up, l.since = up, time.Now()
	}
	if e.State == zk.StateExpired {
		l.expired = true
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// status is how the link is, and what is closed when that changes.
func (l *link) status() (up, expired bool, since time.Time, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, l.expired, l.since, l.changed
}

// over: no server may be asked on this client's behalf any more.
func (l *link) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expired || l.closed
}

// adopt makes g the connection, unless the client is over.
func (l *link) adopt(g *guarded) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expired || l.closed {
		return false
	}
	l.conn = g
	return true
}

// cut ends the connection and allows no other.
func (l *link) cut() {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil {
		l.conn.Close()
	}
}

// enter and leave enclose what uses the client in a goroutine of its own; none
// enters once the client has been cut off.
func (l *link) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.calls.Add(1)
	return true
}

func (l *link) leave() { l.calls.Done() }

// heard looks at a server's answer. One that says that the session is over, on a
// connection that stands, means nothing to the library, which would go on with
// pings that nobody answers; a new connection tells it.
func (l *link) heard(err error) {
	if !errors.Is(err, zk.ErrSessionExpired) && !errors.Is(err, zk.ErrSessionMoved) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up && l.conn != nil {
		l.conn.Close()
	}
}

// granted is the session timeout that a server has granted.
func (l *link) granted(d time.Duration) {
	if d <= 0 {
		return // the session is over
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timeout = d
}

func (l *link) sessionTimeout() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.timeout
}

// failed remembers why there is no connection, for words.
func (l *link) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// refused: a server did not take us, and the next is tried.
func (l *link) refused(err error) {
	if !l.over() {
		l.waits(err)
	}
}

func (l *link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// libraryLog is the client library's logger.
type libraryLog struct{ *slog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	l.Debug("zookeeper client", "says", strings.TrimSpace(fmt.Sprintf(format, args...)))
}
