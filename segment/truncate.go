package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"firn/segment/batch"
)

// TruncateTo cuts the log so that it ends at end. A cut inside a batch takes the
// whole batch. The producers' state goes back with it, and so do the epochs, even
// where no record goes (hazard A2).
func (l *Log) TruncateTo(end int64) error {
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	w := &l.st.mu.snapshot
	if end < w.LocalStart {
		return fmt.Errorf("%w: truncate to %d, log begins at %d", ErrOffsetOutOfRange, end, w.LocalStart)
	}
	if end >= w.End {
		return l.truncateEpochsLocked(w.End)
	}
	if err := l.dir.failpoint("segment.truncate"); err != nil {
		return l.ioErrorLocked("truncate", err)
	}
	if err := l.truncateLocked(end); err != nil {
		return l.failLocked(ErrFailed, fmt.Errorf("truncate: %w", err))
	}
	l.wakeWaitersLocked()
	return nil
}

func (l *Log) truncateEpochsLocked(end int64) error {
	chain := l.chain.Load().below(end)
	if len(chain) == len(*l.chain.Load()) {
		return nil
	}
	if err := l.writeEpochs(chain); err != nil {
		return l.ioErrorLocked("write "+epochFile, err)
	}
	l.chain.Store(&chain)
	l.mu.durableEpoch = chain.latest()
	return nil
}

// truncateLocked cuts segment by segment. The order makes a crash in the middle
// look like a crash before or after:
//
//  1. The recovery point goes back, durably: recovery must not take what was cut
//     for damage.
//  2. Later segments go, from the last one on.
//  3. Index files and snapshots past the cut go, then the batches.
func (l *Log) truncateLocked(end int64) error {
	w := &l.st.mu.snapshot
	s := w.find(end)
	size, segEnd := w.size, w.End
	if s != w.active {
		size, segEnd = s.size, s.end
	}
	h, err := l.dir.handles.pin(s)
	if err != nil {
		return err
	}
	defer h.unpin()
	p, err := l.locate(s, h, end, size, segEnd)
	if err != nil {
		return err
	}
	end = min(end, p.base)

	l.mu.flushed = min(l.mu.flushed, end)
	l.mu.wanted = min(l.mu.wanted, end)
	if err := l.lowerPoint(end); err != nil {
		return err
	}
	var later []*segment // the last one first: what a crash leaves ends earlier
	for _, o := range append(w.sealed[:len(w.sealed):len(w.sealed)], w.active) {
		if o.base > s.base {
			later = append([]*segment{o}, later...)
		}
	}
	// The chain goes first: an epoch too few is found in the batches again.
	if err := l.truncateEpochsLocked(end); err != nil {
		return err
	}
	fresh, err := l.cutSegment(s, h, p.pos, end)
	if err != nil {
		return err
	}
	sealed := make([]*segment, 0, len(w.sealed))
	for _, o := range w.sealed {
		if o.base < s.base {
			sealed = append(sealed, o)
		}
	}
	l.st.mu.Lock()
	w.view = &view{sealed: sealed, active: fresh}
	w.End, w.size = end, p.pos
	w.Counted = min(w.Counted, end)
	w.HighWatermark = min(w.HighWatermark, end)
	w.LogStart = min(w.LogStart, end)
	l.recountLocked()
	l.st.publishLocked()
	l.st.mu.Unlock()
	kept := l.mu.unsynced[:0:0]
	for _, o := range l.mu.unsynced {
		if o.base < s.base {
			kept = append(kept, o)
		}
	}
	l.mu.unsynced = kept
	for _, o := range append(later, s) {
		l.dir.handles.drop(o)
	}
	if err := l.removeSegments(later); err != nil {
		return err
	}
	return l.reloadProducersLocked(end)
}

// lowerPoint makes the checkpointed recovery point no higher than end, durably.
func (l *Log) lowerPoint(end int64) error {
	if l.point.Load() <= end {
		return nil
	}
	l.point.Store(end)
	return l.dir.writePoints()
}

