package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// FirstLimit is the largest frame before the first valid request: a stranger
// gets no more until it has shown that it speaks Kafka. A Produce is let through
// by its header, for a plain client may begin with a large one.
const FirstLimit = 512 << 10

// ErrFrameSize: a frame announces a length below zero or above the limit.
var ErrFrameSize = errors.New("wire: frame too large")

// decodeFactor is how much memory a byte of a message may take once decoded,
// where that isn't done in place.
const decodeFactor = 64

// Budget bounds the memory that the large frames of all connections take together.
type Budget interface {
	// Acquire waits until n bytes are free, or ctx ends. More than there are at
	// all counts as all.
	Acquire(ctx context.Context, n int) error
	Release(n int)
}

// FrameReader reads the frames of a connection.
//
// While bytes come it reads into a buffer of 256 KiB. Before it waits for more, it
// puts what it has into the smallest buffer that holds it, or none: an idle
// connection costs no buffer, and one that sends a frame byte by byte costs what it
// has sent. Of a frame above 64 KiB the first 64 KiB come for free; then its whole
// length is taken from the budget, and until that is granted the connection isn't
// read, which is what slows its client down. To take the whole length at once is
// what keeps many half frames from waiting for each other for ever.
type FrameReader struct {
	conn   net.Conn
	raw    syscall.RawConn // nil: conn isn't a socket, and is read by plain blocking reads
	pool   *Pool
	budget Budget
	limit  int
	max    int // limit once trusted
	before func() error

	buf      []byte
	r, w     int // buf[r:w] has been read and not yet returned
	reserved int // bytes taken from the budget for the frame at r
	base     int // size of buffer to read into
	stop     int // read up to buf[:stop]

	moved atomic.Uint32

	try func(fd uintptr) bool // tryRead, bound once
	err error
}

// NewFrameReader reads frames of up to limit bytes from conn, before Trust smaller
// ones. before is called each time that no whole frame is
// left and the reader is about to read, and so perhaps to wait: what a connection
// holds back to send it with more must leave then.
func NewFrameReader(conn net.Conn, pool *Pool, budget Budget, limit int, before func() error) *FrameReader {
	f := &FrameReader{conn: conn, pool: pool, budget: budget, limit: min(limit, FirstLimit), max: limit, before: before, base: size16K}
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			f.raw, f.base = raw, size256K
			f.try = f.tryRead
		}
	}
	return f
}

// Trust lets frames of the full size through: a valid request has come.
func (f *FrameReader) Trust() { f.limit = f.max }

// Moved counts the reads that brought something; anyone may call it.
func (f *FrameReader) Moved() uint32 { return f.moved.Load() }

// Next returns the next frame, without its length. It is good until the next
// call. ctx ends the wait for memory; to end a wait for bytes, close the connection.
func (f *FrameReader) Next(ctx context.Context) ([]byte, error) {
	f.endFrame()
	for {
		need := 4
		if f.w-f.r >= 4 {
			n := int(int32(be.Uint32(f.buf[f.r:])))
			if !f.allowed(n) {
				return nil, fmt.Errorf("%w: %d bytes", ErrFrameSize, n)
			}
			need += n
			if f.w-f.r >= need {
				frame := f.buf[f.r+4 : f.r+need : f.r+need]
				f.r += need
				return frame, nil
			}
		}
		if err := f.before(); err != nil {
			return nil, err
		}
		if err := f.room(ctx, need); err != nil {
			return nil, err
		}
		if err := f.fill(); err != nil {
			return nil, err
		}
	}
}

// allowed says whether the frame at f.r may have n bytes.
func (f *FrameReader) allowed(n int) bool {
	if n < 0 || n > f.max {
		return false
	}
	head := f.buf[f.r+4 : f.w]
	// As long as its header isn't there, a large frame costs nothing.
	return n <= f.limit || len(head) < 4 || be.Uint16(head) == KeyProduce && be.Uint16(head[2:]) <= maxProduce
}

// Buffered says whether Next would return without reading.
func (f *FrameReader) Buffered() bool {
	have := f.w - f.r
	return have >= 4 && have-4 >= int(be.Uint32(f.buf[f.r:]))
}

// Close gives back what the reader holds; the last frame is gone with it.
func (f *FrameReader) Close() {
	f.r = f.w
	f.endFrame()
	f.pool.Put(f.buf)
	f.buf = nil
}

