package segment

import (
	"context"
	"errors"
	"io/fs"

	"firn/segment/batch"
)

// OffsetForTime finds the first record at or after the log start, or the local
// start if that is higher, and below the end that until names, whose timestamp is
// at least ts.
func (l *Log) OffsetForTime(ctx context.Context, ts int64, until Until) (TimeOffset, error) {
	return l.lookup(ctx, until, func(s snapshot, from, below int64) (TimeOffset, error) {
		for seg := s.find(from); seg != nil && seg.base < below; seg = s.after(seg) {
			if err := ctx.Err(); err != nil {
				return TimeOffset{}, err
			}
			o, err := l.timeIn(s, seg, ts, from, below)
			if err != nil || o.Offset >= 0 {
				return o, err
			}
		}
		return noTime, nil
	})
}

var noTime = TimeOffset{Timestamp: -1, Offset: -1, Epoch: -1}

// lookup runs f on a snapshot of the log, again if a segment went away under it.
func (l *Log) lookup(ctx context.Context, until Until, f func(s snapshot, from, below int64) (TimeOffset, error)) (TimeOffset, error) {
	for {
		if !l.warm.Load() || l.failure.Load() != nil {
			if err := l.readable(); err != nil {
				return TimeOffset{}, err
			}
		}
		s := l.st.load()
		from, below := max(s.LogStart, s.LocalStart), s.Bound(until)
		if from >= below {
			return noTime, nil
		}
		o, err := f(s, from, below)
		if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil && l.failure.Load() == nil {
			continue
		}
		return o, err
	}
}

// timeIn looks in one segment. Its time index tells from where on a timestamp as
// large as ts can be at all; from there the batches' headers, and then the
// records, tell where one is. Where the index leads below from, the search goes
// on from there by record.
func (l *Log) timeIn(s snapshot, seg *segment, ts, from, below int64) (TimeOffset, error) {
	x, size, err := l.indexAndSize(s, seg)
	if err != nil {
		return noTime, err
	}
	if seg != s.active {
		if n := x.times.Len(); n == 0 || x.times.At(n-1).Time < ts {
			return noTime, nil
		}
	}
	h, err := l.pin(seg)
	if err != nil {
		return noTime, err
	}
	defer h.unpin()
	pos, _ := x.floor(max(x.offsetBefore(ts), from))
	return l.firstRecord(seg, h, pos, size, below, func(b batch.Batch) (TimeOffset, bool, error) {
		if b.MaxTimestamp() < ts || b.LastOffset() < from {
			return noTime, false, nil
		}
		return l.inBatch(seg, h, b, size, func(whole batch.Batch) (TimeOffset, bool, error) {
			return firstSince(whole, ts, from)
		})
	})
}

// firstRecord walks along the headers from pos on until look has found something.
func (l *Log) firstRecord(seg *segment, h *handle, pos, size, below int64, look func(hd batch.Batch) (TimeOffset, bool, error)) (TimeOffset, error) {
	found := noTime
	var lookErr error
	err := walk(h.file, pos, size, func(b batch.Batch, at int64) bool {
		if b.BaseOffset() >= below {
			return false
		}
		o, ok, err := look(b)
		if ok && o.Offset < below {
			found = o
		}
		lookErr = err
		return !ok && err == nil
	})
	if err == nil {
		err = lookErr
	}
	if err != nil {
		return noTime, l.readError(seg, err)
	}
	return found, nil
}

// inBatch reads and verifies the batch with header hd whole and looks into it.
func (l *Log) inBatch(seg *segment, h *handle, hd batch.Batch, size int64, look func(batch.Batch) (TimeOffset, bool, error)) (TimeOffset, bool, error) {
	base := hd.BaseOffset()
	p, err := l.locate(seg, h, base, size, never)
	if err != nil {
		return noTime, false, err
	}
	b := make(batch.Batch, hd.Length())
	if err := readFull(h.file, b, p.pos); err != nil {
		return noTime, false, err
	}
	if err := batch.Verify(b); err != nil {
		return noTime, false, err
	}
	return look(b)
}

// indexAndSize returns the index of a segment of s, and how many bytes of it s
// knows of.
func (l *Log) indexAndSize(s snapshot, seg *segment) (*index, int64, error) {
	if seg == s.active {
		if x := seg.index.Load(); x != nil {
			return x, s.size, nil
		}
		return nil, 0, fs.ErrNotExist // sealed and evicted meanwhile
	}
	x, err := l.indexOf(seg)
	if err != nil {
		return nil, 0, l.readError(seg, err)
	}
	return x, seg.size, nil
}

// OffsetOfMaxTime finds the first record with the largest timestamp (ListOffsets
// −3) in the range of OffsetForTime.
func (l *Log) OffsetOfMaxTime(ctx context.Context, until Until) (TimeOffset, error) {
	return l.lookup(ctx, until, func(s snapshot, from, below int64) (TimeOffset, error) {
		best := noTime
		for seg := s.find(from); seg != nil && seg.base < below; seg = s.after(seg) {
			if err := ctx.Err(); err != nil {
				return TimeOffset{}, err
			}
			o, err := l.newestOf(s, seg, best.Timestamp, from, below)
			if err != nil {
				return noTime, err
			}
			if o.Offset >= 0 && (best.Offset < 0 || o.Timestamp > best.Timestamp) {
				best = o
			}
		}
		return best, nil
	})
}

// newestOf finds the first record of seg in [from, below) with the largest
// timestamp, if that is above floor.
func (l *Log) newestOf(s snapshot, seg *segment, floor, from, below int64) (TimeOffset, error) {
	x, size, err := l.indexAndSize(s, seg)
	if err != nil {
		return noTime, err
	}
	h, err := l.pin(seg)
	if err != nil {
		return noTime, err
	}
	defer h.unpin()
	pos := int64(0)
	if seg != s.active && from <= seg.base && below >= seg.end {
		// All of a sealed segment: its last time entry tells the batch.
		n := x.times.Len()
		if n == 0 || x.times.At(n-1).Time <= floor {
			return noTime, nil
		}
		pos, _ = x.floor(seg.base + int64(x.times.At(n-1).Rel))
		floor = x.times.At(n-1).Time - 1
	} else if from > seg.base {
		pos, _ = x.floor(from)
	}
	// The first batch that may hold the maximum; compared by header, looked into
	// only where that promises more than what is known.
	best := TimeOffset{Timestamp: floor, Offset: -1, Epoch: -1}
	_, err = l.firstRecord(seg, h, pos, size, below, func(b batch.Batch) (TimeOffset, bool, error) {
		if b.LastOffset() < from || b.MaxTimestamp() <= best.Timestamp {
			return noTime, false, nil
		}
		o, ok, err := l.inBatch(seg, h, b, size, func(whole batch.Batch) (TimeOffset, bool, error) { return newestIn(whole, from) })
		if ok && o.Timestamp > best.Timestamp && o.Offset < below {
			best = o
		}
		return noTime, false, err
	})
	if err != nil || best.Offset < 0 {
		return noTime, err
	}
	return best, nil
}
