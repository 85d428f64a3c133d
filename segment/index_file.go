package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"firn/segment/batch"
	"firn/segment/vfs"
)

// readIndex reads the index files of s. That they are missing or damaged is an
// error, and no loss (S2).
func (l *Log) readIndex(s *segment, size int64) (*index, error) {
	x := newIndex(s.base)
	offsets, err := readFile(l.dir.fs, s.path(offsetSuffix), smallFile)
	if err == nil && offsets == nil {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = x.loadOffsets(offsets, size)
	}
	if err != nil {
		return nil, fmt.Errorf("segment: offset index: %w", err)
	}
	times, err := readFile(l.dir.fs, s.path(timeSuffix), smallFile)
	if err == nil && times == nil {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = x.loadTimes(times)
	}
	if err != nil {
		return nil, fmt.Errorf("segment: time index: %w", err)
	}
	return x, nil
}

// indexOf returns the index of the sealed segment s, from memory, from its files
// or, where these are no good, from its batches.
func (l *Log) indexOf(s *segment) (*index, error) {
	if x := s.index.Load(); x != nil {
		return x, nil
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	if x := s.index.Load(); x != nil {
		return x, nil
	}
	h, err := l.pin(s)
	if err != nil {
		return nil, err
	}
	defer h.unpin()
	x, err := l.readIndex(s, s.size)
	if err == nil {
		err = checkIndex(x, h.file, s)
	}
	if err != nil {
		if x, err = l.rebuildIndex(s, h.file, err); err != nil {
			return nil, err
		}
	}
	s.index.Store(x)
	l.dir.handles.indexLoaded(s, x)
	return x, nil
}

// checkIndex tests the last entries of x against the batches of s.
func checkIndex(x *index, f vfs.File, s *segment) error {
	if n := x.times.Len(); n > 0 && s.base+int64(x.times.At(n-1).Rel) >= s.end {
		return errors.New("segment: time index points beyond the segment")
	}
	if s.size > 0 && x.times.Len() == 0 {
		if h, err := header(f, 0, s.size); err != nil || h.MaxTimestamp() >= 0 {
			return errors.New("segment: time index is empty")
		}
	}
	if err := checkMaxTime(x, f, s); err != nil {
		return err
	}
	n := x.offsets.Len()
	if n == 0 {
		return nil
	}
	e := x.offsets.At(n - 1)
	h, err := header(f, int64(e.Pos), s.size)
	if err != nil {
		return fmt.Errorf("segment: offset index: %w", err)
	}
	if h.LastOffset() != s.base+int64(e.Rel) {
		return errors.New("segment: offset index points between batches")
	}
	return nil
}

// checkMaxTime tests the last time entry, by which retention goes, against the
// batch that it names.
func checkMaxTime(x *index, f vfs.File, s *segment) error {
	n := x.times.Len()
	if n == 0 {
		return nil
	}
	e := x.times.At(n - 1)
	last := s.base + int64(e.Rel)
	pos, _ := x.floor(last)
	right := false
	err := walk(f, pos, s.size, func(b batch.Batch, _ int64) bool {
		right = b.LastOffset() == last && b.MaxTimestamp() == e.Time
		return b.LastOffset() < last
	})
	if err == nil && !right {
		err = errors.New("segment: time index does not fit the batches")
	}
	return err
}

// rebuildIndex makes the indexes of a sealed segment from its batches, and their
// files.
func (l *Log) rebuildIndex(s *segment, f vfs.File, reason error) (*index, error) {
	x := newIndex(s.base)
	interval := l.opts.Load().IndexIntervalBytes
	next := s.base
	err := walk(f, 0, s.size, func(b batch.Batch, pos int64) bool {
		x.add(b.LastOffset(), b.MaxTimestamp(), pos, b.Length(), interval)
		next = b.NextOffset()
		return true
	})
	if err == nil && next != s.end {
		err = fmt.Errorf("%w: ends at offset %d, the next segment begins at %d", batch.ErrCorrupt, next, s.end)
	}
	if err != nil {
		return nil, err
	}
	x.seal()
	l.log.Warn("index was damaged or missing; made anew from the batches", "offset", s.base, "err", reason)
	if err := l.writeIndex(s, x, false); err != nil {
		l.log.Warn("an index made anew can't be written; the next reader makes it again", "offset", s.base, "err", err)
	}
	return x, nil
}

// writeIndex writes the files of x.
func (l *Log) writeIndex(s *segment, x *index, durable bool) error {
	if err := l.writeDerived(s.path(offsetSuffix), x.appendOffsets(nil), durable); err != nil {
		return err
	}
	return l.writeDerived(s.path(timeSuffix), x.appendTimes(nil), durable)
}

// writeDerived writes a file that can be made again from the batches, so it need
// not be replaced as one.
func (l *Log) writeDerived(name string, b []byte, durable bool) error {
	f, err := l.dir.fs.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil && durable {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// removeIndexes removes the index files of s, durably, before its batches are
// cut: an entry must not outlive what it points at.
func (l *Log) removeIndexes(s *segment) error {
	for _, suffix := range [...]string{offsetSuffix, timeSuffix, txnSuffix} {
		if err := removeIfThere(l.dir.fs, s.path(suffix)); err != nil {
			return err
		}
	}
	return l.dir.fs.SyncDir(l.path)
}

// abortedOf is the aborted transactions whose marker is in s. The log's lock is
// not held.
func (l *Log) abortedOf(s *segment) ([]abortedEntry, error) {
	if !s.hasTxns.Load() {
		return nil, nil
	}
	l.mu.Lock()
	entries := s.aborted
	l.mu.Unlock()
	if entries != nil {
		return entries, nil
	}
	b, err := readFile(l.dir.fs, s.path(txnSuffix), smallFile)
	if err != nil {
		return nil, err
	}
	entries, err = parseAborted(b)
	if err == nil && b != nil {
		return entries, nil
	}
	return l.rebuildAborted(s)
}

// rebuildAborted finds the aborted transactions of a sealed segment in its
// batches, from the producer state at its beginning.
func (l *Log) rebuildAborted(s *segment) ([]abortedEntry, error) {
	var t producers
	t.reset()
	b, err := readFile(l.dir.fs, s.path(snapshotSuffix), smallFile)
	if err != nil {
		return nil, err
	}
	if b != nil {
		if err := t.loadSnapshot(b); err != nil {
			return nil, err
		}
	}
	h, err := l.pin(s)
	if err != nil {
		return nil, err
	}
	defer h.unpin()
	found := []abortedEntry{}
	_, err = scan(h.file, 0, s.size, func(b batch.Batch, _ int64) error {
		if b.HasProducer() {
			t.begin()
			if t.note(b, b.BaseOffset(), b.LastOffset(), OriginCoordinator, false) == nil {
				t.commit()
				_, found = t.decide(nil, found)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.log.Warn("transaction index was damaged or missing; made anew from the batches", "offset", s.base)
	l.mu.Lock()
	defer l.mu.Unlock()
	s.aborted = found
	if err := l.writeDerived(s.path(txnSuffix), appendAborted(nil, found), false); err != nil {
		l.log.Warn("an index made anew can't be written; the next start makes it again", "offset", s.base, "err", err)
	}
	return found, nil
}

// abortedBelow is the aborted transactions of s, as its file tells, whose marker
// is below offset.
func (l *Log) abortedBelow(s *segment, offset int64) []abortedEntry {
	b, err := readFile(l.dir.fs, s.path(txnSuffix), smallFile)
	if err != nil || b == nil {
		return nil
	}
	entries, err := parseAborted(b)
	if err != nil {
		return nil
	}
	n := 0
	for n < len(entries) && entries[n].last < offset {
		n++
	}
	return entries[:n:n]
}
