package batch

import (
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
)

// Recompress returns a copy of b whose records are compressed by codec, at a
// level as in compression.<codec>.level (0 is the default). All else stays,
// offsets and timestamps of the records included. It fails like Walk.
//
// No more than half of the cores recompress at once; the others wait. Clients
// decide how many batches come at a time, and each costs a window of memory and,
// at worst, the time that a whole Limit takes.
func Recompress(b Batch, codec Codec, level int, limit Limit) (Batch, error) {
	slots <- struct{}{}
	defer func() { <-slots }()
	return rewrite(b, codec, level, limit, func(Record) bool { return true })
}

// slots is taken while recompressing. The one thing that all logs of a process
// share here is the machine, so it belongs to the process. Who holds a slot
// waits for nothing.
var slots = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// Filter returns a copy of b, in its codec, without the records that keep
// refuses. The offsets of the others stay, and so does the last offset, so that
// the log has no hole and the producer's last sequence is still known. The
// maximum timestamp becomes that of what is kept. It fails like Walk.
func Filter(b Batch, limit Limit, keep func(Record) bool) (Batch, error) {
	return rewrite(b, b.Codec(), 0, limit, keep)
}

func rewrite(b Batch, codec Codec, level int, limit Limit, keep func(Record) bool) (Batch, error) {
	if len(b) < HeaderSize {
		return nil, errLength
	}
	c, err := newCompressor(codec, level)
	if err != nil {
		return nil, err
	}
	var count uint32
	newest := int64(-1)
	dst := bytes.NewBuffer(make([]byte, 0, len(b)+len(b)/8))
	dst.Write(b[:HeaderSize])
	err = c.compress(dst, func(w io.Writer) error {
		return Walk(b, limit, func(r Record) error {
			if !keep(r) {
				return nil
			}
			count++
			newest = max(newest, r.Timestamp)
			_, err := w.Write(r.raw) // relative to the same base, so as it is
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if count == 0 {
		codec = None
		dst.Truncate(HeaderSize)
	}
	out := Batch(dst.Bytes())
	put := binary.BigEndian
	put.PutUint32(out[atLength:], uint32(len(out)-lengthOverhead))
	put.PutUint16(out[atAttributes:], uint16(b.Attributes()&^maskCodec|Attributes(codec)))
	put.PutUint32(out[atCount:], count)
	if b.TimestampType() == CreateTime && count > 0 && int32(count) < b.Count() {
		put.PutUint64(out[atMaxTimestamp:], uint64(newest))
	}
	out.seal()
	return out[:len(out):len(out)], nil
}

// Renumber returns a copy of b, of which VerifyProduced says ErrOffsets, whose
// records have the offsets 0, 1, 2 and so on in the order in which they stand. All
// else stays.
func Renumber(b Batch) Batch {
	out := make(Batch, HeaderSize, len(b)+len(b)/8)
	copy(out, b)
	d := decoder{b: b.Records()}
	for i := range int64(b.Count()) {
		raw := d.bytes()
		r := decoder{b: raw}
		r.byte()
		r.varint64()
		front := raw[:len(raw)-len(r.b)] // attributes and timestamp
		r.varint32()
		out = binary.AppendVarint(out, int64(len(front)+varintLen(i)+len(r.b)))
		out = append(out, front...)
		out = binary.AppendVarint(out, i)
		out = append(out, r.b...)
	}
	binary.BigEndian.PutUint32(out[atLength:], uint32(len(out)-lengthOverhead))
	out.seal()
	return out
}