// cutSegment cuts the file of s at pos and returns the segment that takes its
// place: readers of the old view keep what they know of the old one.
func (l *Log) cutSegment(s *segment, h *handle, pos, end int64) (*segment, error) {
	aborted := s.aborted
	if aborted == nil {
		aborted = l.abortedBelow(s, end)
	}
	if err := l.removeIndexes(s); err != nil {
		return nil, err
	}
	fresh := l.newSegment(s.base)
	x := newIndex(s.base)
	interval := l.opts.Load().IndexIntervalBytes
	err := walk(h.file, 0, pos, func(b batch.Batch, at int64) bool {
		if at == 0 {
			fresh.firstTime = b.MaxTimestamp()
		}
		x.add(b.LastOffset(), b.MaxTimestamp(), at, b.Length(), interval)
		return true
	})
	if err != nil {
		return nil, err
	}
	fresh.index.Store(x)
	fresh.firstWall = s.firstWall
	for _, e := range aborted {
		if e.last < end {
			fresh.aborted = append(fresh.aborted, e)
		}
	}
	fresh.hasTxns.Store(len(fresh.aborted) > 0)
	if err := h.file.Truncate(pos); err != nil {
		return nil, err
	}
	// Else a power loss could bring the bytes back behind what comes now.
	if err := h.file.Sync(); err != nil {
		return nil, err
	}
	return fresh, nil
}

// removeSegments takes segments that are no part of the log any more off the
// disk, in this order and each durably before the next: after a power loss in the
// middle the log has no hole. Their files get another name at once and go after
// file.delete.delay.ms.
func (l *Log) removeSegments(segments []*segment) error {
	delay := l.opts.Load().FileDeleteDelayMs
	for _, s := range segments {
		if err := l.removeSegment(s, delay); err != nil {
			return err
		}
		if err := l.dir.fs.SyncDir(l.path); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) removeSegment(s *segment, delay int64) error {
	for _, suffix := range [...]string{logSuffix, offsetSuffix, timeSuffix, txnSuffix, snapshotSuffix} {
		gone := s.path(suffix) + deletedSuffix
		if suffix == snapshotSuffix || suffix != logSuffix && delay == 0 {
			if err := removeIfThere(l.dir.fs, s.path(suffix)); err != nil {
				return err
			}
			continue
		}
		if err := l.dir.fs.Rename(s.path(suffix), gone); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return err
		}
		l.dir.deleteLater(gone, delay)
	}
	return nil
}

// reloadProducersLocked makes the producers' state that of the log as it ends
// now: from the newest snapshot that is not past the end, and the batches since.
func (l *Log) reloadProducersLocked(end int64) error {
	entries, err := l.dir.fs.ReadDir(l.path)
	if err != nil {
		return err
	}
	var snapshots []int64
	for _, e := range entries {
		offset, suffix, ok := parseName(e.Name())
		if !ok || suffix != snapshotSuffix {
			continue
		}
		if offset <= end {
			snapshots = append(snapshots, offset)
			continue
		}
		if err := removeIfThere(l.dir.fs, filepath.Join(l.path, e.Name())); err != nil {
			return err
		}
	}
	l.mu.producers.reset()
	l.st.mu.Lock()
	l.st.mu.decided = nil
	l.st.mu.Unlock()
	if err := l.openProducers(snapshots, end, end); err != nil {
		return errors.Join(errors.New("reload producers"), err)
	}
	l.st.mu.Lock()
	l.st.mu.firstOpen = l.mu.producers.firstOpen()
	l.st.publishLocked()
	l.st.mu.Unlock()
	return nil
}

