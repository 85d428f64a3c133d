package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"firn/segment"
)

const (
	// publishSegments and publishAfter bound how much is in the store before a
	// manifest names it: one manifest and one pointer move carry all of it.
	publishSegments = 16
	publishAfter    = 5 * time.Second
	// uploadMemory is what an upload holds besides its index: the block that is
	// being scanned, and what a store's client buffers of two bodies.
	uploadMemory = 8 << 20
	// cleanupTimeout bounds the removal of what a failed attempt left. What
	// stays is the sweep's.
	cleanupTimeout = 10 * time.Second
)

// Step does the next thing that brings the partition's archive up to its log:
// settle a pointer write, seal the active segment, upload one segment, or
// publish what is uploaded. It starts nothing that outlives it. more tells that
// another step is worth its while at once; otherwise Status says what is waited for.
func (l *Log) Step(ctx context.Context, now time.Time) (more bool, err error) {
	ld := l.lead.Load()
	if ld == nil {
		return false, nil
	}
	if !l.step.tryLock() {
		return false, nil
	}
	defer l.step.unlock()
	ctx, done := ld.join(ctx)
	defer done()
	more, reason, err := l.stepLed(ctx, ld, now)
	if errors.Is(err, ErrFenced) {
		l.fenced(ld, err)
		return false, nil
	}
	if err != nil && ld.ctx.Err() != nil {
		return false, nil // the epoch is over: nobody waits for this
	}
	ld.note(reason, err, l.a.cfg.Now(), l.jitter)
	return more, err
}

// The reasons why nothing goes up that are not told by an error.
const (
	reasonNotLeading = "another broker leads the partition"
	reasonDisabled   = "remote.storage.enable is false"
	reasonNoCopy     = "remote.log.copy.disable is true"
	reasonActive     = "everything sealed is archived"
	reasonUnsynced   = "the sealed segment is not on disk durably yet"
	reasonCommit     = "the sealed segment is not committed yet: a replica is behind"
	reasonTxn        = "a transaction that began in or before the segment is open"
	reasonLag        = "remote.copy.lag.ms and remote.copy.lag.bytes hold it back"
)

func (l *Log) stepLed(ctx context.Context, ld *leadership, now time.Time) (more bool, reason string, err error) {
	if err := l.a.Disowned(); err != nil {
		return false, "", err
	}
	policy := l.policy.Load()
	if err := l.ready(ctx, ld); err != nil {
		return false, "", err
	}
	var next *segment.SealedSegment
	switch {
	case !policy.Enabled:
		reason = reasonDisabled
	case policy.CopyDisabled:
		reason = reasonNoCopy
	default:
		if err := l.rollIfDue(policy, now); err != nil {
			return false, "", fmt.Errorf("seal the active segment: %w", err)
		}
		if next, reason, err = l.candidate(ld, policy, now); err != nil {
			return false, "", err
		}
	}
	n, since := ld.waiting()
	if n > 0 && (next == nil || n >= publishSegments || now.Sub(since) >= publishAfter) {
		return next != nil, reason, l.publishDue(ctx, ld, now)
	}
	if next == nil {
		return false, reason, nil
	}
	if err := l.upload(ctx, ld, *next, now); err != nil {
		return false, "", fmt.Errorf("upload segment %d: %w", next.Base, err)
	}
	return true, "", nil
}

// waiting is how many segments are uploaded and not yet named, and since when.
func (ld *leadership) waiting() (int, time.Time) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	return len(ld.mu.uploaded), ld.mu.since
}

// end is where the next segment to be uploaded goes on.
func (l *Log) uploadedEnd(ld *leadership) int64 {
	end := l.local.Offsets().LogStart
	if ptr := l.view.Load().ptr; ptr.Exists() {
		end = max(end, ptr.ArchivedEnd)
	}
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if n := len(ld.mu.uploaded); n > 0 {
		end = max(end, ld.mu.uploaded[n-1].End)
	}
	return end
}

func (l *Log) rollIfDue(policy *Policy, now time.Time) error {
	a := l.local.ActiveInfo()
	if !policy.rollDue(l.age(a.FirstAppend, now), a.Bytes, l.jitter) {
		return nil
	}
	return l.local.Roll(now)
}

// age is how long ago a segment had its first append, by the broker's clock. Of
// one that an earlier process began, it is how long the log has been open.
func (l *Log) age(firstAppend int64, now time.Time) time.Duration {
	if firstAppend == 0 {
		return now.Sub(l.opened)
	}
	return now.Sub(time.UnixMilli(firstAppend))
}

// candidate is the sealed segment that holds the archived end, if it may go up
// (T1); otherwise the reason why it may not.
func (l *Log) candidate(ld *leadership, policy *Policy, now time.Time) (*segment.SealedSegment, string, error) {
	from := l.uploadedEnd(ld)
	if l.local.ActiveInfo().Base <= from {
		return nil, reasonActive, nil
	}
	sealed, err := l.local.Sealed(from)
	if err != nil {
		return nil, "", err
	}
	if len(sealed) == 0 {
		return nil, reasonActive, nil
	}
	s := &sealed[0]
	o := l.local.Offsets()
	switch {
	case s.Base > from:
		return nil, "", fmt.Errorf("%w: offsets from %d on are to be archived, the local log begins at %d", errHole, from, s.Base)
	case !s.Synced:
		return nil, reasonUnsynced, nil
	case s.End > o.HighWatermark:
		return nil, reasonCommit, nil
	case s.End > o.Stable:
		return nil, reasonTxn, nil
	}
	after := l.local.ActiveInfo().Bytes
	for i := range sealed[1:] {
		after += sealed[1+i].Size
	}
	if !policy.mayCopy(now.Sub(time.UnixMilli(s.MaxTimestamp)), after) {
		return nil, reasonLag, nil
	}
	return s, "", nil
}

