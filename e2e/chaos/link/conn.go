package link

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// conn is one connection through a link.
type conn struct {
	link *Link
	in   net.Conn
	from string // the caller's client id, once its first request has come; guarded by link.mu

	once sync.Once
	done chan struct{} // closed by reset

	mu      sync.Mutex
	out     net.Conn
	swallow map[int32]bool // correlation ids whose answers are dropped
	repeats int32
}

// reset ends both halves at once, without a farewell.
func (c *conn) reset() {
	c.once.Do(func() {
		close(c.done)
		abort(c.in)
		c.mu.Lock()
		defer c.mu.Unlock()
		abort(c.out)
	})
}

func abort(n net.Conn) {
	if t, ok := n.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	if n != nil {
		n.Close()
	}
}

// header is the beginning of a request.
type header struct {
	size        int32
	api         int16
	correlation int32
	client      string
}

// maxFrame is the largest request that a link passes on.
const maxFrame = 200 << 20

// peek reads the header of the next request without taking it.
func peek(r *bufio.Reader) (h header, err error) {
	b, err := r.Peek(14)
	if err != nil {
		return h, err
	}
	h.size, h.api = int32(binary.BigEndian.Uint32(b)), int16(binary.BigEndian.Uint16(b[4:]))
	h.correlation = int32(binary.BigEndian.Uint32(b[8:]))
	n := int(int16(binary.BigEndian.Uint16(b[12:])))
	if h.size < 10 || h.size > maxFrame || n > int(h.size)-10 {
		return h, fmt.Errorf("link: no Kafka request: a frame of %d bytes", h.size)
	}
	if n > 0 {
		if b, err = r.Peek(14 + min(n, 256)); err != nil {
			return h, err
		}
		h.client = string(b[14:])
	}
	return h, nil
}

// run passes requests until an end goes away.
func (c *conn) run() {
	defer c.reset()
	r := bufio.NewReaderSize(c.in, 64<<10)
	h, err := peek(r)
	if err != nil {
		return
	}
	c.link.mu.Lock()
	c.from = h.client
	c.link.mu.Unlock()
	if f, _ := c.link.matching(h.client, -1); f.Cut {
		return
	}
	out, ok := c.dial()
	if !ok {
		return
	}
	c.link.wg.Go(func() { defer c.reset(); c.answers(bufio.NewReaderSize(out, 64<<10)) })
	for err == nil {
		err = c.request(r, h)
		if err == nil {
			h, err = peek(r)
		}
	}
}

// dial connects to the target.
func (c *conn) dial() (net.Conn, bool) {
	out, err := net.DialTimeout("tcp", c.link.target, 10*time.Second)
	if err != nil {
		return nil, false
	}
	c.mu.Lock()
	c.out = out
	c.mu.Unlock()
	select {
	case <-c.done: // reset has not seen it
		abort(out)
		return nil, false
	default:
		return out, true
	}
}

// request passes one request on, as the faults of this moment will have it.
func (c *conn) request(r *bufio.Reader, h header) error {
	f, ok := c.wait(h.api, func(f Fault) bool { return f.Requests })
	if !ok {
		return io.ErrClosedPipe
	}
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-c.done:
			return io.ErrClosedPipe
		}
	}
	if !f.Repeat {
		_, err := io.CopyN(c.out, r, int64(h.size)+4)
		return err
	}
	frame := make([]byte, h.size+4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return err
	}
	if _, err := c.out.Write(frame); err != nil {
		return err
	}
	c.mu.Lock()
	c.repeats++
	again := -c.repeats - 1000 // clients count from 0 upwards
	c.swallow[again] = true
	c.mu.Unlock()
	binary.BigEndian.PutUint32(frame[8:], uint32(again))
	_, err := c.out.Write(frame)
	return err
}

// answers passes answers back.
func (c *conn) answers(r *bufio.Reader) {
	for {
		b, err := r.Peek(8)
		if err != nil {
			return
		}
		size, correlation := int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))
		if size < 4 {
			return
		}
		if _, ok := c.wait(-1, func(f Fault) bool { return f.Answers }); !ok {
			return
		}
		c.mu.Lock()
		drop := c.swallow[correlation]
		delete(c.swallow, correlation)
		c.mu.Unlock()
		var to io.Writer = c.in
		if drop {
			to = io.Discard
		}
		if _, err := io.CopyN(to, r, int64(size)+4); err != nil {
			return
		}
	}
}

// wait waits while a fault holds something up, and tells what is to happen to it.
func (c *conn) wait(api int16, held func(Fault) bool) (Fault, bool) {
	for {
		f, changed := c.link.matching(c.from, api)
		if f.Cut {
			return f, false
		}
		if !held(f) {
			return f, true
		}
		select {
		case <-changed:
		case <-c.done:
			return f, false
		}
	}
}
