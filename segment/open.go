package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// opening is what the directory knows of a log that it opens.
type opening struct {
	recoveryPoint int64
	known         bool // the recovery point is from a checkpoint
	clean         bool // the last stop was clean
	hw, logStart  int64
	startNoted    bool // the log start is from a checkpoint
}

// reopening is how a log that this process has closed is opened again; false if
// it is not closed.
func (l *Log) reopening() (opening, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.closed {
		return opening{}, false
	}
	l.dropHandles()
	o := l.st.load()
	how := opening{recoveryPoint: l.point.Load(), known: true, clean: l.mu.settled, hw: o.HighWatermark, logStart: o.LogStart, startNoted: l.startNoted.Load()}
	if how.clean {
		how.recoveryPoint = o.End
	}
	return how, true
}

// listing is what lies in a partition's directory.
type listing struct {
	segments  []*segment // by base; end and size set
	snapshots []int64    // offsets of producer snapshots, rising
	fresh     bool       // the directory did not exist
	unsynced  bool       // the last process's fsync failed
}

// openLocked makes l what lies on disk. After a clean stop it opens no file of a
// segment: that waits for the first use.
func (l *Log) openLocked(o opening) error {
	ls, err := l.list()
	if err != nil {
		return err
	}
	// What no flush is known to have settled, the next one settles.
	l.mu.newDir, l.mu.newFiles = !o.known || o.recoveryPoint == 0, !o.clean
	if err := l.checkTopicID(ls.fresh, o); err != nil {
		return err
	}
	if len(ls.segments) == 0 {
		s, err := l.createSegment(o.logStart)
		if err != nil {
			return err
		}
		l.mu.newFiles = true
		ls.segments = []*segment{s}
	}
	if err := l.openEpochs(ls, o); err != nil {
		return err
	}
	l.point.Store(o.recoveryPoint)
	l.nextStart.Store(o.logStart)
	l.startNoted.Store(o.startNoted)

	first, active := ls.segments[0], ls.segments[len(ls.segments)-1]
	w := &l.st.mu.snapshot
	w.view = &view{sealed: ls.segments[:len(ls.segments)-1], active: active}
	w.size = active.size
	if !o.known {
		o.recoveryPoint = first.base
	}
	l.mu.flushed = o.recoveryPoint
	if o.clean && o.known && o.recoveryPoint >= active.base {
		w.End = o.recoveryPoint
		for _, s := range w.sealed {
			s.synced.Store(true)
		}
		err = l.openProducers(ls.snapshots, w.End, w.End)
	} else {
		err = l.recoverLocked(ls, o)
	}
	if err != nil {
		return err
	}
	l.openOffsets(o)
	if o.logStart > w.End && l.Err() == nil {
		// A power loss took what was above a durable log start. What is below
		// must not be given out again, and no archive need have it.
		l.log.Warn("log ends below its log start: it starts again there", "end", w.End, "log_start", o.logStart)
		l.mu.producers.reset()
		if err := l.restartLocked(o.logStart, o.logStart, *l.chain.Load(), &l.mu.producers); err != nil {
			return err
		}
	}
	l.kickLocked()
	return nil
}

// openOffsets sets and publishes the offsets of a log whose segments and end are
// known.
func (l *Log) openOffsets(o opening) {
	l.st.mu.Lock()
	defer l.st.mu.Unlock()
	w := &l.st.mu.snapshot
	w.LocalStart = w.first().base
	w.LogStart = min(o.logStart, w.End)
	if !l.opts.Load().Archived {
		w.LogStart = max(w.LogStart, w.LocalStart)
	}
	l.mu.flushed = min(l.mu.flushed, w.End)
	w.Counted = min(max(l.mu.flushed, w.LogStart), w.End)
	l.recountLocked()
	// What lies before the local start is deleted or archived, so it was committed.
	w.HighWatermark = min(max(o.hw, w.LogStart, w.LocalStart), w.Counted)
	l.st.mu.firstOpen = l.mu.producers.firstOpen()
	l.st.publishLocked()
	chain := l.chain.Load().from(w.LogStart)
	l.chain.Store(&chain)
}

// list reads the partition's directory, and finishes what the last process began
// to delete or to write. Every name that we or Kafka give a file has its line
// here (hazard C12):
//
//	*.log                the segment
//	*.index and others   taken if their segment is there, else removed
//	*.snapshot           kept for every segment and the newest; others removed
//	*.deleted            no part of the log any more; removed
//	*.tmp                was to replace another file, which still is as it was; removed
//	*.cleaned            compaction's unfinished work; removed
//	.sync-failed         an fsync failed: what was not flushed is written again
func (l *Log) list() (listing, error) {
	entries, err := l.dir.fs.ReadDir(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return listing{fresh: true}, l.dir.fs.MkdirAll(l.path, 0o755)
	}
	if err != nil {
		return listing{}, err
	}
	var (
		ls      listing
		byBase  = map[int64]*segment{}
		orphans []string
	)
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasSuffix(name, deletedSuffix):
			l.dir.deleteLater(filepath.Join(l.path, name), 0)
			continue
		case strings.HasSuffix(name, tmpSuffix), strings.HasSuffix(name, ".cleaned"):
			if err := removeIfThere(l.dir.fs, filepath.Join(l.path, name)); err != nil {
				return ls, err
			}
			continue
		case e.IsDir():
			continue
		}
		offset, suffix, ok := parseName(name)
		switch {
		case name == syncFailedFile:
			ls.unsynced = true
		case !ok:
		case suffix == logSuffix:
			info, err := e.Info()
			if err != nil {
				return ls, err
			}
			s := l.newSegment(offset)
			s.size = info.Size()
			byBase[offset] = s
			ls.segments = append(ls.segments, s)
		case suffix == snapshotSuffix:
			ls.snapshots = append(ls.snapshots, offset)
		case suffix == offsetSuffix || suffix == timeSuffix || suffix == txnSuffix:
			orphans = append(orphans, name) // its .log comes later, if at all
		}
	}
	for _, name := range orphans {
		offset, suffix, _ := parseName(name)
		s := byBase[offset]
		if s == nil {
			// Now: a segment that begins here may come before any delay is over.
			if err := removeIfThere(l.dir.fs, filepath.Join(l.path, name)); err != nil {
				return ls, err
			}
		} else if suffix == txnSuffix {
			s.hasTxns.Store(true)
			l.aborts.Store(true)
		}
	}
	for i, s := range ls.segments {
		if s.end = never; i+1 < len(ls.segments) {
			s.end = ls.segments[i+1].base
		}
	}
	ls.snapshots, err = l.dropStraySnapshots(ls.snapshots, byBase)
	return ls, err
}

