package link

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each request with its correlation id and counts them by API.
type echo struct {
	net.Listener
	mu   sync.Mutex
	seen map[int16]int
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{Listener: ln, seen: map[int16]int{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); e.serve(c) })
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return e
}

func (e *echo) serve(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		h, err := peek(r)
		if err != nil {
			return
		}
		if _, err := r.Discard(int(h.size) + 4); err != nil {
			return
		}
		e.mu.Lock()
		e.seen[h.api]++
		e.mu.Unlock()
		b := binary.BigEndian.AppendUint32(nil, 4)
		if _, err := c.Write(binary.BigEndian.AppendUint32(b, uint32(h.correlation))); err != nil {
			return
		}
	}
}

func (e *echo) count(api int16) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen[api]
}

type client struct {
	t *testing.T
	net.Conn
	name string
}

func (l *Link) dial(t *testing.T, name string) *client {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{t, c, name}
}

func (c *client) send(api int16, correlation int32) {
	c.t.Helper()
	b := binary.BigEndian.AppendUint32(nil, uint32(10+len(c.name)))
	b = binary.BigEndian.AppendUint16(b, uint16(api))
	b = binary.BigEndian.AppendUint16(b, 1)
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.name)))
	if _, err := c.Write(append(b, c.name...)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) answer() (int32, error) {
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	var b [8]byte
	_, err := io.ReadFull(c, b[:])
	return int32(binary.BigEndian.Uint32(b[4:])), err
}

func (c *client) want(correlation int32) {
	c.t.Helper()
	if got, err := c.answer(); got != correlation || err != nil {
		c.t.Fatalf("answer %d, %v; want %d", got, err, correlation)
	}
}

// silent tells that no answer comes for a moment.
func (c *client) silent() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var b [1]byte
	var timeout net.Error
	if _, err := c.Read(b[:]); !errors.As(err, &timeout) || !timeout.Timeout() {
		c.t.Fatalf("an answer came: %v", err)
	}
}

func newLink(t *testing.T, e *echo) *Link {
	t.Helper()
	l, err := New(e.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestLinkCutsOneCallerOnly(t *testing.T) {
	e := startEcho(t)
	l := newLink(t, e)
	a, b := l.dial(t, "a"), l.dial(t, "b")
	a.send(1, 1)
	a.want(1)
	b.send(1, 2)
	b.want(2)
	heal := l.Add(Fault{From: "a", Cut: true})
	if _, err := a.answer(); err == nil {
		t.Fatal("the connection was not cut")
	}
	b.send(1, 3)
	b.want(3)
	a = l.dial(t, "a")
	a.send(1, 4)
	if _, err := a.answer(); err == nil {
		t.Fatal("a new connection gets through")
	}
	heal()
	a = l.dial(t, "a")
	a.send(1, 5)
	a.want(5)
}

func TestLinkHoldsOneAPI(t *testing.T) {
	e := startEcho(t)
	l := newLink(t, e)
	c, other := l.dial(t, "a"), l.dial(t, "a")
	api := int16(7)
	heal := l.Add(Fault{API: &api, Requests: true})
	c.send(3, 1)
	c.want(1)
	c.send(7, 2)
	c.silent()
	other.send(3, 3)
	other.want(3)
	if e.count(7) != 0 {
		t.Fatal("the request arrived")
	}
	heal()
	c.want(2)
}

func TestLinkSwallowsAnswers(t *testing.T) {
	e := startEcho(t)
	l := newLink(t, e)
	c := l.dial(t, "a")
	heal := l.Add(Fault{Answers: true})
	c.send(1, 1)
	for deadline := time.Now().Add(time.Minute); e.count(1) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the request did not arrive")
		}
	}
	c.silent()
	heal()
	c.want(1)
}

func TestLinkRepeatsRequests(t *testing.T) {
	e := startEcho(t)
	l := newLink(t, e)
	c := l.dial(t, "a")
	api := int16(0)
	heal := l.Add(Fault{API: &api, Repeat: true})
	for i := range int32(3) {
		c.send(0, i)
		c.want(i)
	}
	heal()
	c.send(0, 9)
	c.want(9)
	c.silent()
	if n := e.count(0); n != 7 {
		t.Errorf("%d requests arrived, want 7", n)
	}
}