// endFrame gives back what the last frame took.
func (f *FrameReader) endFrame() {
	if f.reserved > 0 {
		f.budget.Release(f.reserved)
		f.reserved = 0
		_ = f.conn.SetReadDeadline(time.Time{})
		if len(f.buf) > size2M { // a mapping for this frame alone: nothing follows in it
			f.pool.Put(f.buf)
			f.buf, f.r, f.w = nil, 0, 0
		}
	}
	if f.r == f.w {
		f.r, f.w = 0, 0
	}
}

// room makes room for a frame of need bytes at f.r, as far as it may have it already.
func (f *FrameReader) room(ctx context.Context, need int) error {
	have := f.w - f.r
	if need > size64K && f.reserved == 0 && have >= size64K {
		if err := f.reserve(ctx, need); err != nil {
			return err
		}
	}
	want := need
	switch {
	case f.reserved == 0:
		want = min(need, size256K)
		if f.raw != nil && need > 4 && need <= size256K {
			f.base = size256K
		}
	case need > size256K && f.raw != nil:
		f.base = size2M // more such frames are likely to follow
	}
	switch {
	case len(f.buf)-f.r >= want:
	case len(f.buf) >= want:
		f.compact()
	default:
		if err := f.move(max(want, f.base)); err != nil {
			return err
		}
	}
	// What isn't accounted for is never more than this.
	f.stop = min(len(f.buf), f.r+size256K)
	if f.reserved > 0 {
		f.stop = min(len(f.buf), f.r+need+size256K)
	}
	return nil
}

// reserve takes a whole frame's length from the budget.
func (f *FrameReader) reserve(ctx context.Context, need int) error {
	if err := f.move(f.w - f.r); err != nil { // this may take long: hold no more than there is
		return err
	}
	n := class(need)
	if key := int16(be.Uint16(f.buf[f.r+4:])); key != KeyProduce && key != KeyFetch {
		n *= decodeFactor
	}
	if err := f.budget.Acquire(ctx, n); err != nil {
		return fmt.Errorf("wire: wait for memory: %w", err)
	}
	f.reserved = n
	// Who holds memory that others wait for must get on: 64 KiB a second at least.
	stall := 30*time.Second + time.Duration(need>>16)*time.Second
	return f.conn.SetReadDeadline(time.Now().Add(stall))
}

// compact moves what has been read to the front of the buffer.
func (f *FrameReader) compact() {
	f.w = copy(f.buf, f.buf[f.r:f.w])
	f.r = 0
}

// move moves what has been read into a buffer for n bytes, if that is another size.
func (f *FrameReader) move(n int) error {
	if len(f.buf) == class(n) {
		return nil
	}
	b, err := f.pool.Get(n)
	if err != nil {
		return fmt.Errorf("wire: buffer of %d bytes: %w", n, err)
	}
	k := copy(b, f.buf[f.r:f.w])
	f.pool.Put(f.buf)
	f.buf, f.r, f.w = b, 0, k
	return nil
}

// fill reads once into buf[w:stop].
func (f *FrameReader) fill() error {
	if f.raw == nil {
		n, err := f.conn.Read(f.buf[f.w:f.stop])
		f.w += n
		if n > 0 {
			f.moved.Add(1)
			return nil
		}
		return err
	}
	f.err = nil
	if err := f.raw.Read(f.try); err != nil {
		return err
	}
	return f.err
}

// tryRead reads what there is, without waiting; false means: call again when
// there is something.
func (f *FrameReader) tryRead(fd uintptr) bool {
	if f.stop == 0 {
		if f.err = f.unpark(); f.err != nil {
			return true
		}
	}
	for {
		n, err := syscall.Read(int(fd), f.buf[f.w:f.stop])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			f.err = f.park()
			return f.err != nil
		case err != nil:
			f.err = err
		case n == 0:
			f.err = io.EOF
		default:
			f.w += n
			f.moved.Add(1)
		}
		return true
	}
}

// park gives up the buffer for the smallest one before a wait.
func (f *FrameReader) park() error {
	if f.reserved > 0 {
		return nil // what this frame takes is accounted for
	}
	f.stop = 0
	if f.r == f.w {
		f.pool.Put(f.buf)
		f.buf, f.r, f.w = nil, 0, 0
		return nil
	}
	return f.move(f.w - f.r)
}

// unpark gets a buffer to read into again.
func (f *FrameReader) unpark() error {
	if err := f.move(f.base); err != nil {
		return err
	}
	f.stop = min(len(f.buf), f.r+size256K)
	return nil
}
