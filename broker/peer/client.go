package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/wire"
	"firn/replication/meta"
)

// Config sets up a Client.
type Config struct {
	// Self is this broker in its current registration.
	Self func() meta.Member
	// Address is where the other broker is now; an error if that isn't known.
	Address func() (string, error)
	// Dial makes connections; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout is replica.socket.timeout.ms: the longest that an answer may take,
	// beyond what the request lets it wait.
	Timeout time.Duration
	// ReceiveBuffer is replica.socket.receive.buffer.bytes; 0 and less: the system's.
	ReceiveBuffer int
	// ClientID is what the other broker logs and meters.
	ClientID string
}

var (
	// ErrInterrupted: Interrupt has ended the request.
	ErrInterrupted = errors.New("peer: interrupted")
	// ErrAnswer: the answer can't be read.
	ErrAnswer = errors.New("peer: malformed answer")
)

const (
	// maxAnswer bounds an answer's length.
	maxAnswer = 512 << 20
	// smallAnswer is the buffer to begin with, keepAnswer what may be kept for
	// answers that are small again.
	smallAnswer = 64 << 10
	keepAnswer  = 1 << 20
	dialTimeout = 10 * time.Second
)

// Client asks one broker. Its methods are for one goroutine, but for Interrupt.
type Client struct {
	cfg         Config
	formatter   *kmsg.RequestFormatter
	correlation int32

	mu struct {
		sync.Mutex
		conn        net.Conn
		busy        bool
		interrupted bool
		closed      bool
	}

	out   []byte
	in    []byte // of the last answer
	fetch wire.ReplicaFetchWriter
	got   wire.ReplicaFetchAnswer
}

// New makes a Client; it connects with the first request.
func New(c Config) *Client {
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	return &Client{cfg: c, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID(c.ClientID))}
}

// Interrupt ends the request that is under way, if any, and its connection.
func (c *Client) Interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.busy {
		return
	}
	c.mu.interrupted = true
	if c.mu.conn != nil {
		_ = c.mu.conn.Close()
	}
}

// Close ends the connection for good.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
	if c.mu.conn != nil {
		_ = c.mu.conn.Close()
	}
}

// exchange sends a frame and returns the answer to it, without length and
// correlation id. After an error the connection is closed.
func (c *Client) exchange(ctx context.Context, frame []byte, wait time.Duration) (body []byte, err error) {
	c.mu.Lock()
	c.mu.busy, c.mu.interrupted = true, false
	c.mu.Unlock()
	conn, err := c.connect(ctx)
	if err == nil {
		body, err = c.roundTrip(conn, frame, wait)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.busy = false
	if err == nil {
		return body, nil
	}
	if c.mu.conn != nil {
		_ = c.mu.conn.Close()
		c.mu.conn = nil
	}
	if c.mu.interrupted || c.mu.closed {
		return nil, ErrInterrupted
	}
	return nil, err
}

// connect returns the connection, made anew if there is none.
func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	conn, closed := c.mu.conn, c.mu.closed
	c.mu.Unlock()
	if closed {
		return nil, ErrInterrupted
	}
	if conn != nil {
		return conn, nil
	}
	address, err := c.cfg.Address()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(dialTimeout, c.cfg.Timeout))
	defer cancel()
	if conn, err = c.cfg.Dial(ctx, "tcp", address); err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	if tc, ok := conn.(*net.TCPConn); ok && c.cfg.ReceiveBuffer > 0 {
		_ = tc.SetReadBuffer(c.cfg.ReceiveBuffer) // what fails costs speed, not more
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed || c.mu.interrupted {
		_ = conn.Close()
		return nil, ErrInterrupted
	}
	c.mu.conn = conn
	return conn, nil
}

func (c *Client) roundTrip(conn net.Conn, frame []byte, wait time.Duration) ([]byte, error) {
	if err := conn.SetDeadline(time.Now().Add(c.cfg.Timeout + wait)); err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	if _, err := conn.Write(frame); err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	body, err := c.read(conn)
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	return body, nil
}

// read reads one answer. All that arrives belongs to it, for one request is under
// way at a time.
func (c *Client) read(conn net.Conn) ([]byte, error) {
	if cap(c.in) > keepAnswer && len(c.in) < smallAnswer {
		c.in = nil
	}
	if c.in == nil {
		c.in = make([]byte, 0, smallAnswer)
	}
	b, need := c.in[:0], 8
	for len(b) < need {
		if len(b) == cap(b) {
			grown := make([]byte, len(b), min(need, max(2*cap(b), keepAnswer)))
			copy(grown, b)
			b = grown
		}
		n, err := conn.Read(b[len(b):min(cap(b), max(need, smallAnswer))])
		if err != nil {
			return nil, err
		}
		b = b[:len(b)+n]
		if need == 8 && len(b) >= 8 {
			size := int(int32(binary.BigEndian.Uint32(b)))
			if size < 4 || size > maxAnswer {
				return nil, fmt.Errorf("%w: of %d bytes", ErrAnswer, size)
			}
			if got := int32(binary.BigEndian.Uint32(b[4:])); got != c.correlation {
				return nil, fmt.Errorf("%w: to request %d, asked %d", ErrAnswer, got, c.correlation)
			}
			need = 4 + size
		}
	}
	c.in = b
	if len(b) > need {
		return nil, fmt.Errorf("%w: %d bytes behind it", ErrAnswer, len(b)-need)
	}
	return b[8:need], nil
}