// RestartAt drops everything that is on disk and starts the log again, empty, at
// offset: with a log start at or below it, the epoch chain up to it and, unless
// it is nil, the producers of a snapshot file. It is for a replica whose past
// lies in the archive (T8), and for one whose records its leader has dropped. It
// also puts a quarantined log back into service: whoever calls it has made sure
// that nobody counts on what is dropped (S7).
func (l *Log) RestartAt(offset, logStart int64, chain []EpochStart, producerSnapshot []byte) error {
	if offset < 0 || logStart > offset {
		return fmt.Errorf("%w: restart at %d with log start %d", ErrOffsetOutOfRange, offset, logStart)
	}
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return ErrClosed
	}
	if err := l.Err(); err != nil && !errors.Is(err, ErrQuarantined) {
		return err
	}
	var t producers
	t.reset()
	if producerSnapshot != nil {
		if err := t.loadSnapshot(producerSnapshot); err != nil {
			return err
		}
	}
	if err := l.restartLocked(offset, logStart, chain, &t); err != nil {
		return l.failLocked(ErrFailed, fmt.Errorf("restart at %d: %w", offset, err))
	}
	l.failure.Store(nil)
	l.log.Info("log starts again", "offset", offset, "log_start", logStart)
	return nil
}

// BeginAt drops everything that is on disk and starts the log again, empty, at
// offset: the leader's log begins there, so nothing before it is wanted. That is
// durable before anything goes: a crash must not leave a log that begins past its
// log start.
func (l *Log) BeginAt(offset int64) error {
	l.starts.Lock()
	defer l.starts.Unlock()
	before := l.nextStart.Swap(offset)
	err := l.dir.persistStarts()
	if err == nil {
		err = l.RestartAt(offset, offset, nil, nil)
	}
	if err != nil {
		l.nextStart.CompareAndSwap(offset, before)
	}
	return err
}

// restartLocked keeps the order of truncateLocked: the recovery point, the old
// segments from the last one on, the new one. A crash in between leaves a log
// that ends below offset, whose owner starts it again.
func (l *Log) restartLocked(offset, logStart int64, chain epochs, t *producers) error {
	if err := l.lowerPoint(0); err != nil {
		return err
	}
	w := &l.st.mu.snapshot
	var old []*segment
	for _, s := range append(w.sealed[:len(w.sealed):len(w.sealed)], w.active) {
		l.dir.handles.drop(s)
		old = append([]*segment{s}, old...)
	}
	if err := l.removeSegments(old); err != nil {
		return err
	}
	if err := l.removeSnapshots(); err != nil {
		return err
	}
	if err := l.writeEpochs(chain); err != nil {
		return err
	}
	snapshot := t.appendSnapshot(nil)
	if err := replaceFile(l.dir.fs, l.snapshotPath(offset), snapshot, true); err != nil {
		return err
	}
	fresh, err := l.createSegment(offset)
	if err != nil {
		return err
	}
	if err := l.dir.fs.SyncDir(l.path); err != nil {
		return err
	}
	c := append(epochs{}, chain...)
	l.chain.Store(&c)
	l.mu.durableEpoch = c.latest()
	l.mu.producers = *t
	l.mu.unsynced, l.mu.flushed, l.mu.wanted, l.mu.oldestDirty = nil, offset, 0, 0
	l.warm.Store(true)
	l.aborts.Store(false)
	l.nextStart.Store(logStart)

	l.st.mu.Lock()
	w.view, w.size = &view{active: fresh}, 0
	w.LogStart, w.LocalStart, w.End = logStart, offset, offset
	w.Counted, w.HighWatermark = offset, offset
	l.st.mu.decided, l.st.mu.firstOpen = nil, t.firstOpen()
	l.st.publishLocked()
	l.st.mu.Unlock()
	l.wakeWaitersLocked()
	return l.dir.persistStarts()
}

func (l *Log) removeSnapshots() error {
	entries, err := l.dir.fs.ReadDir(l.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, suffix, ok := parseName(e.Name()); ok && suffix == snapshotSuffix {
			if err := removeIfThere(l.dir.fs, filepath.Join(l.path, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
