package tiering

import (
	"context"
	"fmt"
	"time"

	"firn/segment"
)

// Evict deletes local segments that local.retention.* and the log start let go,
// as far as the archive has them (T4). Every replica does it, leading or not.
func (l *Log) Evict(ctx context.Context, now time.Time) error {
	sealed, err := l.local.Sealed(0)
	if err != nil || len(sealed) == 0 {
		return err
	}
	o := l.local.Offsets()
	spans := make([]span, len(sealed))
	total := l.local.ActiveInfo().Bytes
	for i, s := range sealed {
		spans[i] = span{s.End, s.MaxTimestamp, s.Size}
		total += s.Size
	}
	n, _ := l.policy.Load().local().due(spans, total, now.UnixMilli(), o.HighWatermark)
	for n < len(sealed) && sealed[n].End <= o.LogStart {
		n++
	}
	if n == 0 {
		return nil
	}
	_, err = l.evict(ctx, sealed[:n])
	return err
}

// evict deletes those of the oldest sealed segments that may go, by the pointer
// as it is read back now: whatever else we believe doesn't count (D6). It
// returns the bytes freed.
func (l *Log) evict(ctx context.Context, oldest []segment.SealedSegment) (freed int64, err error) {
	ptr, err := l.refresh(ctx)
	if err != nil {
		return 0, err
	}
	bound := l.local.Offsets().LogStart
	if ptr.Exists() {
		// A log start that the pointer doesn't have yet proves nothing.
		bound = max(ptr.ArchivedEnd, ptr.LogStart)
		if ptr.LogStart > l.local.Offsets().LogStart {
			if err := l.local.SetLogStart(ctx, ptr.LogStart); err != nil {
				return 0, err
			}
		}
	}
	below := int64(-1)
	for _, s := range oldest {
		if s.End > bound {
			break
		}
		below = s.End
		freed += s.Size
	}
	if below < 0 {
		return 0, nil
	}
	if err := l.a.failpoint("tiering.local-delete.before"); err != nil {
		return 0, err
	}
	if _, err := l.local.DeleteTo(below); err != nil {
		return 0, fmt.Errorf("delete local segments below %d: %w", below, err)
	}
	l.a.metrics.evicted.Add(float64(freed))
	return freed, l.a.failpoint("tiering.local-delete.after")
}

// FreeLocal deletes archived local segments, the oldest of all partitions first,
// until so many bytes are free or none is left: what a disk at its reserve asks
// for. What isn't archived is never touched. It returns the bytes freed.
func (a *Archive) FreeLocal(ctx context.Context, bytes int64) (freed int64, err error) {
	type next struct {
		log    *Log
		sealed []segment.SealedSegment // archived, oldest first
	}
	var all []next
	for _, l := range a.logs() {
		ptr := l.view.Load().ptr
		if !ptr.Exists() {
			continue
		}
		sealed, err := l.local.Sealed(0)
		if err != nil {
			continue // the log has failed, and said so
		}
		n := 0
		for n < len(sealed) && sealed[n].End <= ptr.ArchivedEnd {
			n++
		}
		if n > 0 {
			all = append(all, next{l, sealed[:n]})
		}
	}
	for freed < bytes {
		oldest := -1
		for i := range all {
			if len(all[i].sealed) > 0 && (oldest < 0 || all[i].sealed[0].MaxTimestamp < all[oldest].sealed[0].MaxTimestamp) {
				oldest = i
			}
		}
		if oldest < 0 {
			break
		}
		n, err := all[oldest].log.evict(ctx, all[oldest].sealed[:1])
		if err != nil || n == 0 {
			if err != nil {
				a.log.Warn("an archived local segment can't be freed", "topic", all[oldest].log.part.Topic, "partition", all[oldest].log.part.Num, "err", err)
			}
			all[oldest].sealed = nil
			continue
		}
		freed += n
		all[oldest].sealed = all[oldest].sealed[1:]
	}
	return freed, ctx.Err()
}
