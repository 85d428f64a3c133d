package segment

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"firn/segment/batch"
)

// Append appends the batches in b, of a client one alone, as the leader of
// o.Epoch. It checks them, stamps base offsets, epoch and, under LogAppendTime,
// timestamps into b in place, and writes b with one write: all of b is appended or
// nothing. A producer's repetition is answered with the offsets of the first time (E1).
func (l *Log) Append(b []byte, o AppendOptions) (Appended, error) {
	if o.Origin == OriginClient && l.dir.space.low.Load() {
		return Appended{}, errReserve
	}
	opts := l.opts.Load()
	b, err := prepare(b, o, opts)
	if err != nil {
		return Appended{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return Appended{}, err
	}
	if latest := l.LatestEpoch(); o.Epoch < latest {
		return Appended{}, fmt.Errorf("%w: %d, latest is %d", ErrFenced, o.Epoch, latest) // R2
	}
	next := l.st.mu.End
	if o.Origin == OriginClient {
		if a, ok := l.duplicateLocked(b); ok {
			return a, nil
		}
	}
	a := Appended{First: next, AppendTime: -1}
	if opts.TimestampType == batch.LogAppendTime {
		a.AppendTime = o.Now
	}
	p := &l.mu.producers
	p.begin()
	maxTime := int64(-1)
	for rest := b; len(rest) > 0; {
		var bt batch.Batch
		bt, rest, _ = batch.Next(rest)
		last := next + int64(bt.LastOffsetDelta())
		if a.AppendTime >= 0 && !bt.IsControl() {
			bt.SetLogAppendTime(a.AppendTime)
		}
		if err := p.note(bt, next, last, o.Origin, true); err != nil {
			return Appended{}, err
		}
		bt.SetBaseOffset(next)
		bt.SetLeaderEpoch(o.Epoch)
		maxTime = max(maxTime, bt.MaxTimestamp())
		next = last + 1
	}
	a.Last = next - 1
	if int64(len(b)) > opts.SegmentBytes {
		return Appended{}, fmt.Errorf("%w: %d bytes", ErrTooLargeForSegment, len(b))
	}
	if err := l.writeLocked(b, a.Last, maxTime, opts); err != nil {
		return Appended{}, err
	}
	a.LogStart = l.st.mu.LogStart
	return a, nil
}

// duplicateLocked answers a client's append that repeats one which the log remembers.
func (l *Log) duplicateLocked(b batch.Batch) (Appended, bool) {
	if !b.HasProducer() {
		return Appended{}, false
	}
	d, ok := l.mu.producers.duplicate(b)
	if !ok {
		return Appended{}, false
	}
	a := Appended{First: d.lastOffset - int64(d.delta), Last: d.lastOffset, AppendTime: -1, LogStart: l.st.mu.LogStart, Duplicate: true}
	if l.opts.Load().TimestampType == batch.LogAppendTime {
		a.AppendTime = d.time
	}
	return a, true
}

// ErrOutOfOrder: a replica's batches do not go on where its log ends.
var ErrOutOfOrder = errors.New("segment: batches do not follow the log's end")

// AppendReplica appends batches as their leader sent them. A last batch that is
// not whole is left out: a fetch may end in the middle of one. What is more than
// a segment takes is written in pieces; after an error the first of them may be
// there. A single batch is never too large: its leader has it, so must we.
func (l *Log) AppendReplica(b []byte) (Appended, error) {
	whole, err := verifyReplica(b)
	a := Appended{First: -1, Last: -1, AppendTime: -1}
	if err != nil || len(whole) == 0 {
		return a, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return Appended{}, err
	}
	opts := l.opts.Load()
	for len(whole) > 0 {
		piece := whole
		if int64(len(whole)) > opts.SegmentBytes {
			piece = firstBatches(whole, opts.SegmentBytes)
		}
		whole = whole[len(piece):]
		first, last, err := l.appendReplicaLocked(piece, opts)
		if err != nil {
			return Appended{}, err
		}
		if a.First < 0 {
			a.First = first
		}
		a.Last = last
	}
	a.LogStart = l.st.mu.LogStart
	return a, nil
}

// firstBatches are the batches at the beginning of b that are no more than max
// bytes together, at least one.
func firstBatches(b []byte, max int64) []byte {
	n := 0
	for rest := b; len(rest) > 0; {
		var bt batch.Batch
		bt, rest, _ = batch.Next(rest)
		if n > 0 && int64(n+len(bt)) > max {
			break
		}
		n += len(bt)
	}
	return b[:n:n]
}

// appendReplicaLocked appends what goes into one segment.
func (l *Log) appendReplicaLocked(b []byte, opts *Options) (first, last int64, err error) {
	next, latest := l.st.mu.End, l.LatestEpoch()
	first = -1
	p := &l.mu.producers
	p.begin()
	maxTime := int64(-1)
	for rest := b; len(rest) > 0; {
		var bt batch.Batch
		bt, rest, _ = batch.Next(rest)
		if bt.BaseOffset() < next {
			return 0, 0, fmt.Errorf("%w: batch at %d, log ends at %d", ErrOutOfOrder, bt.BaseOffset(), next)
		}
		if bt.LeaderEpoch() < latest {
			return 0, 0, fmt.Errorf("%w: batch of epoch %d, latest is %d", ErrFenced, bt.LeaderEpoch(), latest)
		}
		if err := p.note(bt, bt.BaseOffset(), bt.LastOffset(), OriginCoordinator, false); err != nil {
			return 0, 0, err
		}
		if first < 0 {
			first = bt.BaseOffset()
		}
		latest = bt.LeaderEpoch()
		maxTime = max(maxTime, bt.MaxTimestamp())
		next = bt.NextOffset()
	}
	return first, next - 1, l.writeLocked(b, next-1, maxTime, opts)
}

// verifyReplica returns the whole batches of b, verified and in order.
func verifyReplica(b []byte) ([]byte, error) {
	n, next := 0, int64(0)
	for rest := b; len(rest) > 0; {
		bt, r, err := batch.Next(rest)
		if errors.Is(err, batch.ErrShort) {
			break
		}
		if err != nil {
			return nil, wrapBatch(err)
		}
		if err := batch.Verify(bt); err != nil {
			return nil, wrapBatch(err)
		}
		if bt.BaseOffset() < next {
			return nil, fmt.Errorf("%w: batch at %d after %d", ErrOutOfOrder, bt.BaseOffset(), next)
		}
		next = bt.NextOffset()
		n += len(bt)
		rest = r
	}
	return b[:n:n], nil
}

// writeLocked appends the stamped and noted batches in b, which end at offset
// last. When it fails, nothing has changed that a reader or the next append
// could see.
func (l *Log) writeLocked(b []byte, last, maxTime int64, opts *Options) error {
	if err := l.rollIfDueLocked(len(b), last, maxTime, opts); err != nil {
		return err
	}
	if err := l.dir.failpoint("segment.append"); err != nil {
		return l.ioErrorLocked("append", err)
	}
	s, pos := l.st.mu.active, l.st.mu.size
	h, err := l.dir.handles.pin(s)
	if err != nil {
		return l.ioErrorLocked("append", err)
	}
	defer h.unpin()
	_, err = h.file.WriteAt(b, pos)
	if err == nil {
		err = l.dir.failpoint("segment.written")
	}
	if err != nil {
		return l.writeErrorLocked(h, pos, err)
	}
	if l.mu.noSpace {
		l.mu.noSpace = false
		l.log.Info("disk has space again: appends are accepted")
	}
	l.noteWrittenLocked(s, b, pos, opts)
	l.dir.spend(len(b))
	return nil
}

// noteWrittenLocked takes the batches in b, which are in the file at pos, into
// the log.
func (l *Log) noteWrittenLocked(s *segment, b []byte, pos int64, opts *Options) {
	x, r := s.index.Load(), s.tail()
	at, next := pos, int64(0)
	for rest := b; len(rest) > 0; {
		var bt batch.Batch
		bt, rest, _ = batch.Next(rest)
		if at == 0 {
			s.firstTime = bt.MaxTimestamp()
		}
		if bt.LeaderEpoch() > l.LatestEpoch() {
			l.learnEpoch(bt)
		}
		x.add(bt.LastOffset(), bt.MaxTimestamp(), at, len(bt), opts.IndexIntervalBytes)
		r.add(bt.BaseOffset(), at)
		at += int64(len(bt))
		next = bt.NextOffset()
	}
	now := int64(0)
	if s.firstWall == 0 || l.mu.oldestDirty == 0 {
		now = l.dir.cfg.Now().UnixMilli()
	}
	if s.firstWall == 0 {
		s.firstWall = now
	}
	p := &l.mu.producers
	p.commit()

	l.st.mu.Lock()
	aborted := len(s.aborted)
	l.st.mu.decided, s.aborted = p.decide(l.st.mu.decided, s.aborted)
	l.st.mu.firstOpen = p.firstOpen()
	l.st.mu.End, l.st.mu.size = next, at
	l.recountLocked()
	l.st.publishLocked()
	due := l.st.mu.Counted < next
	l.st.mu.Unlock()

	if len(s.aborted) > aborted {
		s.hasTxns.Store(true)
		l.aborts.Store(true)
	}
	if due {
		l.kickLocked()
	}
	if l.mu.oldestDirty == 0 {
		l.mu.oldestDirty = now
		if opts.FlushMs != never {
			l.dir.chores.flushLater(l)
		}
	}
}

var (
	errReserve = fmt.Errorf("%w: below log.dir.min.free.bytes", ErrNoSpace)
	errFull    = fmt.Errorf("%w: disk is full", ErrNoSpace)
)

// writeErrorLocked cuts off what a failed write may have left. A full disk is
// nothing more: the next append tries again. Any other error ends the log (S4).
func (l *Log) writeErrorLocked(h *handle, pos int64, err error) error {
	cut := h.file.Truncate(pos)
	if !noSpace(err) || cut != nil {
		return l.failLocked(ErrFailed, errors.Join(err, cut))
	}
	l.noSpaceLocked(err)
	return errFull
}

func (l *Log) noSpaceLocked(err error) {
	l.dir.space.full.Store(true)
	l.dir.space.refused.Add(1)
	if !l.mu.noSpace {
		l.mu.noSpace = true
		l.log.Error("disk is full: appends are refused until there is space", "err", err)
	}
}

// ioErrorLocked is what a failed call means for the log: a full disk will have
// space again, anything else is the end (S4).
func (l *Log) ioErrorLocked(doing string, err error) error {
	if noSpace(err) {
		l.noSpaceLocked(err)
		return errFull
	}
	if noFiles(err) {
		return fmt.Errorf("%w: %s: %w", ErrNoSpace, doing, err)
	}
	return l.failLocked(ErrFailed, fmt.Errorf("%s: %w", doing, err))
}

// noFiles tells that there is no free descriptor, which will pass.
func noFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// spaceError marks what will pass when there is space.
func spaceError(err error) error {
	if err != nil && noSpace(err) && !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// tail is the ring of the active segment, made for its first append.
func (s *segment) tail() *ring {
	if r := s.ring.Load(); r != nil {
		return r
	}
	r := new(ring)
	s.ring.Store(r)
	return r
}

// tooFar tells that offset last can't be written relative to base.
func tooFar(base, last int64) bool { return last-base > math.MaxInt32 }