var errHole = errors.New("tiering: hole between archive and local log")

// upload brings one segment into the store, under keys of its own (T2). It
// counts for nothing until a manifest and the pointer name it.
func (l *Log) upload(ctx context.Context, ld *leadership, s segment.SealedSegment, now time.Time) (err error) {
	file, err := l.local.OpenSealed(s.Base)
	if err != nil {
		return err
	}
	defer file.Close()
	need := min(uploadMemory+int64(len(file.OffsetIndex)+len(file.TimeIndex)+len(file.TxnIndex)+len(file.Producers))*2, l.a.cfg.UploadBytes)
	if err := l.a.budget.Acquire(ctx, need); err != nil {
		return err
	}
	defer l.a.budget.Release(need)

	entry, index, err := l.describe(ld, file)
	if err != nil {
		return err
	}
	ld.track(entry.ID)
	defer func() {
		if err != nil {
			l.discard(ctx, entry.LogKey(l.part), entry.IndexKey(l.part))
			ld.untrack(entry.ID)
		}
	}()
	if err := l.a.failpoint("tiering.upload.before"); err != nil {
		return err
	}
	start := time.Now()
	if err := l.putPair(ctx, &entry, index, file); err != nil {
		return err
	}
	if err := l.a.failpoint("tiering.upload.after"); err != nil {
		return err
	}
	ld.mu.Lock()
	if len(ld.mu.uploaded) == 0 {
		ld.mu.since = now
	}
	ld.mu.uploaded = append(ld.mu.uploaded, entry)
	ld.mu.Unlock()
	l.a.metrics.uploaded(entry.Size+entry.IdxSize, time.Since(start))
	l.a.metrics.uploads.WithLabelValues("ok").Inc()
	return nil
}

// describe reads the segment once, and makes its entry and its .idx object.
func (l *Log) describe(ld *leadership, file *segment.SealedFile) (Entry, []byte, error) {
	s := &file.Info
	buf := l.a.blocks.Get().(*[BlockSize]byte)
	found, err := scan(file, s.Size, buf[:])
	l.a.blocks.Put(buf)
	if errors.Is(err, ErrCorrupt) {
		return Entry{}, nil, l.quarantine(file, found.whole, err)
	}
	if err != nil {
		return Entry{}, nil, err
	}
	if found.Base < s.Base || found.End != s.End || found.Records != file.Records {
		return Entry{}, nil, l.quarantine(file, 0, fmt.Errorf("%w: segment of offsets [%d, %d) holds [%d, %d)", ErrCorrupt, s.Base, s.End, found.Base, found.End))
	}
	x := Index{
		Topic: l.part.ID, Partition: l.part.Num, FileBase: s.Base, End: s.End, BaseTime: found.BaseTime, MaxTime: found.MaxTime,
		Size: s.Size, Records: found.Records, Aborted: len(file.TxnIndex) > 0, LogCRC: found.CRC,
		OffsetIndex: file.OffsetIndex, TimeIndex: file.TimeIndex, TxnIndex: file.TxnIndex,
		Producers: file.Producers, Epochs: file.Chain, Blocks: found.Blocks, Units: found.Units, Starts: found.Starts,
	}
	index := x.AppendTo(nil)
	if _, err := DecodeIndex(index); err != nil { // what we could not read, we don't write
		return Entry{}, nil, err
	}
	base := max(s.Base, l.uploadedEnd(ld))
	e := Entry{
		Base: base, End: s.End, FileBase: s.Base, ObjectBase: s.Base, BaseTime: x.BaseTime, MaxTime: x.MaxTime,
		Size: x.Size, Records: x.Records, ID: l.a.cfg.Random(), Epoch: ld.epoch, Aborted: x.Aborted,
		LogCRC: x.LogCRC, IdxCRC: Checksum(index), IdxSize: int64(len(index)), Epochs: x.EpochsOf(base, s.End),
	}
	return e, index, nil
}

// putPair puts both objects of a segment, at the same time.
func (l *Log) putPair(ctx context.Context, e *Entry, index []byte, file *segment.SealedFile) error {
	g, ctx := errgroup.WithContext(ctx)
	b, done := l.a.copies.watch(ctx, file)
	defer done()
	ctx = b.ctx
	put := func(key string, body io.ReaderAt, size int64) {
		g.Go(func() error {
			err := l.a.store.Put(ctx, key, body, size)
			if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
				return fmt.Errorf("%w: %w", cause, err) // whichever of the two hears of it first
			}
			return err
		})
	}
	put(e.LogKey(l.part), b, e.Size)
	put(e.IndexKey(l.part), bytes.NewReader(index), e.IdxSize)
	return g.Wait()
}

// discard removes objects that nothing names and nothing will: an attempt that
// failed before its pointer write. It goes on when ctx has ended, for a while.
func (l *Log) discard(ctx context.Context, keys ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for _, key := range keys {
		if err := l.a.store.Delete(ctx, key); err != nil {
			l.a.log.Debug("an orphan is left to the sweep", "topic", l.part.Topic, "partition", l.part.Num, "key", key, "err", err)
			return
		}
	}
}
