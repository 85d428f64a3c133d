package segment

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// The syncer is a goroutine of a log that lives while something is to be made
// durable: sealed segments, whose index files it writes too, or an append that
// flush.messages has made due. Appends go on meanwhile; one sync serves all that
// came before it (S6).

// kickLocked starts the syncer, unless it runs.
func (l *Log) kickLocked() {
	if l.mu.syncing || l.mu.closed || l.Err() != nil || !l.workLocked() {
		return
	}
	l.mu.syncing = true
	l.syncer.Go(l.sync)
}

// workLocked tells whether the syncer has something to do.
func (l *Log) workLocked() bool {
	return len(l.mu.unsynced) > 0 || l.mu.wanted > l.mu.flushed || l.dueLocked() ||
		l.st.mu.Counted < l.st.mu.End // due when it was appended: somebody waits for it
}

// dueLocked tells that flush.messages is reached.
func (l *Log) dueLocked() bool {
	return l.st.mu.End-l.mu.flushed >= l.opts.Load().FlushMessages
}

// recountLocked sets the counted offset: all of the log while no flush is due,
// else what is flushed; it never goes back (hazard C10). Both locks are held.
func (l *Log) recountLocked() {
	w := &l.st.mu.snapshot
	if l.dueLocked() {
		w.Counted = max(w.Counted, min(l.mu.flushed, w.End))
	} else {
		w.Counted = w.End
	}
}

// sync is the syncer.
func (l *Log) sync() {
	for {
		l.mu.Lock()
		if l.mu.closed || l.Err() != nil || !l.workLocked() {
			l.mu.syncing = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		l.dir.syncs <- struct{}{}
		moved, err := l.syncStep()
		<-l.dir.syncs
		if moved {
			l.notify()
		}
		if err != nil && l.syncFailed(err) {
			return
		}
	}
}

// syncStep makes the oldest sealed segment durable or, if there is none, the
// active one as far as it is written. It tells whether Counted has moved.
func (l *Log) syncStep() (moved bool, err error) {
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	if l.mu.closed || l.Err() != nil {
		l.mu.Unlock()
		return false, nil
	}
	var sealed *segment
	if len(l.mu.unsynced) > 0 {
		sealed = l.mu.unsynced[0]
	}
	s, end := l.st.mu.active, l.st.mu.End
	newDir, newFiles := l.mu.newDir, l.mu.newFiles
	l.mu.newDir = false
	if sealed == nil {
		l.mu.newFiles = false
	}
	l.mu.Unlock()

	if newDir {
		if err = l.settleDir(); err != nil {
			err = errDerived{err}
		}
	}
	switch {
	case err != nil:
	case sealed != nil:
		s, end = sealed, sealed.end
		err = l.syncSealed(sealed)
	default:
		if err = l.syncFile(s); err == nil && newFiles {
			err = l.dir.fs.SyncDir(l.path)
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.mu.newDir, l.mu.newFiles = l.mu.newDir || newDir, l.mu.newFiles || sealed == nil && newFiles
		return false, err
	}
	if !l.currentLocked(s) {
		return false, nil // cut or dropped meanwhile
	}
	if sealed != nil {
		l.mu.unsynced = l.mu.unsynced[1:]
		s.snapshot, s.aborted = nil, nil
		s.synced.Store(true)
		l.dir.handles.indexLoaded(s, s.index.Load())
	}
	return l.flushedLocked(min(end, l.st.mu.End)), nil
}

// currentLocked tells that s is still a segment of the log.
func (l *Log) currentLocked(s *segment) bool {
	v := l.st.mu.view
	return v.active == s || v.find(s.base) == s
}

// flushedLocked takes note that everything below end is durable, and tells
// whether that moved Counted.
func (l *Log) flushedLocked(end int64) bool {
	if end <= l.mu.flushed {
		return false
	}
	l.mu.flushed = end
	if end == l.st.mu.End {
		l.mu.oldestDirty = 0
	} else {
		l.mu.oldestDirty = l.dir.cfg.Now().UnixMilli()
	}
	l.st.mu.Lock()
	before := l.st.mu.Counted
	l.recountLocked()
	moved := l.st.mu.Counted > before
	if moved {
		l.st.publishLocked()
	}
	l.st.mu.Unlock()
	l.wakeWaitersLocked()
	return moved
}

// syncFile makes the batches of s durable.
func (l *Log) syncFile(s *segment) error {
	h, err := l.dir.handles.pin(s)
	if err != nil {
		return err
	}
	defer h.unpin()
	begin := time.Now()
	if err := h.file.Sync(); err != nil {
		return err
	}
	l.dir.metrics.flushes.Observe(time.Since(begin).Seconds())
	return nil
}

// settleDir makes durable what waited for the first flush of a new log: the name
// of its directory and the topic id.
func (l *Log) settleDir() error {
	if l.topicID != [16]byte{} {
		if err := writeTopicID(l.dir.fs, l.path, l.topicID, true); err != nil {
			return err
		}
	}
	return l.dir.syncRoot()
}

// syncSealed writes the index files and the producer snapshot of a sealed
// segment, and makes all its files durable (S3).
func (l *Log) syncSealed(s *segment) error {
	if err := l.syncFile(s); err != nil {
		return err
	}
	l.mu.Lock()
	snapshot, aborted := s.snapshot, s.aborted
	l.mu.Unlock()
	x, err := l.indexOf(s)
	if err != nil {
		return err
	}
	err = l.writeIndex(s, x, true)
	if err == nil {
		err = l.dir.failpoint("segment.seal")
	}
	if err == nil && len(aborted) > 0 {
		err = l.writeDerived(s.path(txnSuffix), appendAborted(nil, aborted), true)
	}
	if err == nil && snapshot != nil {
		err = replaceFile(l.dir.fs, l.snapshotPath(s.end), snapshot, true)
	}
	if err != nil {
		return errDerived{err}
	}
	return l.dir.fs.SyncDir(l.path)
}

// errDerived marks the failure to write a file that is made from the batches.
type errDerived struct{ error }

func (e errDerived) Unwrap() error { return e.error }

// syncFailed judges a failed sync. What a full disk has no room for but can be
// made from memory again is tried again later; a failed fsync of batches, or
// anything else, ends the log (S4). It tells whether the syncer is to stop.
func (l *Log) syncFailed(err error) (stop bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var derived errDerived
	if errors.As(err, &derived) && noSpace(err) || noFiles(err) {
		l.noSpaceLocked(err)
		l.mu.syncing = false
		l.dir.chores.kickLater(l)
		return true
	}
	if l.mu.closed || l.Err() != nil {
		return false
	}
	if merr := l.writeDerived(filepath.Join(l.path, syncFailedFile), nil, true); merr != nil {
		err = errors.Join(err, merr)
	}
	l.failLocked(ErrFailed, fmt.Errorf("flush: %w", err))
	return false
}

// syncFailedFile says that an fsync failed. The pages that it was for may be in
// the page cache still, taken for written by the kernel: the next process would
// read them, sync without an error, and lose them to the next power loss. So it
// writes them again.
const syncFailedFile = ".sync-failed"

// kick starts the syncer, unless it runs.
func (l *Log) kick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kickLocked()
}

// Flush returns when all that was appended before the call is durable.
func (l *Log) Flush() error {
	l.mu.Lock()
	want := l.st.mu.End
	l.mu.wanted = max(l.mu.wanted, want)
	for l.mu.flushed < want {
		if l.mu.closed {
			l.mu.Unlock()
			return ErrClosed
		}
		if err := l.Err(); err != nil {
			l.mu.Unlock()
			return err
		}
		l.kickLocked()
		if l.mu.waiters == nil {
			l.mu.waiters = make(chan struct{})
		}
		c := l.mu.waiters
		l.mu.Unlock()
		<-c
		l.mu.Lock()
		want = min(want, l.st.mu.End) // it may have been cut
	}
	l.mu.Unlock()
	return nil
}

func (l *Log) wakeWaitersLocked() {
	if l.mu.waiters != nil {
		close(l.mu.waiters)
		l.mu.waiters = nil
	}
}

// flushIfOld begins the flush that flush.ms asks for, and tells that there is
// nothing more to wait for.
func (l *Log) flushIfOld(now time.Time) (done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ms := l.opts.Load().FlushMs
	if l.mu.closed || l.Err() != nil || l.mu.oldestDirty == 0 || ms == never {
		return true
	}
	if now.UnixMilli()-l.mu.oldestDirty >= ms {
		l.mu.wanted = l.st.mu.End
		l.kickLocked()
	}
	return false
}

// recoveryPoint is the offset up to which a start after a crash need not look,
// with the epochs below it durable too. setPoint has the next checkpoint tell it;
// of a log that is not in service, what its last checkpoint said still holds.
func (l *Log) setPoint() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Err(); err != nil && err != ErrClosed {
		return
	}
	if err := l.settleEpochsLocked(); err != nil {
		l.log.Warn("leader epochs can't be written; the recovery point stays", "err", err)
		return
	}
	l.point.Store(l.mu.flushed)
}

