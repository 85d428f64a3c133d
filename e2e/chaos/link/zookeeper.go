package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// session is what a ZooKeeper client needs to go on with its session, and
// anybody else to end it.
type session struct {
	id       int64
	timeout  int32
	password []byte
}

// runZooKeeper passes bytes both ways until an end goes away, and remembers the
// session from the server's first answer.
func (c *conn) runZooKeeper() {
	defer c.reset()
	if f, _ := c.link.matching("", -1); f.Cut {
		return
	}
	out, ok := c.dial()
	if !ok {
		return
	}
	c.link.wg.Go(func() {
		defer c.reset()
		first := true
		c.pass(out, c.in, func(f Fault) bool { return f.Answers }, func(b []byte) {
			if first {
				c.link.sawSession(b)
			}
			first = false
		})
	})
	c.pass(c.in, out, func(f Fault) bool { return f.Requests }, nil)
}

func (c *conn) pass(from, to net.Conn, held func(Fault) bool, look func([]byte)) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if look != nil {
				look(b[:n])
			}
			if _, ok := c.wait(-1, held); !ok {
				return
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// sawSession reads a ConnectResponse: length, version, timeout, id, password.
func (l *Link) sawSession(b []byte) {
	const head = 4 + 4 + 4 + 8 + 4
	if len(b) < head {
		return
	}
	n := int(binary.BigEndian.Uint32(b[head-4:]))
	if n > 64 || len(b) < head+n {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.session = session{
		timeout:  int32(binary.BigEndian.Uint32(b[8:])),
		id:       int64(binary.BigEndian.Uint64(b[12:])),
		password: append([]byte(nil), b[head:head+n]...),
	}
}

// Expire ends the session that passed last by closing it from elsewhere: its
// owner hears of it when it connects again.
func (l *Link) Expire() error {
	var err error
	for range 5 { // a server that is just losing the old connection may drop ours
		l.mu.Lock()
		s := l.mu.session
		l.mu.Unlock()
		if s.id == 0 {
			return errors.New("link: no session has passed")
		}
		if err = s.end(l.target); err == nil {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("expire a session: %w", err)
}

// end closes the session at a server; one that is over already is no error.
func (s *session) end(server string) error {
	conn, err := net.DialTimeout("tcp", server, 2*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	// ConnectRequest: version, last zxid seen, timeout, id, password.
	body := binary.BigEndian.AppendUint32(nil, 0)
	body = binary.BigEndian.AppendUint64(body, 0)
	body = binary.BigEndian.AppendUint32(body, uint32(s.timeout))
	body = binary.BigEndian.AppendUint64(body, uint64(s.id))
	body = binary.BigEndian.AppendUint32(body, uint32(len(s.password)))
	body = append(body, s.password...)
	if err := frame(conn, body); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:]))); err != nil {
		return err
	}
	// closeSession: xid, type.
	const closeSession = -11
	op := int32(closeSession)
	body = binary.BigEndian.AppendUint32(nil, 1)
	if err := frame(conn, binary.BigEndian.AppendUint32(body, uint32(op))); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, conn) // the server closes the connection when it is done
	return nil
}

func frame(w io.Writer, body []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}
