package checker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// Writer writes a partition's history; any number of clients may use it. The
// first error of the file is kept, for Close.
type Writer struct {
	mu struct {
		sync.Mutex
		w    *bufio.Writer
		file io.Closer
		buf  []byte
		err  error
	}
}

// NewWriter writes a history to w, and closes it in the end.
func NewWriter(w io.WriteCloser) *Writer {
	h := &Writer{}
	h.mu.w, h.mu.file = bufio.NewWriterSize(w, 64<<10), w
	return h
}

// Close writes out what is buffered.
func (h *Writer) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.mu.err, h.mu.w.Flush(), h.mu.file.Close())
}

func (h *Writer) line(fill func(b []byte) []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.buf = append(fill(h.mu.buf[:0]), '\n')
	if _, err := h.mu.w.Write(h.mu.buf); err != nil && h.mu.err == nil {
		h.mu.err = err
	}
}

func span(b []byte, verb string, from, to time.Duration) []byte {
	b = strconv.AppendInt(append(append(b, verb...), ' '), from.Microseconds(), 10)
	return strconv.AppendInt(append(b, '-'), to.Microseconds(), 10)
}

// Acked, Failed and Unknown are the outcomes of a write.
func (h *Writer) Acked(from, to time.Duration, producer string, n, offset int64) {
	h.line(func(b []byte) []byte {
		b = strconv.AppendInt(append(append(append(span(b, "write", from, to), ' '), producer...), '.'), n, 10)
		return strconv.AppendInt(append(b, " @"...), offset, 10)
	})
}

// Failed: it certainly was not written.
func (h *Writer) Failed(from, to time.Duration, producer string, n int64) {
	h.outcome(from, to, producer, n, " fail")
}

// Unknown: it may have been written.
func (h *Writer) Unknown(from, to time.Duration, producer string, n int64) {
	h.outcome(from, to, producer, n, " unknown")
}

func (h *Writer) outcome(from, to time.Duration, producer string, n int64, how string) {
	h.line(func(b []byte) []byte {
		b = append(append(append(span(b, "write", from, to), ' '), producer...), '.')
		return append(strconv.AppendInt(b, n, 10), how...)
	})
}

// Offset is any operation of one name and one offset: seek, range, latest,
// earliest, archived, commit, committed.
func (h *Writer) Offset(verb string, from, to time.Duration, who string, offset int64) {
	h.line(func(b []byte) []byte {
		return strconv.AppendInt(append(append(append(span(b, verb, from, to), ' '), who...), ' '), offset, 10)
	})
}

// Trim: somebody asked to delete what lies below offset.
func (h *Writer) Trim(from, to time.Duration, offset int64) {
	h.line(func(b []byte) []byte { return strconv.AppendInt(append(span(b, "trim", from, to), ' '), offset, 10) })
}

// Past: from then to then a leader may answer what was so this long before.
func (h *Writer) Past(from, to, age time.Duration) {
	h.line(func(b []byte) []byte {
		return strconv.AppendInt(append(span(b, "past", from, to), ' '), age.Microseconds(), 10)
	})
}

// Leader: a broker says who leads, in which epoch.
func (h *Writer) Leader(at time.Duration, asked, leader string, epoch int32) {
	h.line(func(b []byte) []byte {
		return fmt.Appendf(b, "leader %d %s %s %d", at.Microseconds(), asked, leader, epoch)
	})
}

// Read is what a reader got.
func (h *Writer) Read(from, to time.Duration, reader string, runs []Run) {
	h.line(func(b []byte) []byte {
		b = append(append(span(b, "read", from, to), ' '), reader...)
		return appendRuns(b, runs)
	})
}

// Dump begins the dump of a source that holds [start, end).
func (h *Writer) Dump(source string, start, end int64) {
	h.line(func(b []byte) []byte { return fmt.Appendf(b, "dump %s %d %d", source, start, end) })
}

// Has is a batch of a dump; its records may be several runs.
func (h *Writer) Has(source string, runs []Run) {
	h.line(func(b []byte) []byte { return appendRuns(append(append(b, "has "...), source...), runs) })
}

func appendRuns(b []byte, runs []Run) []byte {
	for i := range runs {
		b = runs[i].appendTo(append(b, ' '))
	}
	return b
}

// AppendRecord adds a record to runs, to the last of them where it goes on.
func AppendRecord(runs []Run, offset int64, producer string, n int64) []Run {
	if len(runs) > 0 {
		l := &runs[len(runs)-1]
		if l.Producer == producer && l.Offset+l.Count == offset && (producer == "" || l.N+l.Count == n) {
			l.Count++
			return runs
		}
	}
	return append(runs, Run{Offset: offset, Producer: producer, N: n, Count: 1, Epoch: -1})
}
