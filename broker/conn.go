package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/wire"
)

// conn is a client's connection. One goroutine reads it and answers in order:
//
//	frame → Produce    the answer joins those held back, or, if it must wait for
//	                   replicas or a flush, the queue of acks
//	      → Fetch      waits as it says; answered at once, records by sendfile
//	      → the rest   decoded by kmsg; the handler runs right here
//
// Answers are held back while whole requests are still buffered, and leave with
// one write before the reader would wait for more. While the queue of acks isn't
// empty it owns the writing side (see ackQueue); what isn't a Produce waits until
// it is, as a connection of Kafka's does.
type conn struct {
	s        *server
	nc       net.Conn
	raw      syscall.RawConn // nil: not a socket
	listener string
	host     string
	clientID string // of the last request: most come from one client

	frames  *wire.FrameReader
	spoken  bool // a valid request has come
	out     []byte
	vec     net.Buffers
	produce producer
	fetch   *fetcher // nil before the first Fetch
	acks    ackQueue
	send    sendState

	// moved counts what shows life: requests, and stretches written to slow readers.
	moved atomic.Uint32
	waits atomic.Bool // for something else than the client
	still struct {    // for the sweeper
		moved uint32
		since time.Duration
	}
}

// heldMax is how much may be held back before it is written all the same.
const heldMax = 32 << 10

// outKeep is how large a buffer for answers an idle connection may keep.
const outKeep = 4 << 10

func newConn(s *server, l *listener, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc, listener: l.Name}
	if sc, ok := nc.(*net.TCPConn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	c.host, _, _ = net.SplitHostPort(nc.RemoteAddr().String())
	c.frames = wire.NewFrameReader(nc, s.pool, s.memory, s.net.MaxRequestBytes, c.flush)
	c.acks.init(c)
	return c
}

// serve answers c's requests until it ends, and closes it. polls ends when the
// broker stops: what waits for more than its own work is done then. ctx ends when
// the stop has waited long enough.
func (c *conn) serve(ctx, polls context.Context) {
	defer c.s.remove(c)
	ctx, cancel := context.WithCancel(ctx)
	polls, done := context.WithCancel(polls)
	err := c.loop(ctx, polls)
	if err == nil || polls.Err() != nil {
		// The client is there and owed the answers to what it sent.
		if err := c.acks.drain(ctx); err == nil {
			_ = c.flush()
		}
	}
	_ = c.nc.Close()
	done()
	cancel() // and with it the acks that nobody will read
	c.acks.wait()
	c.frames.Close()
	if c.fetch != nil {
		c.fetch.close()
	}
	c.s.pool.Put(c.out)
}

// loop answers requests until the connection ends. A client that has gone is no error.
func (c *conn) loop(ctx, polls context.Context) error {
	for {
		if polls.Err() != nil && !c.frames.Buffered() {
			return context.Cause(polls)
		}
		frame, err := c.frames.Next(polls)
		if err != nil {
			c.blame(wire.RequestHeader{Key: -1}, err)
			return err
		}
		c.moved.Add(1)
		h, body, err := wire.ParseHeader(frame)
		if err == nil {
			err = c.answer(ctx, polls, h, body)
		}
		if err != nil {
			c.blame(h, err)
			return err
		}
		if !c.spoken {
			c.spoken = true
			c.frames.Trust()
		}
	}
}

// blame tells what ended the connection, if the client did something wrong or we did.
func (c *conn) blame(h wire.RequestHeader, err error) {
	bad, broken := (*badRequest)(nil), (*brokenFile)(nil)
	if errors.As(err, &broken) && c.s.complain.ok() {
		c.s.log.Error("records could not be read to be sent", "listener", c.listener, "host", c.host, "err", err)
	}
	if errors.As(err, &bad) || errors.Is(err, wire.ErrFrameSize) || errors.Is(err, wire.ErrShort) || errors.Is(err, errUnsupported) {
		c.s.refuse(c, h, err)
	}
}

