package tiering

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"firn/segment"
)

// ErrDiverged: the local log has another history than the archive, or a hole lies
// between them, and it may hold committed batches past the archived end. It is not discarded before the
// replica has given itself up (S7); then RestartAtArchivedEnd does it.
var ErrDiverged = fmt.Errorf("tiering: %w", segment.ErrOtherHistory)

// leadership is what a Log knows and does in one leader epoch. None of it
// outlives the epoch (T2).
type leadership struct {
	epoch int32
	began time.Time
	ctx   context.Context // ends with the epoch
	end   context.CancelCauseFunc

	// Guarded by Log.pub.
	ptr       Pointer   // as read back, or written, in this epoch
	manifest  *Manifest // that ptr names; nil until it is loaded, or without pointer
	unsettled *move     // a pointer write of unknown outcome (Z3)
	described bool      // topic.json is as it should be
	useless   []garbage // manifests and pages that nothing names any more
	doomed    []doom    // log starts, and when the archive came to have them

	nextSweep time.Time // touched by the keeper alone

	mu struct {
		sync.Mutex
		uploaded []Entry // in the store, not yet named by the pointer
		since    time.Time
		live     map[uint64]struct{} // ids of attempts that are not over

		// What the last step has come to.
		reason   string
		lastErr  error
		failures int // in a row
		retryAt  time.Time
	}
}

// garbage is an object that nothing names since at.
type garbage struct {
	key string
	at  time.Time
}

// doom is a log start since at: entries below it are to be deleted.
type doom struct {
	logStart int64
	at       time.Time
}

func (ld *leadership) track(id uint64) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	ld.mu.live[id] = struct{}{}
}

func (ld *leadership) untrack(id uint64) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	delete(ld.mu.live, id)
}

func (ld *leadership) isLive(id uint64) bool {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	_, ok := ld.mu.live[id]
	return ok
}

