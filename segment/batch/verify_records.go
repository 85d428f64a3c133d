package batch

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

var (
	errRecordLength = fmt.Errorf("%w: a record does not fill its length", ErrInvalid)
	errBytesBehind  = fmt.Errorf("%w: bytes after its last record", ErrInvalid)
)

// verifyRecords checks that p is count records, not compressed, as a client must
// send them: they fill p, their offset deltas are 0, 1, 2 and so on, and what
// each holds fills its length. It accepts what Walk accepts of such a batch, and
// says ErrOffsets only if nothing else is wrong. It returns the least and the
// largest of their timestamp deltas, good unless there is another error. No
// allocation; a record costs some 10 cycles, for nearly all are plain.
func verifyRecords(p []byte, count int) (deltas Times, err error) {
	deltas = Times{Oldest: math.MaxInt64, Newest: math.MinInt64}
	var offsets error
	at := 0
	for i := 0; i < count; i++ {
		if i, at, deltas = passPlain(p, at, i, count, deltas); i == count {
			break
		}
		n, ts, err := verifyRecord(p[at:], int32(i))
		if err == ErrOffsets {
			offsets = err
		} else if err != nil {
			return deltas, err
		}
		deltas = deltas.with(ts)
		at += n
	}
	if at != len(p) {
		return deltas, errBytesBehind
	}
	return deltas, offsets
}

// Bits of a little-endian word that begins with a varint.
const (
	odd     = 0x01   // it is negative
	more    = 0x80   // it has a second byte
	more2   = 0x8000 // and a third
	allMore = 0x8080808080808080
	shortLo = 0x7e   // the number's bits in the first byte
	shortHi = 0x7f00 // in the second
)

// passPlain passes the plain records from at on, of which the first is number i:
// those without headers and tombstones, whose length and value's length take two
// bytes at most, the offset three, and the key's length one. It stops, and judges
// nothing, where a record is not plain, not right, or so near to the end that a
// word read from it would go beyond; it returns number and place of that record.
// What it adds to the deltas of a record at which it stops is what verifyRecord
// will find, if that finds no fault.
//
// How long a record takes is how long it takes to find the next one: a load and
// a few additions. All else runs beside that, as long as the processor guesses
// which branch is taken; hence the branches instead of a loop for each varint,
// and hence slices of a constant size, which cost one comparison.
func passPlain(p []byte, at, i, count int, deltas Times) (int, int, Times) {
	p = p[:len(p):len(p)]
	for ; i < count; i++ {
		w, ok := word(p, at)
		if !ok {
			return i, at, deltas
		}
		var end, q int // q goes through the fields, and w with it
		var ts uint64  // timestamp delta, as it is encoded
		switch {
		case w&(more2|more|odd) == more:
			end = at + int(w&shortLo>>1+w&shortHi>>2) + 2
			q, w = at+3, w>>24 // attributes too: nobody uses them
		case w&(more|odd) == 0:
			end = at + int(w&shortLo>>1) + 1
			q, w = at+2, w>>16
		default:
			return i, at, deltas
		}
		switch { // timestamp delta: whatever it is
		case w&more == 0:
			ts = w & 0x7f
			q, w = q+1, w>>8
		case w&more2 == 0:
			ts = w&0x7f | w&0x7f00>>1
			q, w = q+2, w>>16
		default:
			if w, ok = word(p, q); !ok || w&allMore == allMore {
				return i, at, deltas
			}
			last := ^w & allMore
			ts = septets(w & (last ^ (last - 1)))
			q += bits.TrailingZeros64(last)/8 + 1
			if w, ok = word(p, q); !ok {
				return i, at, deltas
			}
		}
		deltas = deltas.with(int64(ts>>1) ^ -int64(ts&1))
		switch { // offset delta: as it must be encoded; five bytes of w sufficed for three fields
		case i < 1<<6 && int(w&0xff) == i<<1:
			q, w = q+1, w>>8
		case i >= 1<<6 && i < 1<<13 && int(w&0xffff) == i<<1&0x7f|more|i<<2&shortHi:
			q, w = q+2, w>>16
		case i >= 1<<13 && i < 1<<20:
			if w, ok = word(p, q); !ok || int(w&0xffffff) != i<<1&0x7f|more|i<<2&shortHi|more2|i<<3&0x7f0000 {
				return i, at, deltas
			}
			q, w = q+3, w>>24
		default:
			return i, at, deltas
		}
		switch key := w & 0xff; {
		case key&(more|odd) == 0:
			q += 1 + int(key>>1)
		case key == odd: // -1: null
			q++
		default:
			return i, at, deltas
		}
		if uint(q+4) > uint(len(p)) {
			return i, at, deltas
		}
		switch v := binary.LittleEndian.Uint32(p[q : q+4 : q+4]); {
		case v&(more2|more|odd) == more:
			q += int(v&shortLo>>1+v&shortHi>>2) + 2
		case v&(more|odd) == 0:
			q += int(v&shortLo>>1) + 1
		default:
			return i, at, deltas
		}
		if q != end-1 || uint(q) >= uint(len(p)) || p[q] != 0 { // no headers
			return i, at, deltas
		}
		at = end
	}
	return i, at, deltas
}

// word is the eight bytes of p from at on.
func word(p []byte, at int) (w uint64, ok bool) {
	if uint(at+8) > uint(len(p)) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(p[at : at+8 : at+8]), true
}

// septets puts the low seven bits of each byte of w side by side.
func septets(w uint64) uint64 {
	w = w&0x007f007f007f007f | w&0x7f007f007f007f00>>1
	w = w&0x00003fff00003fff | w&0x3fff00003fff0000>>2
	return w&0x000000000fffffff | w&0x0fffffff00000000>>4
}

// verifyRecord checks the record that p begins with, number i, and returns its
// size and its timestamp delta, with ErrOffsets too.
func verifyRecord(p []byte, i int32) (size int, timestamp int64, err error) {
	d := decoder{b: p}
	size = int(d.varint32())
	if d.bad || size < minRecordSize-1 || size > len(d.b) {
		return 0, 0, errRecordLength
	}
	total := len(p) - len(d.b) + size
	d.b = d.b[:size]
	d.byte() // attributes
	timestamp = d.varint64()
	delta := d.varint32()
	d.bytes()
	d.bytes()
	if d.headers(); d.bad || len(d.b) > 0 {
		return 0, 0, errRecordLength
	}
	if delta != i {
		return total, timestamp, ErrOffsets
	}
	return total, timestamp, nil
}
