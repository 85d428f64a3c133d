package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"firn/replication/meta"
)

// sessionTimeout is what brokers get from our ZooKeeper.
const sessionTimeout = 2 * time.Second

// zookeeper is a model of an ensemble and of the way to it: one tree, a session
// per broker process that ends when it has not been heard of for long enough,
// requests and answers that take their time or are lost, and requests that a
// client library delivers after it has given up on them, if need be in the
// session that came after (Z2, measured).
type zookeeper struct {
	s    *sched
	tree *meta.Memory
	// eye reads the tree for the checks; it never expires.
	eye *meta.MemorySession
	// down: there is no quorum. Sessions stand still.
	down bool
	// faulty: requests and answers may be lost.
	faulty bool
	// committed is called with each commit that the tree took.
	committed func(who string, ops []meta.Op)
	counts    *counts
	clients   []*zkClient // whose session may not be over
}

func newZooKeeper(s *sched, c *counts) *zookeeper {
	z := &zookeeper{s: s, tree: meta.NewMemory(), counts: c}
	z.eye = z.tree.Begin()
	return z
}

var (
	errUnreachable = errors.New("sim: connection to ZooKeeper lost")
	errUnknown     = errors.New("sim: connection to ZooKeeper lost while a request was under way")
)

// zkClient is a process's client: a store that outlives its sessions.
type zkClient struct {
	z *zookeeper
	m *machine
	p *process
	// silences counts the changes of who reaches whom; the loop's alone.
	silences int

	mu struct {
		sync.Mutex
		session *meta.MemorySession
		lost    chan struct{}  // closed when the client learns that its session is over
		commits map[string]int // by what they write
	}
}

var _ meta.Store = (*zkClient)(nil)

func (z *zookeeper) client(p *process) *zkClient {
	c := &zkClient{z: z, m: p.m, p: p}
	c.mu.session, c.mu.lost, c.mu.commits = z.tree.Begin(), make(chan struct{}), map[string]int{}
	z.clients = append(z.clients, c)
	return c
}

// quorum ends an outage of the ensemble: sessions count from here on.
func (z *zookeeper) quorum() {
	z.down = false
	z.clients = slices.DeleteFunc(z.clients, func(c *zkClient) bool { return c.p.dead() && ended(c.current()) })
	for _, c := range z.clients {
		c.heard()
	}
}

// SessionTimeout is how long a session lives without its client.
func (c *zkClient) SessionTimeout() time.Duration { return sessionTimeout }

// reachable: the process and the ensemble hear each other.
func (c *zkClient) reachable() bool { return !c.z.down && !c.m.cutOff && !c.m.paused && !c.p.dead() }

// heard looks, at each change of who reaches whom, whether the session is to end
// in a while.
func (c *zkClient) heard() {
	c.silences++
	if c.reachable() {
		c.reconnect()
		return
	}
	if c.z.down {
		return
	}
	s, silence := c.current(), c.silences
	c.z.s.post(&event{
		key:   fmt.Sprintf("%s session may expire", c.p.name),
		delay: between(sessionTimeout, sessionTimeout*3/2),
		fire: func() {
			if !c.reachable() && !c.z.down && c.silences == silence {
				s.End()
			}
		},
	})
}

// expire ends the session though its client is there.
func (c *zkClient) expire() {
	c.current().End()
	if c.reachable() {
		c.reconnect()
	}
}

func (c *zkClient) current() *meta.MemorySession {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.session
}

// reconnect has the client learn that its session is over, and begin the next.
func (c *zkClient) reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ended(c.mu.session) {
		return
	}
	close(c.mu.lost)
	c.mu.session, c.mu.lost = c.z.tree.Begin(), make(chan struct{})
	c.z.counts.add("sessions lost", 1)
}

func ended(s *meta.MemorySession) bool {
	_, lost := s.Session()
	select {
	case <-lost:
		return true
	default:
		return false
	}
}

// Session identifies the session that the client knows.
func (c *zkClient) Session() (int64, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, _ := c.mu.session.Session()
	return id, c.mu.lost
}

// Get reads a node. Reads take no time of their own, so that the order in which a
// caller makes several of them doesn't matter; see answer.
func (c *zkClient) Get(ctx context.Context, path string) (meta.Node, error) {
	if !c.reachable() {
		return meta.Node{}, errUnreachable
	}
	return c.current().Get(ctx, path)
}

