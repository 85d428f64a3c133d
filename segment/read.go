package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"firn/segment/batch"
)

// ErrBelowLocal: the offset lies before the local start but not before the log
// start: the archive has it.
var ErrBelowLocal = errors.New("segment: offset is below the local start")

// Read returns the batches from the one that holds r.Offset on, as a range of
// one segment's file. It takes no lock that an append holds over a write.
func (l *Log) Read(r ReadRequest) (ReadResult, error) {
	for try := 0; ; try++ {
		res, err := l.read(r)
		// A segment that went away between the look at the log and the opening
		// of its file: look again.
		if err != nil && try < 3 && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return res, err
	}
}

func (l *Log) read(r ReadRequest) (ReadResult, error) {
	if !l.warm.Load() || l.failure.Load() != nil {
		if err := l.readable(); err != nil {
			return ReadResult{}, err
		}
	}
	s := l.st.load()
	res := ReadResult{Offsets: s.Offsets}
	bound := s.Bound(r.Until)
	switch {
	case r.Offset < s.LogStart || r.Offset > s.End:
		return res, fmt.Errorf("%w: %d, log is %d to %d", ErrOffsetOutOfRange, r.Offset, s.LogStart, s.End)
	case r.Offset < s.LocalStart:
		return res, ErrBelowLocal
	case r.Offset >= bound:
		return res, nil
	}
	seg := s.find(r.Offset)
	size, end := s.size, s.End
	if seg != s.active {
		size, end = seg.size, seg.end
	}
	h, err := l.pin(seg)
	if err != nil {
		return res, err
	}
	p, err := l.locate(seg, h, r.Offset, size, end)
	if err != nil {
		h.unpin()
		return res, l.readError(seg, err)
	}
	limit := size
	if bound < end {
		b, err := l.locate(seg, h, bound, size, end)
		if err != nil {
			h.unpin()
			return res, l.readError(seg, err)
		}
		limit = b.pos
	}
	n := min(limit-p.pos, int64(max(r.MaxBytes, 0)))
	if first := p.next - p.pos; n < first {
		if n = 0; r.MinOne {
			n = min(first, limit-p.pos)
		}
	} else if r.Whole && n < limit-p.pos {
		if end := seg.index.Load().begins(p.pos + n); end >= p.next {
			n = end - p.pos
		}
	}
	if n <= 0 {
		h.unpin()
		return res, nil
	}
	if r.Until == UntilStable && l.aborts.Load() {
		if res.Aborted, err = l.abortedBetween(s, r.Offset, bound); err != nil {
			h.unpin()
			return res, err
		}
	}
	res.Records = fileRecords(h.file, p.pos, int(min(n, math.MaxInt32)), h.free)
	return res, nil
}

// readable tells why the log can't be read; it makes a log that was just opened
// ready.
func (l *Log) readable() error {
	if err := l.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.usableLocked()
}

// locate finds the batch that holds offset, or the first one after it, in the
// part of a segment that is size bytes long and ends with offset end: in the
// ring of the latest batches, or by the index and the headers from there on.
func (l *Log) locate(seg *segment, h *handle, offset, size, end int64) (place, error) {
	if offset >= end {
		return place{base: end, pos: size, next: size}, nil
	}
	if r := seg.ring.Load(); r != nil {
		if p, ok := r.find(offset, size); ok {
			return p, nil
		}
	}
	x := seg.index.Load()
	if x == nil {
		var err error
		if x, err = l.indexOf(seg); err != nil {
			return place{}, err
		}
	}
	from, _ := x.floor(offset)
	p, err := walkTo(h, from, size, offset)
	if err == nil {
		return p, nil
	}
	if from == 0 {
		return place{}, err
	}
	// The index may have led astray: the batches themselves decide (S2).
	return walkTo(h, 0, size, offset)
}

// errHole: a segment has no batch where there must be one.
var errHole = fmt.Errorf("%w: no batch at this offset", batch.ErrCorrupt)

func walkTo(h *handle, from, size, offset int64) (place, error) {
	p := place{pos: -1}
	astray := false
	err := walk(h.file, from, size, func(b batch.Batch, pos int64) bool {
		if from > 0 && pos == from && b.BaseOffset() > offset {
			astray = true
			return false
		}
		if b.LastOffset() < offset {
			return true
		}
		p = place{base: b.BaseOffset(), pos: pos, next: pos + int64(b.Length())}
		return false
	})
	if err != nil {
		return place{}, err
	}
	if astray || p.pos < 0 {
		return place{}, errHole
	}
	return p, nil
}

// pin opens a segment's file for a reader, who does not hold the log's lock. A
// file that is gone while its segment is part of the log is damage (hazard C3).
func (l *Log) pin(seg *segment) (*handle, error) {
	h, err := l.dir.handles.pin(seg)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return h, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.currentLocked(seg) {
		return nil, fs.ErrNotExist // look again
	}
	if l.mu.closed || l.Err() != nil {
		return nil, l.Err()
	}
	return nil, l.failLocked(ErrQuarantined, fmt.Errorf("segment %d: %w", seg.base, errGone))
}

// errGone is not fs.ErrNotExist, on which readers look again.
var errGone = errors.New("its file is gone")

// readError is what a failed look into a segment means. What was flushed and is
// no batch any more is damage (S5); a segment dropped meanwhile is not.
func (l *Log) readError(seg *segment, err error) error {
	if !damage(err) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.currentLocked(seg) {
		return fs.ErrNotExist
	}
	if l.mu.closed || l.Err() != nil {
		return l.Err()
	}
	return l.failLocked(ErrQuarantined, fmt.Errorf("segment %d: %w", seg.base, err))
}

// Aborted lists the aborted transactions with records in [from, below), as far as
// their ends are in local segments: for a reader of what lies below the local
// start and is aborted past it.
func (l *Log) Aborted(from, below int64) ([]AbortedTxn, error) {
	if !l.aborts.Load() {
		return nil, l.readable()
	}
	for try := 0; ; try++ {
		found, err := l.abortedBetween(l.st.load(), from, below)
		if err != nil && try < 3 && errors.Is(err, fs.ErrNotExist) {
			continue // a segment went away meanwhile
		}
		return found, err
	}
}

// abortedBetween lists the aborted transactions with records in [from, below).
func (l *Log) abortedBetween(s snapshot, from, below int64) ([]AbortedTxn, error) {
	var found []AbortedTxn
	for seg := s.find(max(from, s.LocalStart)); seg != nil; seg = s.after(seg) {
		entries, err := l.abortedOf(seg)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.last >= from && e.first < below {
				found = append(found, AbortedTxn{ProducerID: e.producerID, First: e.first})
			}
			if e.lastStable >= below {
				return found, nil
			}
		}
	}
	return found, nil
}
