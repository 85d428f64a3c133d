package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"firn/segment"
	"firn/segment/vfs"
)

// sendfileMin is the stretch of a file from which on sendfile pays; less is read
// into the buffer behind what precedes it, and leaves with it in one write.
const sendfileMin = 64 << 10

// stage is how much is put together for one write.
const stage = 256 << 10

// flush writes what is held back. It may be called at any time by the reader:
// while acks wait, nothing is held back.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	if cap(c.out) > outKeep {
		c.s.pool.Put(c.out)
		c.out = nil
	}
	return err
}

// flushIfMuch keeps what is held back within bounds.
func (c *conn) flushIfMuch() error {
	if len(c.out) < heldMax {
		return nil
	}
	return c.flush()
}

// flushAll writes what is held back, after the acks that still wait.
func (c *conn) flushAll(ctx context.Context) error {
	if err := c.acks.drain(ctx); err != nil {
		return err
	}
	return c.flush()
}

// body is records that belong into a response at a place.
type body struct {
	at      int
	records *segment.Records
}

// writeResponse writes what is held back, then resp with each body at its place.
func (c *conn) writeResponse(resp []byte, bodies []body) error {
	total := len(c.out) + len(resp)
	for i := range bodies {
		total += bodies[i].records.Len()
	}
	if err := c.grow(min(total, stage)); err != nil {
		return err
	}
	from := 0
	for i := range bodies {
		if err := c.write(resp[from:bodies[i].at]); err != nil {
			return err
		}
		from = bodies[i].at
		if err := c.writeRecords(bodies[i].records); err != nil {
			return err
		}
	}
	if err := c.write(resp[from:]); err != nil {
		return err
	}
	return c.flush()
}

// grow makes c.out a buffer for n bytes.
func (c *conn) grow(n int) error {
	if cap(c.out) >= n {
		return nil
	}
	b, err := c.s.pool.Get(n)
	if err != nil {
		return err
	}
	old := c.out
	c.out = b[:copy(b, old)]
	c.s.pool.Put(old)
	return nil
}

// write appends b to what goes out next.
func (c *conn) write(b []byte) error {
	for len(b) > 0 {
		if len(c.out) == cap(c.out) {
			if err := c.push(); err != nil {
				return err
			}
		}
		n := copy(c.out[len(c.out):cap(c.out)], b)
		c.out = c.out[:len(c.out)+n]
		b = b[n:]
	}
	return nil
}

// push writes c.out and keeps its buffer.
func (c *conn) push() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	c.moved.Add(1)
	return err
}

func (c *conn) writeRecords(r *segment.Records) error {
	for i := range r.Parts() {
		p := r.Part(i)
		var err error
		switch {
		case p.Mem != nil:
			err = c.writeMemory(p.Mem)
		case p.Len >= sendfileMin:
			err = c.writeFile(p.File, p.Off, p.Len)
		default:
			err = c.copyFile(p.File, p.Off, p.Len)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeMemory writes b: with what precedes it in one go if it is large.
func (c *conn) writeMemory(b []byte) error {
	if len(b) < sendfileMin && len(c.out)+len(b) <= cap(c.out) {
		return c.write(b)
	}
	vec := append(c.vec[:0], c.out, b)
	c.vec = vec // WriteTo eats its receiver, not this
	_, err := vec.WriteTo(c.nc)
	clear(c.vec)
	c.out = c.out[:0]
	c.moved.Add(1)
	return err
}

// copyFile appends a stretch of a file to what goes out next.
func (c *conn) copyFile(f vfs.File, off int64, n int) error {
	for n > 0 {
		if len(c.out) == cap(c.out) || n <= cap(c.out) && n > cap(c.out)-len(c.out) {
			if err := c.push(); err != nil {
				return err
			}
		}
		k := min(n, cap(c.out)-len(c.out))
		got, err := f.ReadAt(c.out[len(c.out):len(c.out)+k], off)
		if got < k {
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return &brokenFile{err}
		}
		c.out = c.out[:len(c.out)+k]
		off += int64(k)
		n -= k
	}
	return nil
}

// sendState is a sendfile under way. It lives in the connection, as do the two
// callbacks, so that a fetch allocates neither.
type sendState struct {
	file   int
	off    int64
	left   int
	err    error
	onFile func(fd uintptr)
	onSock func(fd uintptr) bool
}

// writeFile sends a stretch of a file, by sendfile where both ends have descriptors.
func (c *conn) writeFile(f vfs.File, off int64, n int) error {
	d, ok := f.(vfs.Descriptor)
	if !haveSendfile || c.raw == nil || !ok {
		return c.copyFile(f, off, n)
	}
	raw, err := d.SyscallConn()
	if err != nil {
		return c.copyFile(f, off, n)
	}
	if err := c.push(); err != nil {
		return err
	}
	s := &c.send
	if s.onFile == nil {
		s.onFile, s.onSock = c.sendFile, c.sendSome
	}
	s.off, s.left, s.err = off, n, nil
	if err := raw.Control(s.onFile); err != nil { // keeps the file's descriptor ours meanwhile
		return err
	}
	if s.err != nil && !errors.Is(s.err, syscall.EPIPE) && !errors.Is(s.err, syscall.ECONNRESET) && !errors.Is(s.err, net.ErrClosed) {
		return &brokenFile{s.err}
	}
	return s.err
}

// brokenFile: a file did not give what its log had promised. Part of the answer
// may have left, so that nothing is left but to end the connection.
type brokenFile struct{ err error }

func (e *brokenFile) Error() string { return fmt.Sprintf("broker: read records to send: %v", e.err) }
func (e *brokenFile) Unwrap() error { return e.err }

func (c *conn) sendFile(fd uintptr) {
	c.send.file = int(fd)
	if err := c.raw.Write(c.send.onSock); err != nil && c.send.err == nil {
		c.send.err = err
	}
}

// sendSome sends what the socket takes; false means: call again when it takes more.
func (c *conn) sendSome(fd uintptr) bool {
	s := &c.send
	n, again, err := sendRange(int(fd), s.file, &s.off, s.left)
	s.left -= n
	s.err = err
	c.moved.Add(1)
	return !again
}