// Children lists a node's children.
func (c *zkClient) Children(ctx context.Context, path string) ([]string, error) {
	if !c.reachable() {
		return nil, errUnreachable
	}
	return c.current().Children(ctx, path)
}

// Changes waits for notes; they come as late as an answer may.
func (c *zkClient) Changes(ctx context.Context, after int64) ([]meta.Note, error) {
	if !c.reachable() {
		return nil, errUnreachable
	}
	notes, err := c.current().Changes(ctx, after)
	if gap := (*meta.ErrGap)(nil); err != nil && !errors.As(err, &gap) {
		return notes, err
	}
	if err := c.answer(ctx, fmt.Sprintf("%s%s notes after %d", c.p.name, actor(ctx), after)); err != nil {
		return nil, err
	}
	return notes, err
}

// answer is the way back from the ensemble.
func (c *zkClient) answer(ctx context.Context, key string) error {
	err := c.z.s.wait(ctx, key, func() bool { return c.m.paused && !c.p.dead() }, between(200*time.Microsecond, 8*time.Millisecond))
	if err == nil && !c.reachable() {
		err = errUnreachable
	}
	return err
}

// Commit sends a request and waits for its answer.
func (c *zkClient) Commit(ctx context.Context, ops ...meta.Op) error {
	if !c.reachable() {
		return errUnreachable
	}
	c.mu.Lock()
	what := actor(ctx) + " commit " + subject(ops)
	c.mu.commits[what]++
	key := fmt.Sprintf("%s%s #%d", c.p.name, what, c.mu.commits[what])
	sent := c.mu.session
	c.mu.Unlock()
	result := make(chan error, 1)
	reply := func(err error) {
		c.z.s.post(&event{
			key:   key + " answered",
			held:  func() bool { return c.m.paused && !c.p.dead() },
			delay: between(200*time.Microsecond, 8*time.Millisecond),
			fire: func() {
				if !c.reachable() {
					err = errUnknown
				}
				result <- err
			},
		})
	}
	fate := fateFine
	c.z.s.post(&event{
		key: key,
		delay: func(r *rand.Rand) time.Duration {
			if c.z.faulty {
				fate = drawFate(r, strings.Contains(what, "firn/tier/"))
			}
			return between(200*time.Microsecond, 8*time.Millisecond)(r)
		},
		fire: func() {
			switch fate {
			case fateRequestLost:
				c.z.counts.add("requests lost", 1)
				reply(errUnknown)
			case fateAnswerLost:
				c.z.counts.add("answers lost", 1)
				_ = c.deliver(sent, ops)
				reply(errUnknown)
			case fateLate:
				c.z.counts.add("late commits", 1)
				reply(errUnknown)
				c.z.s.post(&event{key: key + " late", delay: between(50*time.Millisecond, 12*time.Second), fire: func() { _ = c.deliver(sent, ops) }})
			default:
				if c.z.down || c.m.cutOff {
					reply(errUnknown)
					return
				}
				reply(c.deliver(sent, ops))
			}
		},
	})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type fate int

const (
	fateFine fate = iota
	fateRequestLost
	fateAnswerLost
	fateLate
)

// drawFate draws what becomes of a request; those that move a pointer fare worse.
func drawFate(r *rand.Rand, pointer bool) fate {
	n := r.IntN(100)
	if pointer {
		n /= 3
	}
	switch {
	case n < 3:
		return fateRequestLost
	case n < 7:
		return fateAnswerLost
	case n < 11:
		return fateLate
	}
	return fateFine
}

// deliver applies a request: in the session that it was sent in, or, once that is
// over, in the client's next.
func (c *zkClient) deliver(sent *meta.MemorySession, ops []meta.Op) error {
	s := sent
	if ended(s) {
		if s = c.current(); ended(s) {
			return errUnknown
		}
		c.z.counts.add("commits in a later session", 1)
	}
	err := s.Commit(context.Background(), ops...)
	if err == nil {
		c.z.s.trace.note("zookeeper", "%s wrote %s", c.p.name, subject(ops))
		if c.z.committed != nil {
			c.z.committed(c.p.name, ops)
		}
	} else {
		c.z.s.trace.note("zookeeper", "refused %s %s: %v", c.p.name, subject(ops), err)
	}
	return err
}

// subject names what a commit writes.
func subject(ops []meta.Op) string {
	var paths []string
	for _, o := range ops {
		if o.Kind != meta.Check && o.Kind != meta.Announce {
			paths = append(paths, strings.TrimPrefix(o.Path, "/"))
		}
	}
	return strings.Join(paths, ",")
}
