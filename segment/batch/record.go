package batch

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// Record is one record of a batch. Its slices are read-only and good only until
// the visit that it was handed to returns.
type Record struct {
	Offset    int64
	Timestamp int64  // Unix milliseconds
	Key       []byte // nil for null
	Value     []byte // nil for null: a tombstone

	headers  []byte // their encoding, checked
	nHeaders int
	raw      []byte // the whole record with its length
}

// NumHeaders is the number of headers.
func (r Record) NumHeaders() int { return r.nHeaders }

// Headers yields key and value of each header; a nil value is null.
func (r Record) Headers() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		d := decoder{b: r.headers}
		for range r.nHeaders {
			if key, value := d.bytes(), d.bytes(); !yield(key, value) {
				return
			}
		}
	}
}

// reader decodes the records of one batch, one after the other.
type reader struct {
	baseOffset, baseTimestamp int64
	appendTime                int64 // of the whole batch, or -1
	lastDelta, previousDelta  int32
	n                         int32 // records so far
}

func newReader(b Batch) reader {
	r := reader{
		baseOffset: b.BaseOffset(), baseTimestamp: b.BaseTimestamp(), appendTime: -1,
		lastDelta: b.LastOffsetDelta(), previousDelta: -1,
	}
	if b.TimestampType() == LogAppendTime {
		r.appendTime = b.MaxTimestamp()
	}
	return r
}

// decode decodes raw, which is one whole record of which the first n bytes are
// the length.
func (r *reader) decode(raw []byte, n int) (Record, error) {
	d := decoder{b: raw[n:]}
	d.byte() // attributes: none are in use
	timestamp := r.baseTimestamp + d.varint64()
	delta := d.varint32()
	rec := Record{Offset: r.baseOffset + int64(delta), Key: d.bytes(), Value: d.bytes(), raw: raw}
	rec.nHeaders, rec.headers = d.headers()
	if d.bad || len(d.b) > 0 {
		return Record{}, fmt.Errorf("%w: record %d does not fill its length", ErrInvalid, r.n)
	}
	if delta <= r.previousDelta || delta > r.lastDelta {
		return Record{}, fmt.Errorf("%w: record %d has offset delta %d after %d, the last is %d",
			ErrInvalid, r.n, delta, r.previousDelta, r.lastDelta)
	}
	if rec.Timestamp = timestamp; r.appendTime >= 0 {
		rec.Timestamp = r.appendTime
	}
	r.previousDelta = delta
	r.n++
	return rec, nil
}

// decoder takes fields off b; the first that does not fit makes it bad, and
// all after that are zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) byte() {
	if len(d.b) == 0 {
		d.bad = true
		return
	}
	d.b = d.b[1:]
}

func (d *decoder) varint64() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// varint32 takes no more bytes than a number of 32 bits needs, though 64 bits
// could be encoded to the same: readers differ in what they make of that.
func (d *decoder) varint32() int32 {
	before := len(d.b)
	v := d.varint64()
	if v != int64(int32(v)) || before-len(d.b) > binary.MaxVarintLen32 {
		d.fail()
		return 0
	}
	return int32(v)
}

// bytes takes a length and that many bytes; nil if the length is -1, which is
// null, or if d is bad.
func (d *decoder) bytes() []byte {
	n := int(d.varint32())
	if n == -1 || d.bad {
		return nil
	}
	if n < 0 || n > len(d.b) {
		d.fail()
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

// headers takes the headers' count and the headers, and returns both.
func (d *decoder) headers() (n int, encoded []byte) {
	n, encoded = int(d.varint32()), d.b
	if n < 0 || n > len(encoded)/2 { // each takes two bytes at least
		d.fail()
	}
	for i := 0; i < n && !d.bad; i++ {
		if d.bytes() == nil {
			d.fail() // a header's key is never null
		}
		d.bytes()
	}
	return n, encoded
}

func (d *decoder) fail() { d.b, d.bad = nil, true }

// appendRecord encodes a record with its length in front.
func appendRecord(dst []byte, timestampDelta int64, offsetDelta int32, key, value []byte, headers []Header) []byte {
	size := 1 + varintLen(timestampDelta) + varintLen(int64(offsetDelta)) + bytesLen(key) + bytesLen(value) +
		varintLen(int64(len(headers)))
	for _, h := range headers {
		size += varintLen(int64(len(h.Key))) + len(h.Key) + bytesLen(h.Value)
	}
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0) // attributes
	dst = binary.AppendVarint(dst, timestampDelta)
	dst = binary.AppendVarint(dst, int64(offsetDelta))
	dst = appendBytes(dst, key)
	dst = appendBytes(dst, value)
	dst = binary.AppendVarint(dst, int64(len(headers)))
	for _, h := range headers {
		dst = binary.AppendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

func appendBytes(dst, p []byte) []byte {
	if p == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(p))), p...)
}

func bytesLen(p []byte) int {
	if p == nil {
		return 1
	}
	return varintLen(int64(len(p))) + len(p)
}

func varintLen(v int64) int {
	n := 1
	for u := uint64(v)<<1 ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