// closeFilesLocked makes everything durable that a start without a scan needs.
func (l *Log) closeFilesLocked() error {
	for _, s := range l.mu.unsynced {
		if err := l.closeSealedLocked(s); err != nil {
			return err
		}
	}
	l.mu.unsynced = nil
	if err := l.settleEpochsLocked(); err != nil {
		return err
	}
	end := l.st.mu.End
	if !l.warm.Load() && l.mu.flushed >= end && !l.mu.newFiles && !l.mu.newDir {
		return nil // as it was opened
	}
	s := l.st.mu.active
	if l.mu.flushed < end || l.mu.newFiles || l.mu.newDir {
		if err := l.syncFile(s); err != nil {
			return err
		}
	}
	if x := s.index.Load(); x != nil {
		x.seal()
		// Without entries there is nothing that could be believed wrongly.
		if err := l.writeIndex(s, x, x.offsets.Len() > 0); err != nil {
			return err
		}
	}
	if len(s.aborted) > 0 {
		if err := l.writeDerived(s.path(txnSuffix), appendAborted(nil, s.aborted), true); err != nil {
			return err
		}
	}
	// If it is lost, an older one will do.
	if err := replaceFile(l.dir.fs, l.snapshotPath(end), l.mu.producers.appendSnapshot(nil), false); err != nil {
		return err
	}
	if l.mu.newDir {
		if err := l.settleDir(); err != nil {
			return err
		}
	}
	if l.mu.newFiles || len(s.aborted) > 0 {
		if err := l.dir.fs.SyncDir(l.path); err != nil {
			return err
		}
	}
	l.mu.newDir, l.mu.newFiles = false, false
	l.flushedLocked(end)
	return nil
}

func (l *Log) closeSealedLocked(s *segment) error {
	l.mu.Unlock() // syncSealed takes it; nothing else runs: the log is closed
	err := l.syncSealed(s)
	l.mu.Lock()
	if err == nil {
		s.synced.Store(true)
	}
	return err
}
