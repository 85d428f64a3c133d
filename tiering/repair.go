package tiering

import (
	"context"
	"errors"
	"fmt"

	"firn/segment"
)

// Repair puts a quarantined local log back into service, as far as the archive
// reaches (S5): by the pointer as read back now, what is archived goes from the
// disk unread, and the rest stays if it is undamaged. With loss somebody has
// accepted that damage past the archived end, and all that follows it, is lost.
// The log must not be led. One that works is left alone.
func (l *Log) Repair(ctx context.Context, loss bool) error {
	if err := l.step.lock(ctx); err != nil { // an upload under way would add to what is dropped here
		return err
	}
	defer l.step.unlock()
	if err := l.pub.lock(ctx); err != nil {
		return err
	}
	defer l.pub.unlock()
	if !errors.Is(l.local.Err(), segment.ErrQuarantined) {
		return l.local.Err()
	}
	ptr, err := l.refresh(ctx)
	if err == nil {
		err = l.repair(ctx, ptr, loss)
	}
	if err != nil {
		return fmt.Errorf("tiering: repair %s: %w", l.part, err)
	}
	if loss && l.last != nil {
		l.last.forget(l.local.Offsets().End)
	}
	l.setStanding(false, false)
	return nil
}

// errUnsettled: the archived end may be about to move.
var errUnsettled = fmt.Errorf("%w: a write of the pointer has an unknown outcome", ErrUnavailable)

// repair does it, by ptr. Of what is dropped the archive must tell the epochs and
// the producers, so this may wait for the store, as T8 may.
func (l *Log) repair(ctx context.Context, ptr Pointer, loss bool) error {
	if loss && l.last != nil && l.last.unsettled != nil {
		return errUnsettled
	}
	how := segment.Repair{LogStart: l.logStart(ptr), Loss: loss}
	how.Archived = how.LogStart
	if ptr.Exists() {
		// An epoch of its own may hold committed batches past the archived end.
		if have := l.local.EpochAt(ptr.ArchivedEnd - 1); ptr.ArchivedEnd > 0 && have >= 0 && ptr.LastEpoch >= 0 && have != ptr.LastEpoch {
			return fmt.Errorf("%w: offset %d is of epoch %d in the archive, of epoch %d on disk", ErrDiverged, ptr.ArchivedEnd-1, ptr.LastEpoch, have)
		}
		how.Archived = max(how.Archived, ptr.ArchivedEnd)
		how.LogStart = max(how.LogStart, ptr.LogStart)
	}
	if ptr.Exists() && ptr.ArchivedEnd == how.Archived {
		var err error
		if how.Chain, how.Producers, err = l.past(ctx, ptr); err != nil {
			return err
		}
	}
	return l.local.Repair(how)
}

// forget drops what was uploaded of records that the log has lost from end on:
// nothing names it, so it is the sweep's.
func (ld *leadership) forget(end int64) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	n := 0
	for n < len(ld.mu.uploaded) && ld.mu.uploaded[n].End <= end {
		n++
	}
	for _, e := range ld.mu.uploaded[n:] {
		delete(ld.mu.live, e.ID)
	}
	ld.mu.uploaded = ld.mu.uploaded[:n:n]
}

// quarantine takes a log out of service of which a sealed segment is damaged: what
// is wrong on disk doesn't get right by trying again, and must not go up (T5, S5).
func (l *Log) quarantine(file *segment.SealedFile, at int64, err error) error {
	if qerr := l.local.Quarantine(file, at, err); qerr != nil {
		return qerr
	}
	return err
}
