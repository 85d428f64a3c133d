package tiering

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"firn/segment"
)

// Errors of every decoder of this package. A newer version is not damage: an
// older firn must leave such an object alone rather than call it broken.
var (
	ErrCorrupt = errors.New("tiering: corrupt object")
	ErrVersion = errors.New("tiering: object has a newer format version")
)

// castagnoli is the polynomial of every checksum in the archive, as in Kafka's batches.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C of b.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Every binary object is one frame:
//
//	magic 4 | version 2 | reserved 2 | length 4 | CRC-32C of body 4 | body
//
// Integers are big-endian here, varints in the body.
const frameHeader = 16

// appendFrame appends a frame whose body is what fill appends.
func appendFrame(dst []byte, magic string, version uint16, fill func([]byte) []byte) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.BigEndian.AppendUint16(dst, version)
	dst = append(dst, make([]byte, frameHeader-6)...)
	dst = fill(dst)
	head, body := dst[start:start+frameHeader], dst[start+frameHeader:]
	binary.BigEndian.PutUint32(head[8:], uint32(len(body)))
	binary.BigEndian.PutUint32(head[12:], Checksum(body))
	return dst
}

// openFrame checks a frame and returns its body, which aliases b.
func openFrame(b []byte, magic string, version uint16) ([]byte, error) {
	if len(b) < frameHeader || string(b[:4]) != magic {
		return nil, fmt.Errorf("%w: not a %s object", ErrCorrupt, magic)
	}
	if v := binary.BigEndian.Uint16(b[4:]); v > version {
		return nil, fmt.Errorf("%w: %s version %d, this firn reads up to %d", ErrVersion, magic, v, version)
	} else if v == 0 {
		return nil, fmt.Errorf("%w: %s version 0", ErrCorrupt, magic)
	}
	body := b[frameHeader:]
	if n := binary.BigEndian.Uint32(b[8:]); uint64(n) != uint64(len(body)) {
		return nil, fmt.Errorf("%w: %s of %d bytes, its header says %d", ErrCorrupt, magic, len(body), n)
	}
	if got, want := Checksum(body), binary.BigEndian.Uint32(b[12:]); got != want {
		return nil, fmt.Errorf("%w: %s checksum %08x, its header says %08x", ErrCorrupt, magic, got, want)
	}
	return body, nil
}

// reader takes values off the front of b. The first failure sticks: later calls
// return zero, so a caller checks err once, at the end. No length is believed
// before it is compared with what is left.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrCorrupt, what)
	}
	r.b = nil
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail("ends early")
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) uint32() uint32 {
	if p := r.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if p := r.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("bad varint")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// nat is a varint that must not be negative.
func (r *reader) nat() int64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<63-1 {
		r.fail("bad unsigned varint")
		return 0
	}
	r.b = r.b[n:]
	return int64(v)
}

func (r *reader) int32() int32 {
	v := r.varint()
	if int64(int32(v)) != v {
		r.fail("number does not fit 32 bits")
		return 0
	}
	return int32(v)
}

// count reads the number of items that follow, each at least min bytes long.
func (r *reader) count(min int) int {
	n := r.nat()
	if n > int64(len(r.b)/min) {
		r.fail("more items than bytes")
		return 0
	}
	return int(n)
}

// bytes reads a length and that many bytes, which alias the input.
func (r *reader) bytes() []byte { return r.take(r.count(1)) }

// plus adds a delta to an offset; an overflow is corruption.
func (r *reader) plus(a, d int64) int64 {
	s := a + d
	if (d >= 0) != (s >= a) {
		r.fail("offset overflows")
		return 0
	}
	return s
}

// done checks that nothing is left.
func (r *reader) done() error {
	if r.err == nil && len(r.b) != 0 {
		r.fail("trailing bytes")
	}
	return r.err
}

func appendNat(dst []byte, v int64) []byte { return binary.AppendUvarint(dst, uint64(v)) }

func appendInt(dst []byte, v int64) []byte { return binary.AppendVarint(dst, v) }

func appendBytes[T string | []byte](dst []byte, b T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// appendEpochs appends a chain of leader epochs, as deltas.
func appendEpochs(dst []byte, chain []segment.EpochStart) []byte {
	dst = appendNat(dst, int64(len(chain)))
	var prev segment.EpochStart
	for _, e := range chain {
		dst = appendInt(dst, int64(e.Epoch)-int64(prev.Epoch))
		dst = appendInt(dst, e.Start-prev.Start)
		prev = e
	}
	return dst
}

// epochs reads a chain onto dst: epochs rise, starts don't fall.
func (r *reader) epochs(dst []segment.EpochStart) []segment.EpochStart {
	n := r.count(2)
	var prev segment.EpochStart
	for i := range n {
		epoch, start := r.plus(int64(prev.Epoch), r.varint()), r.plus(prev.Start, r.varint())
		if epoch < 0 || epoch > 1<<31-1 || start < 0 {
			r.fail("epoch out of range")
		}
		if e := (segment.EpochStart{Epoch: int32(epoch), Start: start}); i > 0 && (e.Epoch <= prev.Epoch || e.Start < prev.Start) {
			r.fail("epoch chain does not rise")
		} else {
			prev = e
		}
		if r.err != nil {
			return nil
		}
		dst = append(dst, prev)
	}
	return dst
}
