package wire

import (
	"encoding/binary"
	"errors"
)

// Errors of a request that can't be read: the connection ends.
var (
	ErrShort   = errors.New("wire: message ends early")
	ErrInvalid = errors.New("wire: invalid length")
	ErrTooMany = errors.New("wire: too many partitions in a request")
)

// Reader takes values off the front of a message. The first failure sticks:
// later calls return zeros, so that a caller checks Err once, at the end. What it
// returns points into the message.
type Reader struct {
	b    []byte
	err  error
	flex bool
}

// NewReader reads b; flexible messages have compact lengths and tags.
func NewReader(b []byte, flexible bool) Reader { return Reader{b: b, flex: flexible} }

// Err is the first failure.
func (r *Reader) Err() error { return r.err }

// Rest is what has not been read.
func (r *Reader) Rest() []byte { return r.b }

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// take returns the next n bytes, nil after a failure.
func (r *Reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail(ErrShort)
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

// Int8 reads an int8.
func (r *Reader) Int8() int8 {
	if p := r.take(1); p != nil {
		return int8(p[0])
	}
	return 0
}

// Int16 reads an int16.
func (r *Reader) Int16() int16 {
	if p := r.take(2); p != nil {
		return int16(binary.BigEndian.Uint16(p))
	}
	return 0
}

// Int32 reads an int32.
func (r *Reader) Int32() int32 {
	if p := r.take(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

// Int64 reads an int64.
func (r *Reader) Int64() int64 {
	if p := r.take(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

// UUID reads a topic's id.
func (r *Reader) UUID() (id [16]byte) {
	copy(id[:], r.take(16))
	return id
}

// Uvarint reads an unsigned varint of at most 32 bits.
func (r *Reader) Uvarint() uint32 {
	var v uint64
	for i := range 5 {
		if i >= len(r.b) {
			r.fail(ErrShort)
			return 0
		}
		c := r.b[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if v > 1<<32-1 {
				break
			}
			r.b = r.b[i+1:]
			return uint32(v)
		}
	}
	r.fail(ErrInvalid)
	return 0
}

// compactLen reads a compact length; -1 is null.
func (r *Reader) compactLen() int { return int(r.Uvarint()) - 1 }

// NullableString reads a string; nil is null.
func (r *Reader) NullableString() []byte {
	n := 0
	if r.flex {
		n = r.compactLen()
	} else {
		n = int(r.Int16())
	}
	return r.nullable(n)
}

// String reads a string that must not be null.
func (r *Reader) String() []byte {
	s := r.NullableString()
	if s == nil && r.err == nil {
		r.fail(ErrInvalid)
	}
	return s
}

// NullableBytes reads bytes; nil is null.
func (r *Reader) NullableBytes() []byte {
	n := 0
	if r.flex {
		n = r.compactLen()
	} else {
		n = int(r.Int32())
	}
	return r.nullable(n)
}

func (r *Reader) nullable(n int) []byte {
	switch {
	case r.err != nil || n == -1:
		return nil
	case n < -1:
		r.fail(ErrInvalid)
		return nil
	case n == 0:
		return []byte{} // of size zero: no allocation
	}
	return r.take(n)
}

// ArrayLen reads the length of an array whose elements take at least elem
// bytes each. Null counts as empty.
func (r *Reader) ArrayLen(elem int) int {
	n := 0
	if r.flex {
		n = r.compactLen()
	} else {
		n = int(r.Int32())
	}
	switch {
	case r.err != nil || n == -1:
		return 0
	case n < 0:
		r.fail(ErrInvalid)
		return 0
	case n > len(r.b)/elem:
		r.fail(ErrShort)
		return 0
	}
	return n
}

// tagCount begins a section of tags; there are none in messages that aren't flexible.
func (r *Reader) tagCount() int {
	if !r.flex {
		return 0
	}
	n := int(r.Uvarint())
	if n > len(r.b)/2 { // a tag takes at least its number and its size
		r.fail(ErrShort)
		return 0
	}
	return n
}

// tag reads one tag: its number and its content.
func (r *Reader) tag() (num uint32, content Reader) {
	num = r.Uvarint()
	return num, Reader{b: r.take(int(r.Uvarint())), err: r.err, flex: true}
}

// SkipTags skips a section of tags.
func (r *Reader) SkipTags() {
	for n := r.tagCount(); n > 0 && r.err == nil; n-- {
		r.tag()
	}
}
