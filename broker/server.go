package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/config"
	"firn/broker/wire"
)

// Network sets up the connections of a Broker. Zero means the default.
type Network struct {
	// MaxRequestBytes is the largest request (socket.request.max.bytes, 100 MiB).
	MaxRequestBytes int
	// QueuedBytes bounds what the large requests of all connections take
	// together (queued.max.request.bytes, 256 MiB).
	QueuedBytes int
	// MaxConnections bounds open connections (max.connections), and
	// MaxConnectionsPerIP those of one address (max.connections.per.ip); 0: no
	// bound. A Broker with Settings goes by those, which may change meanwhile.
	MaxConnections      int
	MaxConnectionsPerIP int
	// MaxIdle is how long a connection may lie still (connections.max.idle.ms,
	// 10 minutes; below zero: for ever).
	MaxIdle time.Duration
	// SendBufferBytes and ReceiveBufferBytes are socket.send.buffer.bytes and
	// socket.receive.buffer.bytes where the user set them; 0 and less: the system's.
	SendBufferBytes, ReceiveBufferBytes int
	// FetchMaxBytes is the most that a Fetch answers (fetch.max.bytes, 55 MiB).
	FetchMaxBytes int
	// FetchSessions is how many fetch sessions are kept
	// (max.incremental.fetch.session.cache.slots, 1000; below zero: none).
	FetchSessions int
	// StopGrace is how long a stop waits for requests that are being answered (10 s).
	StopGrace time.Duration
	// Poison overwrites used buffers, so that tests find who still looks at them.
	Poison bool
}

func (n Network) withDefaults() Network {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&n.MaxRequestBytes, 100<<20)
	def(&n.QueuedBytes, 256<<20)
	def(&n.FetchMaxBytes, 55<<20)
	if n.FetchSessions == 0 {
		n.FetchSessions = 1000
	}
	if n.MaxIdle == 0 {
		n.MaxIdle = 10 * time.Minute
	}
	if n.StopGrace <= 0 {
		n.StopGrace = 10 * time.Second
	}
	return n
}

// server owns the listeners and the connections.
type server struct {
	b         *Broker
	net       Network
	log       *slog.Logger
	listeners []*listener
	apis      [128]*api // by key; nil: not served
	pool      *wire.Pool
	memory    *memory
	sessions  *sessionCache
	metrics   *metrics
	complain  limiter

	mu struct {
		sync.Mutex
		conns    map[*conn]struct{}
		perIP    map[string]int
		stopping bool
	}
}

func newServer(b *Broker, listeners []Listener, n Network, log *slog.Logger, m *metrics) (*server, error) {
	n = n.withDefaults()
	checkSendBuffer(&n, log)
	s := &server{
		b:        b,
		net:      n,
		log:      log,
		pool:     &wire.Pool{Poison: n.Poison},
		memory:   newMemory(n.QueuedBytes),
		sessions: newSessionCache(n.FetchSessions, b.now),
		metrics:  m,
	}
	s.mu.conns, s.mu.perIP = map[*conn]struct{}{}, map[string]int{}
	for _, a := range apis() {
		s.apis[a.key] = &a
	}
	for _, l := range listeners {
		open, err := listen(l)
		if err != nil {
			s.closeListeners()
			return nil, err
		}
		s.listeners = append(s.listeners, open)
	}
	return s, nil
}

// api is the row of the dispatch table for a key; nil if it isn't served.
func (s *server) api(key int16) *api {
	if key < 0 || int(key) >= len(s.apis) {
		return nil
	}
	return s.apis[key]
}

// run serves until ctx ends, then stops: no new connections, long polls are
// answered with what there is, what runs is finished, and what takes longer than
// StopGrace is cut off. Nothing of it runs when it has returned.
func (s *server) run(ctx context.Context) error {
	conns, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	polls, wake := context.WithCancel(conns)
	defer wake()

	var accepting, serving sync.WaitGroup
	for _, l := range s.listeners {
		accepting.Go(func() {
			s.accept(l, func(c *conn) {
				serving.Go(func() { c.serve(conns, polls) })
			})
		})
	}
	sweepCtx, stopSweep := context.WithCancel(conns)
	accepting.Go(func() { s.sweep(sweepCtx) })

	<-ctx.Done()
	s.closeListeners()
	stopSweep()
	accepting.Wait()

	wake()
	s.stopReading()
	done := make(chan struct{})
	go func() { serving.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(s.net.StopGrace):
		cut()
		s.closeConns()
		<-done
	}
	s.pool.Close()
	return nil
}

