package segment

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"firn/segment/batch"
	"firn/segment/vfs"
)

// scanBuffer is read at once by a scan: large enough that system calls don't
// count beside the checksum.
const scanBuffer = 1 << 20

// scan calls each with every whole batch of f from pos on, below size, and its
// place. It returns where the last one ended, and why it went no further: nil at
// size, batch.ErrShort, ErrCorrupt or ErrOldFormat for what lies there, an I/O
// error, or what each returned (then the place before that batch).
func scan(f vfs.File, pos, size int64, each func(b batch.Batch, pos int64) error) (int64, error) {
	buf := make([]byte, min(scanBuffer, max(size-pos, 0)))
	have := buf[:0]
	for pos < size {
		b, rest, err := batch.Next(have)
		if err == nil {
			if err := each(b, pos); err != nil {
				return pos, err
			}
			pos += int64(len(b))
			have = rest
			continue
		}
		if !errors.Is(err, batch.ErrShort) {
			return pos, err
		}
		// More is needed than there is: read on, in a larger buffer if the
		// batch is larger, but never beyond what the file has.
		want := int64(batch.PeekSize)
		if n, err := batch.Peek(have); err == nil {
			want = int64(n)
		}
		if want > size-pos {
			return pos, batch.ErrShort
		}
		if want > int64(len(buf)) {
			buf = make([]byte, want)
		}
		n := min(int64(len(buf)), size-pos)
		if err := readFull(f, buf[:n], pos); err != nil {
			return pos, err
		}
		have = buf[:n]
	}
	return pos, nil
}

// readFull fills b from pos on.
func readFull(f vfs.File, b []byte, pos int64) error {
	n, err := f.ReadAt(b, pos)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("segment: read %s at %d: %w", f.Name(), pos, err)
}

// headerBuffer is what a walk along headers reads at once.
const headerBuffer = 8 << 10

var headerBuffers = sync.Pool{New: func() any { return new([headerBuffer]byte) }}

// walk calls each with the header of every batch from pos on, below size, until
// it returns false. Unlike scan it doesn't read what lies between the headers of
// large batches, and nothing is verified but that batches follow each other.
func walk(f vfs.File, pos, size int64, each func(h batch.Batch, pos int64) bool) error {
	buf := headerBuffers.Get().(*[headerBuffer]byte)
	defer headerBuffers.Put(buf)
	have := buf[:0]
	for pos < size {
		if len(have) < batch.HeaderSize {
			n := min(headerBuffer, size-pos)
			if n < batch.HeaderSize {
				return batch.ErrShort
			}
			if err := readFull(f, buf[:n], pos); err != nil {
				return err
			}
			have = buf[:n]
		}
		n, err := batch.Peek(have)
		if err != nil {
			return err
		}
		if int64(n) > size-pos {
			return batch.ErrShort
		}
		if !each(batch.Batch(have[:batch.HeaderSize]), pos) {
			return nil
		}
		pos += int64(n)
		have = have[min(n, len(have)):]
	}
	return nil
}
