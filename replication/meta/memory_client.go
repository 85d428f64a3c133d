package meta

import (
	"context"
	"errors"
	"sync"
	"time"
)

// MemoryClient is a broker's own way to a Memory: a Store that outlives its
// sessions, as a ZooKeeper client does. When one has ended, the next begins by
// itself, and what is sent from then on is of that one.
type MemoryClient struct {
	tree *Memory
	// Timeout is what SessionTimeout answers. The client itself ends no session:
	// tests say when. Set it before the first use.
	Timeout time.Duration

	mu sync.Mutex
	// session is the current one, as far as the client knows: while it is cut off,
	// the tree may have ended it.
	session *MemorySession
	// lost is closed when the client learns that its session has ended.
	lost chan struct{}
	// cut: the tree can't be reached.
	cut  bool
	done bool
}

var (
	_ Expiring = (*MemoryClient)(nil)
	_ Current  = (*MemoryClient)(nil)
	_ Current  = (*MemorySession)(nil)
)

// ErrCut is what a MemoryClient answers while it is cut off.
var ErrCut = errors.New("meta: the store can't be reached")

// Client makes a client, in a session.
func (m *Memory) Client() *MemoryClient {
	return &MemoryClient{tree: m, session: m.Begin(), lost: make(chan struct{})}
}

// SessionTimeout is Timeout.
func (c *MemoryClient) SessionTimeout() time.Duration { return c.Timeout }

// Expire has the tree end the client's session. A client that is cut off learns
// of it when it can reach the tree again, as with ZooKeeper.
func (c *MemoryClient) Expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session.End()
	if !c.cut {
		c.nextLocked()
	}
}

// Cut cuts the client off: calls fail, and who waits for changes hears of none. The session goes on
// until somebody ends it.
func (c *MemoryClient) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
}

// Heal ends a Cut.
func (c *MemoryClient) Heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = false
	if !c.done {
		c.nextLocked()
	}
}

// Close ends the session, and with it the client.
func (c *MemoryClient) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session.End()
	if !c.done {
		c.done = true
		close(c.lost)
	}
	return nil
}

// nextLocked begins the next session, if the present one has ended.
func (c *MemoryClient) nextLocked() {
	select {
	case <-c.session.lost:
	default:
		return
	}
	close(c.lost)
	c.session, c.lost = c.tree.Begin(), make(chan struct{})
}

// current is the session to use now.
func (c *MemoryClient) current() (*MemorySession, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.done:
		return nil, ErrClosed
	case c.cut:
		return nil, ErrCut
	}
	return c.session, nil
}

// Session identifies the present session.
func (c *MemoryClient) Session() (int64, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.id, c.lost
}

// Get reads a node.
func (c *MemoryClient) Get(ctx context.Context, path string) (Node, error) {
	s, err := c.current()
	if err != nil {
		return Node{}, err
	}
	return s.Get(ctx, path)
}

// Children lists the names below path.
func (c *MemoryClient) Children(ctx context.Context, path string) ([]string, error) {
	s, err := c.current()
	if err != nil {
		return nil, err
	}
	return s.Children(ctx, path)
}

// Commit applies all ops or none.
func (c *MemoryClient) Commit(ctx context.Context, ops ...Op) error {
	s, err := c.current()
	if err != nil {
		return err
	}
	return s.Commit(ctx, ops...)
}

// Changes returns the notes after the given one. What it has waited for while
// the client was cut off comes when it asks again.
func (c *MemoryClient) Changes(ctx context.Context, after int64) ([]Note, error) {
	s, err := c.current()
	if err != nil {
		return nil, err
	}
	notes, err := s.Changes(ctx, after)
	if _, cut := c.current(); cut != nil {
		return nil, cut
	}
	return notes, err
}

// Newest is the number of the newest note.
func (c *MemoryClient) Newest(ctx context.Context) (int64, error) {
	s, err := c.current()
	if err != nil {
		return 0, err
	}
	return s.Newest(ctx)
}
