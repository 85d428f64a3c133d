package segment

import (
	"fmt"
	"path/filepath"
	"time"
)

// rollIfDueLocked seals the active segment if size more bytes up to offset last
// do not belong into it: Kafka's rules of size, time, index and offset span.
func (l *Log) rollIfDueLocked(size int, last, maxTime int64, opts *Options) error {
	s, have := l.st.mu.active, l.st.mu.size
	if have == 0 {
		if !tooFar(s.base, last) {
			return nil
		}
		return fmt.Errorf("%w: offset %d in a segment that begins at %d", ErrInvalidRecord, last, s.base)
	}
	if have+int64(size) > opts.SegmentBytes || l.agedLocked(maxTime, opts) || s.index.Load().full(opts.SegmentIndexBytes) || tooFar(s.base, last) {
		return l.rollLocked()
	}
	return nil
}

// agedLocked tells that segment.ms has passed from the segment's first batch to
// timestamp now.
func (l *Log) agedLocked(now int64, opts *Options) bool {
	s := l.st.mu.active
	return l.st.mu.size > 0 && s.firstTime >= 0 && now-s.firstTime > opts.SegmentMs-s.jitter
}

// Roll seals the active segment, if it has records.
func (l *Log) Roll(time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	if l.st.mu.size == 0 {
		return nil
	}
	return l.rollLocked()
}

// rollLocked seals the active segment and begins the next one. Only the new file
// is made here; index files, producer snapshot and fsync follow in the
// background: until they are there, memory has what they will hold.
func (l *Log) rollLocked() error {
	if err := l.dir.failpoint("segment.roll"); err != nil {
		return l.ioErrorLocked("roll", err)
	}
	if len(l.st.mu.view.sealed) == 0 {
		// The first file's name is durable before there is a second. Else a power
		// loss could take the first alone, and leave a log that has lost its
		// beginning and nothing that tells so. Later ones are safe behind it.
		if err := l.dir.fs.SyncDir(l.path); err != nil {
			return l.ioErrorLocked("roll", err)
		}
	}
	end := l.st.mu.End
	next, err := l.createSegment(end)
	if err != nil {
		return l.ioErrorLocked("roll", err)
	}
	old := l.st.mu.active
	old.index.Load().seal()
	old.end, old.size = end, l.st.mu.size
	old.snapshot = l.mu.producers.appendSnapshot(nil)
	old.ring.Store(nil)

	v := l.st.mu.view
	l.st.mu.Lock()
	l.st.mu.view = &view{sealed: append(v.sealed[:len(v.sealed):len(v.sealed)], old), active: next}
	l.st.mu.size = 0
	l.st.publishLocked()
	l.st.mu.Unlock()

	l.mu.newFiles = true
	l.mu.unsynced = append(l.mu.unsynced, old)
	l.kickLocked()
	return nil
}

// ActiveInfo tells of the active segment.
type ActiveInfo struct {
	Base, End int64
	Bytes     int64
	// FirstAppend is the wall time of the first append that this process made
	// to it, in Unix milliseconds; 0 if it made none.
	FirstAppend int64
}

// ActiveInfo tells of the active segment, so that one can judge whether to Roll.
func (l *Log) ActiveInfo() ActiveInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.st.load()
	if s.view == nil {
		return ActiveInfo{}
	}
	return ActiveInfo{Base: s.active.base, End: s.End, Bytes: s.size, FirstAppend: s.active.firstWall}
}

func (l *Log) snapshotPath(offset int64) string {
	return filepath.Join(l.path, baseName(offset)+snapshotSuffix)
}
