package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"firn/segment/batch"
	"firn/segment/vfs"
)

// recoverLocked finds where the log ends after an unclean stop. Everything from
// the recovery point on is read and verified; what follows the last whole batch
// is cut off (S1), but never anything below the recovery point, which was flushed
// and has been damaged since: that quarantines the log (S5).
func (l *Log) recoverLocked(ls listing, o opening) error {
	start := time.Now()
	w := &l.st.mu.snapshot
	i := 0
	for i < len(ls.segments)-1 && ls.segments[i].end <= o.recoveryPoint {
		ls.segments[i].synced.Store(true)
		i++
	}
	r := recovery{l: l, epoch: -1}
	if err := r.begin(ls, i, o); err != nil {
		return err
	}
	i, err := r.run(ls.segments, i)
	if err != nil {
		return err
	}
	w.End = r.next
	l.dir.metrics.recovered.Add(float64(r.scanned))
	if r.reason == nil && w.End < o.recoveryPoint && o.known {
		r.reason = fmt.Errorf("log ends at offset %d", r.next)
	}
	if r.next < o.recoveryPoint && o.known {
		// The log opens all the same: what can be told of it, can be told.
		l.mu.flushed = r.next
		return ignore(l.failLocked(ErrQuarantined, r.damage(ls.segments[i], o.recoveryPoint)))
	}
	cut, err := l.cutRecovered(ls.segments, i, r.pos)
	if err == nil {
		w.view, w.size = &view{sealed: ls.segments[:i:i], active: ls.segments[i]}, r.pos
	}
	if err == nil && ls.unsynced {
		err = l.rewrite(ls.segments[:i+1], o.recoveryPoint)
	}
	if err != nil {
		return err
	}
	l.warm.Store(true)
	for _, s := range w.sealed {
		if !s.synced.Load() {
			l.mu.unsynced = append(l.mu.unsynced, s)
		}
	}
	chain := l.chain.Load().upTo(w.End)
	l.chain.Store(&chain)
	if cut > 0 {
		l.dir.metrics.cut.Add(float64(cut))
		l.log.Warn("log recovered; what followed its last whole batch was cut off", "end", w.End, "cut_bytes", cut,
			"scanned_bytes", r.scanned, "recovery_point", o.recoveryPoint, "reason", r.reason, "took", time.Since(start))
	}
	return nil
}

// ignore drops an error that the log itself keeps.
func ignore(error) error { return nil }

// recovery is one scan of a log.
type recovery struct {
	l       *Log
	pos     int64 // in the segment that is being scanned: the end of the last good batch
	next    int64 // the offset that the next batch begins at, at least
	epoch   int32
	scanned int64
	reason  error // why the scan ended early
}

// begin sets the place where the scan starts: at the recovery point, as near as
// the index of the segment that holds it tells.
func (r *recovery) begin(ls listing, i int, o opening) error {
	s := ls.segments[i]
	r.next = s.base
	x := newIndex(s.base)
	if o.known && o.recoveryPoint > s.base {
		h, err := r.l.dir.handles.pin(s)
		if err != nil {
			return err
		}
		x, r.pos, r.next = r.l.resume(s, h.file, s.size, o.recoveryPoint)
		h.unpin()
	}
	s.index.Store(x)
	return r.l.openProducers(ls.snapshots, r.next, r.next)
}

// run scans segments from i on, to the first damage or the end, and returns the
// segment in which that is.
func (r *recovery) run(segments []*segment, i int) (int, error) {
	for ; ; i++ {
		s := segments[i]
		if err := r.scan(s); err != nil {
			return i, err
		}
		if r.reason == nil && s.end != never && r.next != s.end {
			r.reason = fmt.Errorf("segment ends at offset %d, the next one begins at %d", r.next, s.end)
		}
		if r.reason != nil || s.end == never {
			return i, nil
		}
		s.index.Load().seal()
		s.snapshot = r.l.mu.producers.appendSnapshot(nil)
	}
}

// scan verifies segment s from r.pos on and makes its indexes.
func (r *recovery) scan(s *segment) error {
	h, err := r.l.dir.handles.pin(s)
	if errors.Is(err, fs.ErrNotExist) {
		r.pos, r.reason = 0, errGone
		return nil
	}
	if err != nil {
		return err
	}
	defer h.unpin()
	if r.next == s.base || s.index.Load() == nil {
		s.index.Store(newIndex(s.base))
		s.aborted, r.pos = nil, 0
	} else {
		s.aborted = r.l.abortedBelow(s, r.next)
	}
	from := r.pos
	interval := r.l.opts.Load().IndexIntervalBytes
	end, err := scan(h.file, r.pos, s.size, func(b batch.Batch, pos int64) error {
		if err := batch.Verify(b); err != nil {
			return err
		}
		if err := r.order(s, b); err != nil {
			return err
		}
		r.l.recount(s, b, pos, interval)
		r.next, r.epoch = b.NextOffset(), b.LeaderEpoch()
		return nil
	})
	r.pos = end
	r.scanned += end - from
	if err != nil && !damage(err) {
		return err
	}
	r.reason = err
	return nil
}

