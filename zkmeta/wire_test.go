package zkmeta

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// wire is a way to ZooKeeper that a test can cut, and which remembers the session's
// password.
type wire struct {
	mu    sync.Mutex
	cut   bool
	conns map[*tap]bool
	last  *tap
	kind  uint32 // told of when it is sent
	tell  func()
}

var errCut = errors.New("the wire is cut")

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if cut {
		return nil, errCut
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t := &tap{Conn: conn, wire: w, address: address}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		conn.Close()
		return nil, errCut
	}
	if w.conns == nil {
		w.conns = make(map[*tap]bool)
	}
	w.conns[t], w.last = true, t
	return t, nil
}

// Cut breaks all connections and allows no other until Heal.
func (w *wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for t := range w.conns {
		t.Close()
	}
	clear(w.conns)
}

func (w *wire) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

// multi is the type of a commit's request.
const multi = 14

// onSend has tell called when a request of a kind has been sent.
func (w *wire) onSend(kind uint32, tell func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kind, w.tell = kind, tell
}

// server is whom the newest connection is with.
func (w *wire) server() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last.address
}

// tap remembers the first bytes that come in, and tells what is sent.
type tap struct {
	net.Conn
	wire    *wire
	address string

	mu   sync.Mutex
	head []byte
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.head) < 64 {
		t.head = append(t.head, p[:n]...)
	}
	return n, err
}

// Write writes a request, which the client does at once:
//
//	length int32 | xid int32 | type int32 | …
func (t *tap) Write(p []byte) (int, error) {
	n, err := t.Conn.Write(p)
	t.wire.mu.Lock()
	defer t.wire.mu.Unlock()
	if t.wire.tell != nil && len(p) >= 12 && binary.BigEndian.Uint32(p[8:]) == t.wire.kind {
		t.wire.tell()
	}
	return n, err
}

// expire ends the session that the wire carries.
func (w *wire) expire(t testing.TB) {
	t.Helper()
	w.Cut()
	defer w.Heal()
	w.end(t)
}

// end ends the session that the wire carried, from another connection: what the
// servers do when they haven't heard of it for too long. Meanwhile the wire must be
// cut, for two connections of one session end each other.
func (w *wire) end(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	tap := w.last
	w.mu.Unlock()
	tap.mu.Lock()
	head := append([]byte(nil), tap.head...)
	tap.mu.Unlock()
	// length, protocol, timeout, session, length of the password, password
	session, password := head[12:20], head[24:40]

	conn, err := net.Dial("tcp", tap.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(limit))
	frame := func(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }
	connect := binary.BigEndian.AppendUint32(nil, 0)         // protocol
	connect = binary.BigEndian.AppendUint64(connect, 0)      // zxid seen
	connect = binary.BigEndian.AppendUint32(connect, 10_000) // timeout
	connect = append(connect, session...)
	connect = binary.BigEndian.AppendUint32(connect, uint32(len(password)))
	connect = append(connect, password...)
	const closeSession = -11
	closing := binary.BigEndian.AppendUint32(nil, 1)
	closing = binary.BigEndian.AppendUint32(closing, 1<<32+closeSession)
	if _, err := conn.Write(append(frame(connect), frame(closing)...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil { // answers, and the end
		t.Fatal(err)
	}
}