// join returns ctx, ended by the epoch's end too.
func (ld *leadership) join(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ld.ctx, func() { cancel(context.Cause(ld.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// open reads the pointer and makes the local log agree with it as far as it may (T8).
func (l *Log) open(ctx context.Context) error {
	l.mu.seen = l.loadSeen()
	ptr, err := l.refresh(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	switch err := l.conform(ctx, ptr); {
	case errors.Is(err, ErrUnavailable):
		l.a.log.Warn("local log ends below the archived end and the archive can't be read now: it starts again there before it leads",
			"topic", l.part.Topic, "partition", l.part.Num, "err", err)
	case errors.Is(err, segment.ErrQuarantined):
		// Whoever opened it says so, with what there is to do.
	case err != nil:
		l.a.log.Error("local log does not fit the archive: the replica can't lead", "topic", l.part.Topic, "partition", l.part.Num, "err", err)
	}
	return nil
}

// openTimeout bounds how long the opening of a log waits for the store; leading
// waits as long as its caller lets it.
const openTimeout = 10 * time.Second

// conform holds the local log against the pointer (T8): one that ends below the
// archived end starts again there, for all that it held is in the archive. What
// is archived is committed, so the high watermark follows.
func (l *Log) conform(ctx context.Context, ptr Pointer) error {
	l.setStanding(false, false)
	if errors.Is(l.local.Err(), segment.ErrQuarantined) {
		if err := l.repair(ctx, ptr, false); err != nil {
			l.setStanding(errors.Is(err, ErrUnavailable), errors.Is(err, ErrDiverged))
			return err
		}
	}
	o := l.local.Offsets()
	start := l.logStart(ptr)
	if whole := max(ptr.ArchivedEnd, ptr.LogStart, start); o.LocalStart > whole {
		l.setStanding(false, true)
		return fmt.Errorf("%w: the local log begins at %d, what is before it ends at %d", ErrDiverged, o.LocalStart, whole)
	}
	if !ptr.Exists() {
		return l.local.AdoptLogStart(start)
	}
	if o.End < ptr.ArchivedEnd {
		l.setStanding(true, false)
		if err := l.restart(ctx, ptr); err != nil {
			return err
		}
		l.setStanding(false, false)
		return nil
	}
	if have := l.local.EpochAt(ptr.ArchivedEnd - 1); ptr.ArchivedEnd > 0 && have >= 0 && ptr.LastEpoch >= 0 && have != ptr.LastEpoch {
		l.setStanding(false, true)
		return fmt.Errorf("%w: offset %d is of epoch %d in the archive, of epoch %d on disk", ErrDiverged, ptr.ArchivedEnd-1, ptr.LastEpoch, have)
	}
	l.local.SetHighWatermark(ptr.ArchivedEnd)
	if o.LocalStart > max(ptr.ArchivedEnd, ptr.LogStart) {
		// An earlier leader let go what its successor, who hadn't heard of it, has
		// archived in part. This log has nothing of it: its start stays.
		return nil
	}
	// The pointer's log start is the partition's: it moves there first (T4). What
	// the disk says may be older, or be lost (D8).
	return l.local.AdoptLogStart(ptr.LogStart)
}

// logStart is the local log's start. Without a pointer, local files go by the log
// start alone (T4), and a directory of Kafka's or of an older version has no note
// of one that the first file's name tells.
func (l *Log) logStart(ptr Pointer) int64 {
	o := l.local.Offsets()
	if !ptr.Exists() && !l.local.LogStartNoted() {
		return max(o.LogStart, o.LocalStart)
	}
	return o.LogStart
}

func (l *Log) setStanding(behind, diverged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.behind, l.mu.diverged = behind, diverged
}

// Diverged reports whether the local log has another history than the archive (T8, S7).
func (l *Log) Diverged() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.diverged
}

// Lead reads the pointer, after the election, and holds the log against it; only
// then may the log be appended to (T8).
func (l *Log) Lead(ctx context.Context, epoch int32) error {
	l.StopLeading()
	if err := l.pub.lock(ctx); err != nil {
		return err
	}
	defer l.pub.unlock()
	ptr, err := l.refresh(ctx)
	if err != nil {
		return fmt.Errorf("tiering: lead %s: %w", l.part, err)
	}
	if err := l.conform(ctx, ptr); err != nil {
		return fmt.Errorf("tiering: lead %s: %w", l.part, err)
	}
	if err := l.local.Lead(ctx, epoch); err != nil {
		return err
	}
	ld := &leadership{epoch: epoch, began: l.a.cfg.Now(), ptr: ptr, manifest: l.view.Load().manifest}
	ld.ctx, ld.end = context.WithCancelCause(context.Background())
	ld.mu.live = map[uint64]struct{}{}
	if ptr.Exists() {
		ld.doomed = []doom{{ptr.LogStart, ld.began}}
	}
	if last := l.last; last != nil && last.epoch == epoch {
		// The same epoch again, within this process: its last pointer write may
		// still be on its way, and the fence would let it through. What it has
		// uploaded is as good as it was.
		ld.unsettled = last.unsettled
		last.mu.Lock()
		ld.mu.live, ld.mu.uploaded, ld.mu.since = maps.Clone(last.mu.live), slices.Clone(last.mu.uploaded), last.mu.since
		last.mu.Unlock()
	}
	l.last = ld
	l.lead.Store(ld)
	l.wake()
	return nil
}

// errNotLeading ends what was under way when StopLeading came.
var errNotLeading = fmt.Errorf("%w: stopped leading", ErrFenced)

// StopLeading ends what the leader does. What is under way fails at its next
// step to the store; should a pointer write be under way, the fence decides.
func (l *Log) StopLeading() {
	if ld := l.lead.Swap(nil); ld != nil {
		ld.end(errNotLeading)
		l.local.StopLeading()
	}
}

// fenced ends a leadership that another has taken over.
func (l *Log) fenced(ld *leadership, err error) {
	if l.lead.CompareAndSwap(ld, nil) {
		ld.end(err)
		l.a.log.Info("another leads the partition: uploads end", "topic", l.part.Topic, "partition", l.part.Num, "epoch", ld.epoch, "err", err)
	}
}

// RestartAtArchivedEnd drops the local log and starts it again at the archived end.
func (l *Log) RestartAtArchivedEnd(ctx context.Context) error {
	ptr, err := l.refresh(ctx)
	if err != nil {
		return fmt.Errorf("tiering: restart %s: %w", l.part, err)
	}
	if !ptr.Exists() {
		return fmt.Errorf("tiering: restart %s: %w", l.part, segment.ErrNotArchived)
	}
	if err := l.restart(ctx, ptr); err != nil {
		return fmt.Errorf("tiering: restart %s: %w", l.part, err)
	}
	l.setStanding(false, false)
	return nil
}

// restart starts the local log again at ptr's archived end, with the epochs and
// the producers of the last index (D14).
func (l *Log) restart(ctx context.Context, ptr Pointer) error {
	epochs, producers, err := l.past(ctx, ptr)
	if err != nil {
		return err
	}
	if err := l.a.failpoint("tiering.restart.before"); err != nil {
		return err
	}
	end := l.local.Offsets().End
	if err := l.local.RestartAt(ptr.ArchivedEnd, ptr.LogStart, epochs, producers); err != nil {
		return err
	}
	l.a.log.Warn("local log started again at the archived end", "topic", l.part.Topic, "partition", l.part.Num, "offset", ptr.ArchivedEnd, "ended_at", end)
	return nil
}

// past is what a log that begins at ptr's archived end must know of what is before
// it: the epochs, and the producers' state if that is known.
func (l *Log) past(ctx context.Context, ptr Pointer) (epochs []segment.EpochStart, producers []byte, err error) {
	m, err := l.manifestOf(ctx, ptr)
	if err != nil {
		return nil, nil, err
	}
	e, err := l.lastEntry(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	if e != nil {
		x, err := l.fetchIndex(ctx, e)
		if err != nil {
			return nil, nil, err
		}
		epochs = x.Epochs
		if e.End == ptr.ArchivedEnd {
			producers = x.Producers
		}
	}
	// A log start beyond all segments took the archived end along: what the
	// epoch of the offset before it was is in the pointer, and nobody's
	// sequences matter any more (T8).
	if (e == nil || e.End < ptr.ArchivedEnd) && ptr.LastEpoch >= 0 && (len(epochs) == 0 || epochs[len(epochs)-1].Epoch < ptr.LastEpoch) {
		epochs = append(epochs[:len(epochs):len(epochs)], segment.EpochStart{Epoch: ptr.LastEpoch, Start: max(0, ptr.ArchivedEnd-1)})
	}
	return epochs, producers, nil
}

// manifestOf is the manifest that ptr names, from memory or the store.
func (l *Log) manifestOf(ctx context.Context, ptr Pointer) (*Manifest, error) {
	if v := l.view.Load(); v.manifest != nil && v.ptr.ManifestKey == ptr.ManifestKey {
		return v.manifest, nil
	}
	m, err := fetchManifest(ctx, l.a.store, l.part, ptr)
	if err == nil {
		l.learn(ptr, m)
	}
	return m, err
}

// lastEntry is the newest entry that m has, nil if there is none.
func (l *Log) lastEntry(ctx context.Context, m *Manifest) (*Entry, error) {
	if n := len(m.Entries); n > 0 {
		return &m.Entries[n-1], nil
	}
	if n := len(m.Pages); n > 0 {
		page, err := l.loadPage(ctx, &m.Pages[n-1])
		if err != nil {
			return nil, err
		}
		return &page.Entries[len(page.Entries)-1], nil
	}
	return nil, nil
}

func (l *Log) loadPage(ctx context.Context, ref *PageRef) (*Page, error) {
	return await(ctx, func() (*Page, <-chan struct{}, error) { return l.a.loader.page(l.part, ref) })
}

// fetchIndex reads the .idx object of e.
func (l *Log) fetchIndex(ctx context.Context, e *Entry) (*Index, error) {
	if e.IdxSize > maxIndexSize {
		return nil, fmt.Errorf("%w: %s of %d bytes", ErrLost, e.IndexKey(l.part), e.IdxSize)
	}
	b, err := fetchExact(ctx, l.a.store, e.IndexKey(l.part), e.IdxSize, e.IdxCRC)
	if err != nil {
		return nil, err
	}
	x, err := DecodeIndex(b)
	if err == nil {
		err = x.Check(l.part, e)
	}
	if err != nil {
		return nil, readError(e.IndexKey(l.part), err)
	}
	return x, nil
}