var errOrder = errors.New("batch out of order")

// order refuses a batch that cannot follow the one before it.
func (r *recovery) order(s *segment, b batch.Batch) error {
	switch {
	case b.BaseOffset() < r.next || b.BaseOffset() < s.base:
		return fmt.Errorf("%w: offset %d after %d", errOrder, b.BaseOffset(), r.next)
	case b.LastOffset() >= s.end || b.LastOffset()-s.base > math.MaxInt32:
		return fmt.Errorf("%w: offset %d in a segment that ends at %d", errOrder, b.LastOffset(), s.end)
	case b.LeaderEpoch() < r.epoch:
		return fmt.Errorf("%w: epoch %d after %d", errOrder, b.LeaderEpoch(), r.epoch)
	}
	return nil
}

// damage tells an error of what was read from one of reading.
func damage(err error) bool {
	for _, e := range []error{batch.ErrShort, batch.ErrCorrupt, batch.ErrInvalid, batch.ErrUnknownCodec, batch.ErrOldFormat, errOrder, io.ErrUnexpectedEOF} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// cutRecovered makes segment i, cut at pos, the last one, and returns how many
// bytes that took off.
func (l *Log) cutRecovered(segments []*segment, i int, pos int64) (cut int64, err error) {
	s := segments[i]
	cut = s.size - pos
	var later []*segment // the last one first: what a crash leaves ends earlier
	for _, o := range segments[i+1:] {
		cut += o.size
		l.dir.handles.drop(o)
		later = append([]*segment{o}, later...)
	}
	if err := l.removeSegments(later); err != nil {
		return 0, err
	}
	if s.size > pos {
		h, err := l.dir.handles.pin(s)
		if err != nil {
			return 0, err
		}
		defer h.unpin()
		if err := l.removeIndexes(s); err != nil {
			return 0, err
		}
		if err := h.file.Truncate(pos); err != nil {
			return 0, err
		}
		// Else the bytes could come back behind what is appended here.
		if err := h.file.Sync(); err != nil {
			return 0, err
		}
	}
	s.size, s.end = pos, never
	s.synced.Store(false)
	return cut, nil
}

// resume loads the index of s as far as it is surely right and not above offset
// upTo: up to an entry whose batch lies where it says, whole. It returns where
// the batches go on that the index does not know.
func (l *Log) resume(s *segment, f vfs.File, size, upTo int64) (x *index, pos, next int64) {
	x, err := l.readIndex(s, size)
	if err != nil {
		return newIndex(s.base), 0, s.base
	}
	n := x.offsets.search(x.offsets.Len(), func(e offsetEntry) bool { return s.base+int64(e.Rel) >= upTo })
	if n == 0 {
		return newIndex(s.base), 0, s.base
	}
	e := x.offsets.At(n - 1)
	var found batch.Batch
	_, err = scan(f, int64(e.Pos), size, func(b batch.Batch, _ int64) error {
		found = b
		return io.EOF
	})
	if !errors.Is(err, io.EOF) || batch.Verify(found) != nil || found.LastOffset() != s.base+int64(e.Rel) {
		return newIndex(s.base), 0, s.base
	}
	x.cut(n)
	x.sinceEntry = len(found)
	if h, err := header(f, 0, size); err == nil {
		s.firstTime = h.MaxTimestamp()
	}
	return x, int64(e.Pos) + int64(len(found)), found.NextOffset()
}

// header reads the header of the batch at pos.
func header(f vfs.File, pos, size int64) (batch.Batch, error) {
	if size-pos < batch.HeaderSize {
		return nil, batch.ErrShort
	}
	b := make(batch.Batch, batch.HeaderSize)
	if err := readFull(f, b, pos); err != nil {
		return nil, err
	}
	if _, err := batch.Peek(b); err != nil {
		return nil, err
	}
	return b, nil
}

// rewrite writes what is not known to be flushed over itself and syncs it: see
// syncFailedFile.
func (l *Log) rewrite(segments []*segment, from int64) error {
	for _, s := range segments {
		if s.end <= from {
			continue
		}
		h, err := l.dir.handles.pin(s)
		if err != nil {
			return err
		}
		_, err = scan(h.file, 0, s.size, func(b batch.Batch, pos int64) error {
			if b.LastOffset() < from {
				return nil
			}
			_, err := h.file.WriteAt(b, pos)
			return err
		})
		if err == nil {
			err = h.file.Sync()
		}
		h.unpin()
		if err != nil {
			return err
		}
	}
	if err := removeIfThere(l.dir.fs, filepath.Join(l.path, syncFailedFile)); err != nil {
		return err
	}
	return l.dir.fs.SyncDir(l.path)
}
