package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
)

// Java's producers write snappy in the framing of the library that they use
// (xerial's): a header of 16 bytes, then blocks with their length in front.
// librdkafka and Go clients write one bare block. Brokers and clients take both.
//
//	0x82 "SNAPPY" 0x00   version int32   compatible int32   { length int32  block }…
//
// Streams may follow one another, each with its header.
const (
	xerialMagic       = "\x82SNAPPY\x00"
	xerialHeader      = 16
	xerialBlock       = 32 << 10 // uncompressed, as Java cuts them
	snappyExpansion   = 22       // the most that a block can: 64 bytes by a copy of 3
	xerialVersion     = 1
	xerialLengthBytes = 4
)

// snappyReader reads either form.
type snappyReader struct {
	in      []byte
	framed  bool
	begun   bool
	limit   int
	out     []byte // the block's buffer
	pending []byte // what is left of it
}

func (r *snappyReader) reset(p []byte, limit int) {
	if cap(r.out) > keepBuffer {
		r.out = nil
	}
	*r = snappyReader{in: p, framed: bytes.HasPrefix(p, []byte(xerialMagic)), limit: limit, out: r.out}
}

func (r *snappyReader) Read(p []byte) (int, error) {
	for len(r.pending) == 0 {
		if len(r.in) == 0 && r.begun {
			return 0, io.EOF
		}
		if err := r.block(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.pending)
	r.pending = r.pending[n:]
	return n, nil
}

// block decompresses the next block.
func (r *snappyReader) block() error {
	r.begun = true
	src := r.in
	if r.framed {
		for bytes.HasPrefix(r.in, []byte(xerialMagic)) {
			if len(r.in) < xerialHeader {
				return fmt.Errorf("%w: snappy: header cut off", ErrCorrupt)
			}
			r.in = r.in[xerialHeader:]
		}
		if len(r.in) == 0 {
			return nil
		}
		if len(r.in) < xerialLengthBytes {
			return fmt.Errorf("%w: snappy: block length cut off", ErrCorrupt)
		}
		n := binary.BigEndian.Uint32(r.in)
		r.in = r.in[xerialLengthBytes:]
		if uint64(n) > uint64(len(r.in)) {
			return fmt.Errorf("%w: snappy: block of %d bytes, %d left", ErrCorrupt, n, len(r.in))
		}
		src = r.in[:n]
	}
	r.in = r.in[len(src):]
	return r.decode(src)
}

func (r *snappyReader) decode(src []byte) error {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return codecError(Snappy, err)
	}
	if n > snappyExpansion*len(src) {
		return fmt.Errorf("%w: snappy: block of %d bytes announces %d", ErrCorrupt, len(src), n)
	}
	if n > r.limit {
		return fmt.Errorf("%w: snappy: block announces %d bytes", ErrTooLarge, n)
	}
	// Strict, for the usual decoder also takes what other snappy decoders do not.
	r.out, err = snappy.DecodeStrict(r.out[:cap(r.out)], src)
	if err != nil {
		return codecError(Snappy, err)
	}
	r.pending = r.out
	return nil
}
