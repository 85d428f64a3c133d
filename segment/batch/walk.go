package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Stop, returned by a visit, ends a Walk early and without an error.
//
//lint:ignore ST1012 a signal and no error, like fs.SkipAll
var Stop = errors.New("batch: stop walking")

// Walk calls visit with each record of b, in order, decompressing as it goes.
// It holds no more than one record and what its codec needs in memory, and stops
// at limit. The CRC is not checked: see Verify. An error of visit ends the walk
// and is returned as it is.
//
// ErrCorrupt: the compressed data is damaged. ErrInvalid: the records are not
// what the header promises. ErrTooLarge: they exceed limit.
func Walk(b Batch, limit Limit, visit func(Record) error) error {
	if len(b) < HeaderSize || b.Length() != len(b) {
		return errLength
	}
	err := walk(b, limit, visit)
	if err == Stop {
		return nil
	}
	return err
}

func walk(b Batch, limit Limit, visit func(Record) error) error {
	codec := b.Codec()
	if b.Count() == 0 {
		return nil // compaction left the header for the producer's sake
	}
	if codec == None {
		w := window{buf: b.Records()}
		w.end = len(w.buf)
		return w.walk(b, visit)
	}
	s := streams.Get().(*stream)
	defer s.free()
	src, err := s.open(codec, b.Records(), limit.of(len(b.Records())))
	if err != nil {
		return err
	}
	w := window{buf: s.buf, src: src, codec: codec, left: limit.of(len(b.Records()))}
	err = w.walk(b, visit)
	s.buf = w.buf
	return err
}

// streams keeps decompressors, which are costly to make. It is a cache: nothing
// is ever said through it.
var streams = sync.Pool{New: func() any { return new(stream) }}

// window is the stretch of decompressed bytes that is in memory: [at, end) of
// buf. Without src, that is all there is.
type window struct {
	buf     []byte
	at, end int
	src     io.Reader
	codec   Codec
	left    int // bytes that src may still yield
}

func (w *window) walk(b Batch, visit func(Record) error) error {
	r := newReader(b)
	for count := b.Count(); r.n < count; {
		raw, n, err := w.next(r.n)
		if err != nil {
			return err
		}
		rec, err := r.decode(raw, n)
		if err != nil {
			return err
		}
		if err := visit(rec); err != nil {
			return err
		}
	}
	// To the end, where checksums are, and nothing but the end.
	if ok, err := w.fill(1); err != nil || !ok {
		return err
	}
	return fmt.Errorf("%w: bytes after the last of %d records", ErrInvalid, b.Count())
}

// next returns the next record with its length, which takes n bytes. The bytes
// are good until the next call.
func (w *window) next(i int32) (raw []byte, n int, err error) {
	if _, err := w.fill(binary.MaxVarintLen32); err != nil {
		return nil, 0, err
	}
	d := decoder{b: w.buf[w.at:w.end]}
	size := int(d.varint32())
	n = w.end - w.at - len(d.b)
	if d.bad || size < minRecordSize-1 {
		return nil, 0, fmt.Errorf("%w: record %d has no length", ErrInvalid, i)
	}
	if w.src != nil && n+size > w.end-w.at+w.left {
		return nil, 0, w.tooLarge() // or it ends before, and is invalid
	}
	ok, err := w.fill(n + size)
	if err != nil {
		return nil, 0, err
	}
	if !ok {
		return nil, 0, fmt.Errorf("%w: record %d of %d bytes ends after the batch", ErrInvalid, i, size)
	}
	raw = w.buf[w.at : w.at+n+size]
	w.at += n + size
	return raw, n, nil
}

const (
	firstBuffer = 64 << 10
	keepBuffer  = 1 << 20 // a larger one is not kept for the next batch
)

// fill sees to it that n bytes are in the window; false if the stream ends
// before. The buffer grows with the bytes that come, not with those announced.
func (w *window) fill(n int) (bool, error) {
	for w.end-w.at < n {
		if w.src == nil {
			return false, nil
		}
		w.makeRoom()
		m, err := readSome(w.src, w.buf[w.end:])
		w.end += m
		if w.left -= m; w.left < 0 {
			return false, w.tooLarge()
		}
		if err == io.EOF {
			w.src = nil
		} else if err != nil {
			return false, codecError(w.codec, err)
		}
	}
	return true, nil
}

// readSome reads at least one byte or tells why not. A decoder may take some
// reads to get through blocks without content, but not for ever.
func readSome(src io.Reader, p []byte) (int, error) {
	for range 100 {
		if n, err := src.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

func (w *window) tooLarge() error { return fmt.Errorf("%w: %v", ErrTooLarge, w.codec) }

// makeRoom makes room behind the window.
func (w *window) makeRoom() {
	if w.at > 0 {
		w.end = copy(w.buf, w.buf[w.at:w.end])
		w.at = 0
	}
	if w.end < len(w.buf) {
		return
	}
	grown := make([]byte, max(firstBuffer, 2*len(w.buf)))
	copy(grown, w.buf[:w.end])
	w.buf = grown
}

func codecError(c Codec, err error) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w: %v: %w", ErrCorrupt, c, err)
}
