package tiering

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firn/segment"
	"firn/tiering/objstore"
)

// deleteBatch is how many segments are deleted from the store before a manifest
// says so.
const deleteBatch = 256

// keepTimeout bounds one Keep: what is left is the next one's.
const keepTimeout = 5 * time.Minute

// Keep does what a leader owes the archive besides uploading: it moves the log
// start as retention asks, deletes what has been below it for the grace, and
// removes superseded manifests and pages. The order is T4's: log start in the
// pointer, grace, objects, "deleted through" in the pointer.
func (l *Log) Keep(ctx context.Context, now time.Time) error {
	ld := l.lead.Load()
	if ld == nil || !l.keeping.tryLock() {
		return nil
	}
	defer l.keeping.unlock()
	ctx, done := ld.join(ctx)
	defer done()
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	err := l.keepLed(ctx, ld, now)
	if errors.Is(err, ErrFenced) {
		l.fenced(ld, err)
		return nil
	}
	if err != nil && ld.ctx.Err() != nil {
		return nil
	}
	return err
}

func (l *Log) keepLed(ctx context.Context, ld *leadership, now time.Time) error {
	if err := l.retain(ctx, ld, now); err != nil {
		return fmt.Errorf("retention: %w", err)
	}
	if l.a.Disowned() != nil {
		return nil // Status tells
	}
	if err := l.deleteRemote(ctx, ld, now); err != nil {
		return fmt.Errorf("delete from the archive: %w", err)
	}
	return l.deleteUseless(ctx, ld, now)
}

// retain moves the log start up to where retention has it.
func (l *Log) retain(ctx context.Context, ld *leadership, now time.Time) error {
	policy := l.policy.Load()
	if policy.whole().none() && !policy.deletes() {
		return nil // and no manifest is needed for that
	}
	if err := l.pub.lock(ctx); err != nil {
		return err
	}
	defer l.pub.unlock()
	if ld.ptr.Exists() && ld.manifest == nil {
		if err := l.readyLocked(ctx, ld); err != nil {
			return err
		}
	}
	start, err := l.retained(ctx, ld.manifest, now)
	if err != nil || start <= l.local.Offsets().LogStart {
		return err
	}
	return l.moveLogStartLocked(ctx, ld, start, now)
}

// moveLogStartLocked moves the log start: in the pointer first, if there is one (T4).
func (l *Log) moveLogStartLocked(ctx context.Context, ld *leadership, start int64, now time.Time) error {
	if err := l.readyLocked(ctx, ld); err != nil {
		return unavailable(err)
	}
	if ld.ptr.Exists() && start > ld.ptr.LogStart {
		if err := l.a.Disowned(); err != nil {
			return err
		}
		if err := l.publishLocked(ctx, ld, change{logStart: start}, now); err != nil {
			return unavailable(err)
		}
	}
	return l.local.SetLogStart(ctx, start)
}