// badRequest is a request that can't be read. As Kafka does, its connection is closed.
type badRequest struct{ err error }

func (e *badRequest) Error() string { return fmt.Sprintf("broker: malformed request: %v", e.err) }
func (e *badRequest) Unwrap() error { return e.err }

// answer answers one request.
func (c *conn) answer(ctx, polls context.Context, h wire.RequestHeader, body []byte) error {
	a := c.s.api(h.Key)
	if a == nil {
		return errUnsupported
	}
	if h.Version < a.min || h.Version > a.max {
		if h.Key != wire.KeyApiVersions {
			return errUnsupported
		}
		return c.answerMessage(ctx, h, apiVersionsUnknown(a), false)
	}
	if string(h.ClientID) != c.clientID {
		c.clientID = string(h.ClientID)
	}
	m := &c.s.metrics.byKey[h.Key]
	start := time.Now()
	var err error
	switch h.Key {
	case wire.KeyProduce:
		err = c.answerProduce(ctx, h, body)
	case wire.KeyFetch:
		err = c.answerFetch(ctx, polls, h, body)
	default:
		err = c.answerOther(ctx, polls, a, h, body)
	}
	m.observe(time.Since(start))
	return err
}

// answerOther answers a request that kmsg decodes. It decodes a copy: handlers
// may keep what they get, the frame's buffer lives on for others (G5).
func (c *conn) answerOther(ctx, polls context.Context, a *api, h wire.RequestHeader, body []byte) error {
	msg := a.key.Request()
	msg.SetVersion(h.Version)
	flexible := msg.IsFlexible()
	if flexible {
		var err error
		if body, err = wire.SkipHeaderTags(body); err != nil {
			return &badRequest{err}
		}
	}
	if err := msg.ReadFrom(bytes.Clone(body)); err != nil {
		return &badRequest{err}
	}
	// The handler may take its time: nothing waits for it but what comes after.
	if err := c.flushAll(ctx); err != nil {
		return err
	}
	c.waits.Store(true)
	resp := a.handle(c.s.b, polls, &request{
		version:  h.Version,
		clientID: c.clientID,
		listener: c.listener,
		host:     c.host,
		msg:      msg,
	})
	c.waits.Store(false)
	if resp == nil {
		return errHandlerCloses
	}
	resp.SetVersion(h.Version)
	return c.answerMessage(ctx, h, resp, flexible && h.Key != wire.KeyApiVersions)
}

var errHandlerCloses = errors.New("broker: connection closed by its handler")

// answerMessage holds back the response, which has a header with tags or without.
func (c *conn) answerMessage(ctx context.Context, h wire.RequestHeader, resp kmsg.Response, tags bool) error {
	if err := c.acks.drain(ctx); err != nil {
		return err
	}
	start := len(c.out)
	c.out = wire.BeginResponse(c.own(), h.Correlation, tags)
	c.out = resp.AppendTo(c.out)
	wire.EndResponse(c.out, start, 0)
	return c.flushIfMuch()
}

// own is c.out, with a buffer if it has none.
func (c *conn) own() []byte {
	if c.out == nil {
		b, err := c.s.pool.Get(outKeep)
		if err == nil { // it is only small buffers' pool that can't fail
			c.out = b[:0]
		}
	}
	return c.out
}

// stopReading makes the reader end after the requests that have arrived.
func (c *conn) stopReading() {
	if tc, ok := c.nc.(*net.TCPConn); ok && tc.CloseRead() == nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now())
}

// idleFor tells for how long c has lain still, as far as calls that are a step
// apart can tell. Only the sweeper calls it.
func (c *conn) idleFor(step time.Duration) time.Duration {
	m := c.moved.Load() + c.frames.Moved()
	if m != c.still.moved || c.waits.Load() || c.acks.waiting() {
		c.still.moved, c.still.since = m, 0
		return 0
	}
	c.still.since += step
	return c.still.since
}
