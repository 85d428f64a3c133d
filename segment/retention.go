package segment

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"time"
)

// SegmentInfo is what retention needs to know of a segment.
type SegmentInfo struct {
	Base, End    int64
	Size         int64
	MaxTimestamp int64 // -1 without one
	Active       bool
}

// Retain tells where the log start belongs by o's retention: Kafka's rules. The
// segments are all of the log, the active one last. Segments go whole, from the
// oldest on, up to the first that stays, and never past the high watermark:
//
//   - retention.ms: a segment whose largest timestamp is older;
//   - retention.bytes: a segment without which the log is still as large.
//
// The reason is for a log line, "" if nothing goes. That an expired active
// segment has to be sealed first is the caller's business: its End is then the
// new log start.
func Retain(segments []SegmentInfo, o Options, now, hw int64) (newStart int64, reason string) {
	o = o.withDefaults()
	total := int64(0)
	for _, s := range segments {
		total += s.Size
	}
	newStart = -1
	for _, s := range segments {
		old := o.RetentionMs >= 0 && s.MaxTimestamp >= 0 && now-s.MaxTimestamp > o.RetentionMs
		large := o.RetentionBytes >= 0 && total-s.Size >= o.RetentionBytes && !s.Active
		if s.End > hw || s.Size == 0 || !old && !large {
			break
		}
		total -= s.Size
		newStart = s.End
		if reason == "" && old {
			reason = "retention.ms"
		} else if reason == "" {
			reason = "retention.bytes"
		}
	}
	return newStart, reason
}

// Segments lists the segments, the active one last.
func (l *Log) Segments() ([]SegmentInfo, error) {
	if err := l.readable(); err != nil {
		return nil, err
	}
	s := l.st.load()
	infos := make([]SegmentInfo, 0, len(s.sealed)+1)
	for _, seg := range s.sealed {
		ts, err := l.maxTime(seg)
		if err != nil {
			return nil, err
		}
		infos = append(infos, SegmentInfo{Base: seg.base, End: seg.end, Size: seg.size, MaxTimestamp: ts})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maxTime := int64(-1)
	if x := s.active.index.Load(); x != nil {
		maxTime = x.maxTime
	}
	return append(infos, SegmentInfo{Base: s.active.base, End: s.End, Size: s.size, MaxTimestamp: maxTime, Active: true}), nil
}

// maxTime is the largest timestamp of a sealed segment, by the last entry of its
// time index, unchecked: who deletes by it asks checkedMaxTime.
func (l *Log) maxTime(s *segment) (int64, error) {
	if known := s.maxTime.Load(); known != 0 {
		return known - 2, nil
	}
	if s.index.Load() == nil {
		if ts, ok := l.lastTime(s); ok {
			s.maxTime.Store(ts + 2)
			return ts, nil
		}
	}
	return l.checkedMaxTime(s)
}

// lastTime reads the last entry of a time index file, and nothing else.
func (l *Log) lastTime(s *segment) (int64, bool) {
	f, err := l.dir.fs.OpenFile(s.path(timeSuffix), os.O_RDONLY, 0)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil || size == 0 || size%timeEntrySize != 0 {
		return 0, false
	}
	var e [timeEntrySize]byte
	if readFull(f, e[:], size-timeEntrySize) != nil {
		return 0, false
	}
	ts := int64(binary.BigEndian.Uint64(e[:]))
	return ts, ts > 0
}

// checkedMaxTime is maxTime by an index that agrees with the batches.
func (l *Log) checkedMaxTime(s *segment) (int64, error) {
	x, err := l.indexOf(s)
	if err != nil {
		return 0, l.readError(s, err)
	}
	ts := int64(-1)
	if n := x.times.Len(); n > 0 {
		ts = x.times.At(n - 1).Time
	}
	s.maxTime.Store(ts + 2)
	return ts, nil
}

// ApplyRetention does what Retain says for a log without an archive, and tells
// where the log start went; -1 if it stayed. An active segment that is expired
// is sealed first.
func (l *Log) ApplyRetention(ctx context.Context, now time.Time) (int64, error) {
	segments, start, reason, err := l.retain(now)
	if err != nil {
		return -1, err
	}
	if start < 0 {
		_, err := l.DeleteTo(l.st.load().LogStart) // what a crash left of an earlier one
		return -1, err
	}
	if last := segments[len(segments)-1]; start == last.End && last.Size > 0 {
		if err := l.Roll(now); err != nil {
			return -1, err
		}
	}
	if err := l.SetLogStart(ctx, start); err != nil {
		return -1, err
	}
	l.log.Info("retention moved the log start", "offset", start, "reason", reason)
	return start, nil
}

// retain asks Retain, and again if a timestamp that it went by was wrong: what is
// deleted can't be had back.
func (l *Log) retain(now time.Time) (segments []SegmentInfo, start int64, reason string, err error) {
	for {
		if segments, err = l.Segments(); err != nil {
			return nil, -1, "", err
		}
		s := l.st.load()
		start, reason = Retain(segments, *l.opts.Load(), now.UnixMilli(), s.HighWatermark)
		right := true
		for i := 0; i < len(segments) && segments[i].End <= start && !segments[i].Active; i++ {
			seg := s.find(segments[i].Base)
			if seg == nil || seg == s.active || seg.base != segments[i].Base {
				continue
			}
			ts, err := l.checkedMaxTime(seg)
			if err != nil {
				return nil, -1, "", err
			}
			right = right && ts == segments[i].MaxTimestamp
		}
		if right {
			return segments, start, reason, nil
		}
	}
}

// SetLogStart moves the log start up, durably. A log that is not archived drops
// the segments that lie wholly below it. It refuses to pass the high watermark:
// ErrOffsetOutOfRange.
func (l *Log) SetLogStart(_ context.Context, offset int64) error {
	l.starts.Lock()
	defer l.starts.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	o := l.st.load()
	if offset > o.HighWatermark {
		return fmt.Errorf("%w: log start %d past the high watermark %d", ErrOffsetOutOfRange, offset, o.HighWatermark)
	}
	if offset > o.LogStart {
		if err := l.persistStart(offset); err != nil {
			return err
		}
	}
	if l.opts.Load().Archived {
		return nil
	}
	_, err := l.DeleteTo(offset)
	return err
}

// SetRemoteLogStart takes over the log start that the archive's pointer names: it
// may lie below the local start, and was durable there before (T4). It never
// moves down.
func (l *Log) SetRemoteLogStart(offset int64) error {
	l.starts.Lock()
	defer l.starts.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	o := l.st.load()
	if offset <= o.LogStart {
		return nil
	}
	return l.persistStart(min(offset, o.End))
}

// AdoptLogStart sets the log start to what the archive's pointer names, up or
// down: for the open of an archived log, whose own note of it may be older or
// missing. A plain log's start can't be below its local start.
func (l *Log) AdoptLogStart(offset int64) error {
	l.starts.Lock()
	defer l.starts.Unlock()
	o := l.st.load()
	if offset > o.End || !l.opts.Load().Archived && offset < o.LocalStart {
		return fmt.Errorf("%w: log start %d, log is %d to %d", ErrOffsetOutOfRange, offset, o.LocalStart, o.End)
	}
	if offset == o.LogStart {
		return nil
	}
	l.nextStart.Store(offset)
	l.publishStart(offset)
	return l.dir.persistStarts()
}

// persistStart makes offset the log start: durably, then visibly.
func (l *Log) persistStart(offset int64) error {
	before := l.nextStart.Swap(offset)
	if err := l.dir.persistStarts(); err != nil {
		l.nextStart.Store(before)
		return err
	}
	l.publishStart(offset)
	return nil
}

func (l *Log) publishStart(offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.st.mu.Lock()
	l.st.mu.LogStart = offset
	l.st.mu.HighWatermark = max(l.st.mu.HighWatermark, offset)
	l.st.publishLocked()
	l.st.mu.Unlock()
	chain := l.chain.Load().from(offset)
	l.chain.Store(&chain)
}

// DeleteTo drops the local segments that lie wholly below offset, and returns the
// local start after it. It does not move the log start: of a log with an archive
// the caller has made sure that what goes is archived (T4). The active segment
// stays.
func (l *Log) DeleteTo(below int64) (int64, error) {
	l.files.Lock()
	defer l.files.Unlock()
	gone, start, err := l.dropBelow(below)
	if err != nil || len(gone) == 0 {
		return start, err
	}
	// Readers and appends go on meanwhile: nobody knows these files any more.
	for _, s := range gone {
		l.dir.handles.drop(s)
	}
	if err := l.removeSegments(gone); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return start, l.failLocked(ErrFailed, fmt.Errorf("delete: %w", err))
	}
	return start, nil
}