// dropStraySnapshots keeps the newest snapshot and those of segments.
func (l *Log) dropStraySnapshots(offsets []int64, byBase map[int64]*segment) ([]int64, error) {
	slices.Sort(offsets)
	kept := offsets[:0]
	for i, o := range offsets {
		if byBase[o] == nil && i+1 < len(offsets) {
			if err := removeIfThere(l.dir.fs, l.snapshotPath(o)); err != nil {
				return nil, err
			}
			continue
		}
		kept = append(kept, o)
	}
	return kept, nil
}

func (l *Log) checkTopicID(fresh bool, o opening) error {
	if !fresh {
		id, ok, err := readTopicID(l.dir.fs, l.path)
		switch known := l.topicID != [16]byte{}; {
		case errors.Is(err, errTopicIDFile) && o.recoveryPoint == 0: // it is durable before any batch is
		case errors.Is(err, errTopicIDEmpty) && known:
			l.log.Warn(partitionFile+" was empty, as after a power loss; written anew", "topic_id", formatID(l.topicID))
		case errors.Is(err, errTopicIDFile) && known:
			return fmt.Errorf("%w: if these are the logs of topic id %s, delete that file and restart; if not, move the directory away",
				err, formatID(l.topicID))
		case err != nil:
			return err
		}
		if ok && l.topicID != [16]byte{} && id != l.topicID {
			return fmt.Errorf("%w: %s", ErrTopicID, formatID(id))
		}
		if ok {
			l.topicID = id
			return nil
		}
	}
	if l.topicID == [16]byte{} {
		return nil
	}
	// Durable with the first flush: until then the log has nothing to lose.
	l.mu.newDir = true
	return writeTopicID(l.dir.fs, l.path, l.topicID, false)
}

func (l *Log) newSegment(base int64) *segment {
	s := &segment{dir: l.path, base: base, end: never, firstTime: -1}
	if j := l.opts.Load().SegmentJitterMs; j > 0 {
		s.jitter = rand.Int64N(j)
	}
	return s
}

// createSegment makes the empty segment that begins at base. A file of that name
// is what a crash left of the same attempt, or of a log since cut: it is
// emptied.
func (l *Log) createSegment(base int64) (*segment, error) {
	s := l.newSegment(base)
	f, err := l.dir.fs.OpenFile(s.path(logSuffix), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	s.index.Store(newIndex(base))
	l.dir.handles.adopt(s, f).unpin()
	return s, nil
}

// openEpochs reads the epoch chain; a damaged one is made anew from the batches.
func (l *Log) openEpochs(ls listing, o opening) error {
	name := filepath.Join(l.path, epochFile)
	b, err := readFile(l.dir.fs, name, smallFile)
	if err != nil {
		return err
	}
	var chain epochs
	if b != nil {
		chain, err = parseEpochCheckpoint(b)
	} else {
		err = needEpochs(ls)
	}
	l.mu.durableEpoch = -1
	if err == nil && b != nil {
		l.mu.durableEpoch = chain.latest()
	} else if err != nil {
		if chain, err = l.rebuildEpochs(ls); err != nil {
			return err
		}
		if b == nil && (!o.known || o.recoveryPoint <= ls.segments[0].base) {
			// A replica writes its epochs before its first recovery point, and was killed before.
			l.log.Debug("leader epochs were not written yet; made from the batches", "epochs", len(chain))
		} else {
			l.log.Warn("leader epochs were damaged or missing; made anew from the batches", "epochs", len(chain))
		}
	}
	l.chain.Store(&chain)
	return nil
}

// needEpochs is an error if there are batches, which must have an epoch.
func needEpochs(ls listing) error {
	for _, s := range ls.segments {
		if s.size > 0 {
			return errCheckpoint
		}
	}
	return nil
}

// openProducers loads the newest good snapshot at or below from, and takes note
// of the batches between it and to.
func (l *Log) openProducers(snapshots []int64, from, to int64) error {
	at := l.st.mu.first().base
	for i := len(snapshots) - 1; i >= 0; i-- {
		if snapshots[i] > from {
			continue
		}
		b, err := readFile(l.dir.fs, filepath.Join(l.path, baseName(snapshots[i])+snapshotSuffix), smallFile)
		if err != nil {
			return err
		}
		if err := l.mu.producers.loadSnapshot(b); err != nil {
			l.log.Warn("a producer snapshot is damaged; an older one is used", "offset", snapshots[i], "err", err)
			continue
		}
		at = snapshots[i]
		break
	}
	l.mu.producers.expire(l.dir.cfg.Now().UnixMilli(), l.opts.Load().ProducerExpirationMs)
	return l.replay(at, to)
}