func (s *server) closeListeners() {
	for _, l := range s.listeners {
		_ = l.Close() // of an open listener: nothing to lose
	}
}

// accept hands the connections of l to start until l is closed.
func (s *server) accept(l *listener, start func(*conn)) {
	pause := time.Millisecond
	for {
		nc, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, say: it may pass
			if s.complain.ok() {
				s.log.Warn("accept failed", "listener", l.Name, "err", err)
			}
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
			continue
		}
		pause = time.Millisecond
		tune(nc, &s.net)
		c := newConn(s, l, nc)
		if reason := s.add(c); reason != "" {
			if s.complain.ok() {
				s.log.Warn("connection refused", "reason", reason, "listener", l.Name, "host", c.host)
			}
			_ = nc.Close()
			continue
		}
		start(c)
	}
}

// add counts c in, or says why not.
func (s *server) add(c *conn) (refused string) {
	most, perIP := s.limits(c.host)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.stopping:
		return "stopping"
	case len(s.mu.conns) >= most:
		return "max.connections"
	case s.mu.perIP[c.host] >= perIP:
		return "max.connections.per.ip"
	}
	s.mu.conns[c] = struct{}{}
	s.mu.perIP[c.host]++
	return ""
}

// limits are how many connections there may be in all and from host.
func (s *server) limits(host string) (most, perIP int) {
	most, perIP = s.net.MaxConnections, s.net.MaxConnectionsPerIP
	if c := s.b.settings(); c != nil {
		most, perIP = int(c.Int("max.connections")), int(c.Int("max.connections.per.ip"))
		for _, o := range config.SplitList(c.String("max.connections.per.ip.overrides")) {
			if h, n, ok := cutLast(o, ":"); ok && h == host {
				if v, err := strconv.Atoi(n); err == nil {
					return most, v
				}
			}
		}
		return most, perIP
	}
	if most <= 0 {
		most = math.MaxInt
	}
	if perIP <= 0 {
		perIP = math.MaxInt
	}
	return most, perIP
}

// cutLast cuts s at the last sep: an address may hold colons.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return strings.TrimSpace(s[:i]), strings.TrimSpace(s[i+len(sep):]), true
	}
	return s, "", false
}

func (s *server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
	if s.mu.perIP[c.host]--; s.mu.perIP[c.host] <= 0 {
		delete(s.mu.perIP, c.host)
	}
}

func (s *server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.mu.conns))
}

// stopReading lets each connection finish the requests that have arrived.
func (s *server) stopReading() {
	s.mu.Lock()
	s.mu.stopping = true
	s.mu.Unlock()
	for _, c := range s.all() {
		c.stopReading()
	}
}

func (s *server) closeConns() {
	for _, c := range s.all() {
		_ = c.nc.Close()
	}
}

// sweep closes connections on which nothing has moved for MaxIdle.
func (s *server) sweep(ctx context.Context) {
	if s.net.MaxIdle < 0 {
		return
	}
	every := max(s.net.MaxIdle/10, 10*time.Millisecond)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for _, c := range s.all() {
			if c.idleFor(every) >= s.net.MaxIdle {
				s.metrics.idleClosed.Inc()
				_ = c.nc.Close()
			}
		}
	}
}

// refuse tells why a connection was closed on its client.
func (s *server) refuse(c *conn, h wire.RequestHeader, err error) {
	if !s.complain.ok() {
		return
	}
	s.log.Warn("connection closed", "listener", c.listener, "host", c.host, "client", string(h.ClientID),
		"api", kmsg.NameForKey(h.Key), "key", h.Key, "version", h.Version, "err", err)
}

// limiter lets one message a second through.
type limiter struct{ last atomic.Int64 }

func (l *limiter) ok() bool {
	now := time.Now().UnixNano()
	last := l.last.Load()
	return now-last >= int64(time.Second) && l.last.CompareAndSwap(last, now)
}

var errUnsupported = fmt.Errorf("broker: API or version is not served")