// dropBelow takes the segments below offset out of the log.
func (l *Log) dropBelow(below int64) (gone []*segment, start int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil, 0, ErrClosed
	}
	if err := l.Err(); err != nil {
		return nil, 0, err
	}
	w := &l.st.mu.snapshot
	if !l.opts.Load().Archived {
		below = min(below, w.LogStart)
	}
	n := 0
	for n < len(w.sealed) && w.sealed[n].end <= below {
		n++
	}
	if n == 0 {
		return nil, w.LocalStart, nil
	}
	// What goes can't tell its epochs any more: the chain has to, after a power loss too.
	if l.EpochAt(w.sealed[n-1].end-1) > l.mu.durableEpoch {
		if err := l.settleEpochsLocked(); err != nil {
			return nil, w.LocalStart, l.ioErrorLocked("write "+epochFile, err)
		}
	}
	if err := l.dir.failpoint("segment.delete"); err != nil {
		return nil, w.LocalStart, l.ioErrorLocked("delete", err)
	}
	gone = w.sealed[:n]
	l.st.mu.Lock()
	w.view = &view{sealed: append([]*segment{}, w.sealed[n:]...), active: w.active}
	w.LocalStart = w.first().base
	l.st.publishLocked()
	l.st.mu.Unlock()
	kept := l.mu.unsynced[:0:0]
	for _, s := range l.mu.unsynced {
		if s.base >= w.LocalStart {
			kept = append(kept, s)
		}
	}
	l.mu.unsynced = kept
	return gone, w.LocalStart, nil
}