// unavailable makes err one that a client may be told: an error of the store or
// of the metadata store says that it can't be done now.
func unavailable(err error) error {
	for _, known := range []error{ErrFenced, ErrMoved, ErrNotOurs, ErrRolledBack, ErrLost, ErrUnavailable, errNotLeading} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// SetLogStart moves the log start, as DeleteRecords asks.
func (l *Log) SetLogStart(ctx context.Context, offset int64) error {
	o := l.local.Offsets()
	if offset > o.HighWatermark {
		return fmt.Errorf("%w: log start %d, high watermark is %d", segment.ErrOffsetOutOfRange, offset, o.HighWatermark)
	}
	if offset <= o.LogStart {
		return nil
	}
	ld := l.lead.Load()
	if ld == nil {
		// A follower takes over what its leader says; deleting by it needs the
		// pointer as this replica reads it (T4).
		return l.local.SetLogStart(ctx, offset)
	}
	joined, done := ld.join(ctx)
	defer done()
	if err := l.pub.lock(joined); err != nil {
		return err
	}
	defer l.pub.unlock()
	err := l.moveLogStartLocked(joined, ld, offset, l.a.cfg.Now())
	if errors.Is(err, ErrFenced) {
		l.fenced(ld, err)
	}
	return err
}

// retained is the log start that retention asks for, by the archive's manifest m
// (nil: nothing is archived) and the local segments past its end.
func (l *Log) retained(ctx context.Context, m *Manifest, now time.Time) (int64, error) {
	policy := l.policy.Load()
	o := l.local.Offsets()
	start := o.LogStart
	if policy.deletes() && m != nil {
		start = max(start, min(o.LocalStart, o.HighWatermark)) // what is archived only goes (KIP-950)
	}
	lim := policy.whole()
	if lim.none() {
		return start, nil
	}
	spans, refs, total, err := l.spans(ctx, m, start)
	if err != nil {
		return start, err
	}
	n, rest := lim.due(spans, total, now.UnixMilli(), o.HighWatermark)
	if n > 0 {
		start = max(start, spans[n-1].End)
	}
	if n == len(spans) {
		return start, l.sealExpired(lim, now)
	}
	if n < len(refs) && refs[n] != nil { // part of the page may be due
		page, err := l.loadPage(ctx, refs[n])
		if err != nil {
			return start, err
		}
		in := entrySpans(nil, page.Entries, start)
		if k, _ := lim.due(in, rest, now.UnixMilli(), o.HighWatermark); k > 0 {
			start = max(start, in[k-1].End)
		}
	}
	return start, nil
}

// sealExpired seals the active segment if all that it holds is older than the
// retention: then it can go, too, the next time.
func (l *Log) sealExpired(lim limits, now time.Time) error {
	segments, err := l.local.Segments()
	if err != nil {
		return err
	}
	last := segments[len(segments)-1]
	active := span{End: last.End, MaxTime: last.MaxTimestamp}
	if n, _ := (limits{lim.ms, -1}).due([]span{active}, 0, now.UnixMilli(), last.End); n == 0 || last.Size == 0 {
		return nil
	}
	return l.local.Roll(now)
}

// spans lists what the log consists of from offset start on, for retention:
// pages as wholes (refs says which are), entries, local segments that are not
// archived. total has the active segment too, which is never due.
func (l *Log) spans(ctx context.Context, m *Manifest, start int64) (spans []span, refs []*PageRef, total int64, err error) {
	end := start
	if m != nil {
		end = max(end, m.ArchivedEnd)
		for i := range m.Pages {
			ref := &m.Pages[i]
			switch {
			case ref.End <= start:
			case ref.Base < start: // its sums count entries that are gone
				page, err := l.loadPage(ctx, ref)
				if err != nil {
					return nil, nil, 0, err
				}
				spans = entrySpans(spans, page.Entries, start)
				refs = append(refs, make([]*PageRef, len(spans)-len(refs))...)
			default:
				spans = append(spans, span{ref.End, ref.MaxTime, ref.Bytes})
				refs = append(refs, ref)
			}
		}
		spans = entrySpans(spans, m.Entries, start)
	}
	sealed, err := l.local.Sealed(end)
	if err != nil {
		return nil, nil, 0, err
	}
	for _, s := range sealed {
		spans = append(spans, span{s.End, s.MaxTimestamp, s.Size})
	}
	for i := range spans {
		total += spans[i].Bytes
	}
	return spans, refs, total + l.local.ActiveInfo().Bytes, nil
}

func entrySpans(dst []span, list []Entry, start int64) []span {
	for i := range list {
		if e := &list[i]; e.End > start {
			dst = append(dst, span{e.End, e.MaxTime, e.Size})
		}
	}
	return dst
}

// deleteRemote deletes objects of entries that have been below the log start for
// the grace, then publishes that they are gone.
func (l *Log) deleteRemote(ctx context.Context, ld *leadership, now time.Time) error {
	list, through, err := l.deletable(ctx, ld, now)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := l.a.Owner(ctx); err != nil {
		return err
	}
	if err := l.a.failpoint("tiering.remote-delete.before"); err != nil {
		return err
	}
	for i := range list {
		for _, key := range []string{list[i].LogKey(l.part), list[i].IndexKey(l.part)} {
			if err := l.a.store.Delete(ctx, key); err != nil {
				if errors.Is(err, objstore.ErrDenied) {
					return fmt.Errorf("%w: the store retains it by policy", err)
				}
				return err
			}
		}
		if i == 0 {
			if err := l.a.failpoint("tiering.remote-delete.objects"); err != nil {
				return err
			}
		}
	}
	l.a.metrics.deleted.Add(float64(len(list)))
	if err := l.a.failpoint("tiering.remote-delete.after"); err != nil {
		return err
	}
	if err := l.pub.lock(ctx); err != nil {
		return err
	}
	defer l.pub.unlock()
	if err := l.readyLocked(ctx, ld); err != nil {
		return err
	}
	l.a.log.Info("deleted from the archive", "topic", l.part.Topic, "partition", l.part.Num, "segments", len(list), "below", through)
	return l.publishLocked(ctx, ld, change{deletedThrough: through}, now)
}

// deletable lists entries, oldest first, that end at or below a log start that
// the pointer has had for the grace.
func (l *Log) deletable(ctx context.Context, ld *leadership, now time.Time) (list []Entry, through int64, err error) {
	if err := l.pub.lock(ctx); err != nil {
		return nil, 0, err
	}
	defer l.pub.unlock()
	below := int64(-1)
	for len(ld.doomed) > 0 && now.Sub(ld.doomed[0].at) >= l.a.cfg.DeleteGrace {
		below = ld.doomed[0].logStart
		if len(ld.doomed) == 1 || now.Sub(ld.doomed[1].at) < l.a.cfg.DeleteGrace {
			break
		}
		ld.doomed = ld.doomed[1:]
	}
	if below <= 0 {
		return nil, 0, nil
	}
	if err := l.readyLocked(ctx, ld); err != nil || ld.manifest == nil {
		return nil, 0, err
	}
	m := ld.manifest
	through = m.DeletedThrough
	take := func(entries []Entry) bool {
		for i := range entries {
			e := &entries[i]
			if e.End > below || len(list) == deleteBatch {
				return false
			}
			if e.End > m.DeletedThrough {
				list = append(list, *e)
				through = e.End
			}
		}
		return true
	}
	for i := range m.Pages {
		if m.Pages[i].Base >= below {
			return list, through, nil
		}
		page, err := l.loadPage(ctx, &m.Pages[i])
		if err != nil {
			return nil, 0, err
		}
		if !take(page.Entries) {
			return list, through, nil
		}
	}
	take(m.Entries)
	return list, through, nil
}

// deleteUseless removes manifests and pages that nothing has named for the grace.
func (l *Log) deleteUseless(ctx context.Context, ld *leadership, now time.Time) error {
	due, err := l.dueUseless(ctx, ld, now)
	if err != nil || len(due) == 0 {
		return err
	}
	if err := l.a.Owner(ctx); err != nil {
		return err
	}
	for i, g := range due {
		if err := l.a.store.Delete(ctx, g.key); err != nil {
			if l.pub.lock(ctx) == nil {
				ld.useless = append(due[i:len(due):len(due)], ld.useless...)
				l.pub.unlock()
			}
			return err
		}
	}
	return nil
}

func (l *Log) dueUseless(ctx context.Context, ld *leadership, now time.Time) ([]garbage, error) {
	if err := l.pub.lock(ctx); err != nil {
		return nil, err
	}
	defer l.pub.unlock()
	n := 0
	for n < len(ld.useless) && now.Sub(ld.useless[n].at) >= l.a.cfg.DeleteGrace {
		n++
	}
	due := ld.useless[:n:n]
	ld.useless = ld.useless[n:]
	return due, nil
}
