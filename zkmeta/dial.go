package zkmeta

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// handshakeTime bounds how long a server may take to accept us. The client
// library waits ten receive timeouts, and for the body without end: a stopped
// server whose kernel still takes connections would hold us beyond the session,
// with healthy ones beside it (B0).
const handshakeTime = time.Second

// maxHandshake bounds the answer to a connect request, whose length the library
// believes: 41 bytes as a rule. Other servers begin with text.
const maxHandshake = 4 << 10

var (
	// errSessionOver: this client's session has expired, and it gets no other.
	errSessionOver = errors.New("zkmeta: the session of this client is over")
	errNotZK       = errors.New("zkmeta: this is not a ZooKeeper server")
)

// dial connects the client to a server. Once its session has expired it gets no
// further connection, so that none of its requests is delivered in another
// session (B0).
func (l *link) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if l.over() {
		return nil, errSessionOver
	}
	ctx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	conn, err := l.cfg.Dial(ctx, network, address)
	if err == nil && l.cfg.TLS != nil {
		conn, err = encrypt(ctx, conn, address, l.cfg.TLS)
	}
	if err == nil {
		g := &guarded{Conn: conn, link: l, watches: make(chan struct{})}
		err = conn.SetReadDeadline(time.Now().Add(handshakeTime))
		if err == nil && l.adopt(g) {
			return g, nil
		}
		conn.Close()
	}
	if err == nil {
		err = errSessionOver
	}
	l.failed(err)
	l.refused(fmt.Errorf("%s: %w", address, err))
	return nil, err
}

func encrypt(ctx context.Context, plain net.Conn, address string, cfg *tls.Config) (net.Conn, error) {
	cfg = cfg.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(address)
	}
	conn := tls.Client(plain, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	}
	return conn, nil
}

// guarded is a connection whose handshake must be over in time: until then its
// read deadline is ours, from the dialing, whatever the library sets.
//
//	length int32 | protocol int32 | timeout int32, ms | session int64 | …
//
// Under the race detector it also holds answers back until the library has set its
// watches again (holdTime).
type guarded struct {
	net.Conn
	link *link

	watches chan struct{} // closed when the watches are on their way
	set     bool          // watches is closed; it belongs to who writes

	// All of it belongs to whoever reads, which also sets the read deadlines.
	greeted  bool
	held     bool // the first answer was held back
	head     [12]byte
	got, end int // bytes of the answer read, and how many there are, 0 while unknown
}

func (g *guarded) SetReadDeadline(t time.Time) error {
	if !g.greeted {
		return nil
	}
	return g.Conn.SetReadDeadline(t)
}

// setWatches is the type of the request, of which the client writes each at once:
//
//	length int32 | xid int32 | type int32 | …
const setWatches = 101

func (g *guarded) Write(p []byte) (int, error) {
	if holdTime > 0 && !g.set && len(p) >= 12 && binary.BigEndian.Uint32(p[8:]) == setWatches {
		g.set = true
		close(g.watches)
	}
	return g.Conn.Write(p)
}

// hold waits until the watches are on their way, or not longer than it takes the
// library to find that there are none. It does so in small steps, so that a stall of
// the whole process counts as one of them.
func (g *guarded) hold() {
	g.held = true
	const step = 10 * time.Millisecond
	for range holdTime / step {
		select {
		case <-g.watches:
			return
		case <-time.After(step):
		case <-g.link.ctx.Done():
			return
		}
	}
}

func (g *guarded) Read(p []byte) (int, error) {
	if holdTime > 0 && g.greeted && !g.held {
		g.hold()
	}
	n, err := g.Conn.Read(p)
	if g.greeted || n == 0 {
		if err != nil {
			g.link.failed(err)
			if !g.greeted {
				g.link.refused(fmt.Errorf("%s does not answer: %w", g.RemoteAddr(), err))
			}
		}
		return n, err
	}
	if g.got < len(g.head) {
		copy(g.head[g.got:], p[:n])
	}
	g.got += n
	if g.end == 0 && g.got >= 4 {
		size := binary.BigEndian.Uint32(g.head[:])
		if size > maxHandshake || size < 20 {
			g.link.failed(errNotZK)
			g.link.refused(fmt.Errorf("%s: %w", g.RemoteAddr(), errNotZK))
			return 0, errNotZK
		}
		g.end = 4 + int(size)
	}
	if err == nil && g.end > 0 && g.got >= g.end {
		g.link.granted(time.Duration(binary.BigEndian.Uint32(g.head[8:])) * time.Millisecond)
		g.greeted = true
	}
	return n, err
}

// hosts tells the client which server to try next: in a fixed order, and with a
// pause once all have refused. Names are resolved at each dial, since addresses
// change.
type hosts struct {
	mu      sync.Mutex
	servers []string
	next    int
	refused int // since a server last accepted us
}

func (h *hosts) Init(servers []string) error { h.servers = servers; return nil }

func (h *hosts) Len() int { return len(h.servers) }

func (h *hosts) Next() (server string, pause bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	pause = h.refused > 0 && h.refused%len(h.servers) == 0
	h.refused++
	return server, pause
}

func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = 0
}
