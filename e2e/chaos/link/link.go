package link

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// Fault is what happens to an edge.
type Fault struct {
	// From is the caller, by client id; "" is everybody.
	From string
	// FromPrefix, if not empty, is how the names of the callers begin.
	FromPrefix string
	// Cut: connections are reset, and new ones end at once.
	Cut bool
	// Requests and Answers stand still, as on a network that swallows packets.
	// They arrive when the fault is over.
	Requests, Answers bool
	// API, if not nil, is the only one whose requests are concerned, and Repeat
	// sends each of them twice; the second answer is dropped.
	API    *int16
	Repeat bool
	// Delay is added to each request.
	Delay time.Duration
}

// Link is a proxy in front of a listener.
type Link struct {
	Addr   string // where to connect to
	target string
	ln     net.Listener
	wg     sync.WaitGroup
	// zookeeper: what passes are not Kafka's frames but a session's; callers have
	// no names.
	zookeeper bool

	mu struct {
		sync.Mutex
		closed  bool
		faults  []*Fault
		changed chan struct{} // closed when faults change
		conns   map[*conn]struct{}
		session session // the last one, of a link to ZooKeeper
	}
}

// New starts a link to target on a free port of the loopback. The target need
// not listen yet.
func New(target string) (*Link, error) { return start(target, false) }

// NewZooKeeper is New for a link to a ZooKeeper server.
func NewZooKeeper(target string) (*Link, error) { return start(target, true) }

func start(target string, zookeeper bool) (*Link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("link to %s: %w", target, err)
	}
	l := &Link{Addr: ln.Addr().String(), target: target, ln: ln, zookeeper: zookeeper}
	l.mu.changed, l.mu.conns = make(chan struct{}), map[*conn]struct{}{}
	l.wg.Go(l.accept)
	return l, nil
}

// Add puts a fault on the link until the returned function is called.
func (l *Link) Add(f Fault) (heal func()) {
	p := &f
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.faults = append(l.mu.faults, p)
	l.changedLocked()
	if f.Cut {
		for c := range l.mu.conns {
			if (f.From == "" || f.From == c.from) && strings.HasPrefix(c.from, f.FromPrefix) {
				c.reset()
			}
		}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, o := range l.mu.faults {
			if o == p {
				l.mu.faults = append(l.mu.faults[:i:i], l.mu.faults[i+1:]...)
				l.changedLocked()
				return
			}
		}
	}
}

func (l *Link) changedLocked() {
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// Close ends the link and all its connections.
func (l *Link) Close() error {
	l.mu.Lock()
	l.mu.closed = true
	l.mu.faults = nil
	l.changedLocked()
	for c := range l.mu.conns {
		c.reset()
	}
	l.mu.Unlock()
	err := l.ln.Close()
	l.wg.Wait()
	return err
}

// matching combines the faults that concern a request, or an answer (api < 0).
func (l *Link) matching(from string, api int16) (f Fault, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.mu.faults {
		if o.From != "" && o.From != from || !strings.HasPrefix(from, o.FromPrefix) || o.API != nil && *o.API != api {
			continue
		}
		f.Cut = f.Cut || o.Cut
		f.Requests, f.Answers, f.Repeat = f.Requests || o.Requests, f.Answers || o.Answers, f.Repeat || o.Repeat
		f.Delay += o.Delay
	}
	return f, l.mu.changed
}

func (l *Link) accept() {
	for {
		c, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, for a moment
			continue
		}
		l.wg.Go(func() { l.serve(c) })
	}
}

func (l *Link) serve(in net.Conn) {
	c := &conn{link: l, in: in, done: make(chan struct{}), swallow: map[int32]bool{}}
	l.mu.Lock()
	if l.mu.closed {
		l.mu.Unlock()
		c.reset()
		return
	}
	l.mu.conns[c] = struct{}{}
	l.mu.Unlock()
	if l.zookeeper {
		c.runZooKeeper()
	} else {
		c.run()
	}
	l.mu.Lock()
	delete(l.mu.conns, c)
	l.mu.Unlock()
}
