package tiering

import (
	"fmt"
	"hash/crc32"
	"io"

	"firn/segment/batch"
)

// scanned is what a walk over a segment file found in it: the ground truth
// that a manifest entry is made of (D23).
type scanned struct {
	Base, End         int64 // offsets of the first batch, and after the last
	BaseTime, MaxTime int64
	Records           int64
	CRC               uint32
	Blocks, Units     []uint32 // CRC of each BlockSize, of each UnitSize
	Starts            []BatchStart
	whole             int64 // where the last whole batch ends
}

// scan reads size bytes of r once, BlockSize at a time into buf, and verifies
// that they are whole batches with rising offsets and good checksums (S1).
func scan(r io.ReaderAt, size int64, buf []byte) (scanned, error) {
	s := scanned{
		Blocks: make([]uint32, 0, (size+BlockSize-1)/BlockSize),
		Units:  make([]uint32, 0, (size+UnitSize-1)/UnitSize),
	}
	w := walker{s: &s}
	for off := int64(0); off < size; off += BlockSize {
		b := buf[:min(BlockSize, size-off)]
		if n, err := r.ReadAt(b, off); n < len(b) {
			return s, fmt.Errorf("read at %d: %w", off, err)
		}
		s.sum(b)
		if err := w.feed(b); err != nil {
			return s, fmt.Errorf("%w: at about %d of the file: %w", ErrCorrupt, off, err)
		}
	}
	if w.left > 0 || w.n > 0 || s.End == 0 && s.Records == 0 && w.batches == 0 {
		return s, fmt.Errorf("%w: the file ends inside a batch", ErrCorrupt)
	}
	return s, nil
}

// sum adds the checksums of the next block. Its bytes are looked at once: the
// checksums of units make that of the block, and of the file.
func (s *scanned) sum(b []byte) {
	block := uint32(0)
	for len(b) > 0 {
		unit := b[:min(UnitSize, len(b))]
		b = b[len(unit):]
		c := Checksum(unit)
		s.Units = append(s.Units, c)
		block, s.CRC = joinSums(block, c, unit), joinSums(s.CRC, c, unit)
	}
	s.Blocks = append(s.Blocks, block)
}

// walker takes a stream of batches in pieces of any size: a batch may be larger
// than a block, so only its header is put together.
type walker struct {
	s       *scanned
	batches int
	head    [batch.HeaderSize]byte
	n       int    // bytes of head that are there
	left    int    // bytes of the batch after its header, still to come
	sum     uint32 // of the batch, from its attributes on
}

// attributesAt is where a batch's checksum begins to count.
const attributesAt = 21

func (w *walker) feed(b []byte) error {
	for len(b) > 0 {
		if w.left == 0 {
			n := copy(w.head[w.n:], b)
			w.n, b = w.n+n, b[n:]
			if w.n < len(w.head) {
				return nil
			}
			if err := w.begin(); err != nil {
				return err
			}
		}
		n := min(w.left, len(b))
		w.sum = crc32.Update(w.sum, castagnoli, b[:n])
		w.left, b = w.left-n, b[n:]
		if w.left == 0 {
			if err := w.finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin starts a batch whose header is there.
func (w *walker) begin() error {
	size, err := batch.Peek(w.head[:])
	if err != nil {
		return err
	}
	w.left = size - len(w.head)
	w.sum = Checksum(w.head[attributesAt:])
	return nil
}

// finish ends a batch: it is whole.
func (w *walker) finish() error {
	b, s := batch.Batch(w.head[:]), w.s
	if w.sum != b.CRC() {
		return fmt.Errorf("batch at offset %d has checksum %08x, its header says %08x", b.BaseOffset(), w.sum, b.CRC())
	}
	if b.LastOffsetDelta() < 0 || b.BaseOffset() < 0 || w.batches > 0 && b.BaseOffset() < s.End || b.NextOffset() <= b.BaseOffset() {
		return fmt.Errorf("batch of offsets [%d, %d) after one that ends at %d", b.BaseOffset(), b.NextOffset(), s.End)
	}
	first := b.BaseTimestamp()
	if b.TimestampType() == batch.LogAppendTime {
		first = b.MaxTimestamp()
	}
	if w.batches == 0 {
		s.Base, s.BaseTime, s.MaxTime = b.BaseOffset(), first, first
	}
	if n := len(s.Starts); n == 0 || s.whole >= s.Starts[n-1].Pos+startEvery {
		s.Starts = append(s.Starts, BatchStart{b.BaseOffset(), s.whole})
	}
	s.End = b.NextOffset()
	s.MaxTime = max(s.MaxTime, b.MaxTimestamp())
	s.Records += int64(b.Count())
	s.whole += int64(b.Length())
	w.batches++
	w.n = 0
	return nil
}
