package tiering

import (
	"context"
	"errors"

	"firn/segment"
)

// Read answers from disk what is there, and from the archive what is below: one
// call never mixes the two. The local path is the local log's own, with one
// atomic load on top.
func (l *Log) Read(r segment.ReadRequest) (segment.ReadResult, error) {
	res, err := l.local.Read(r)
	res.Offsets = l.withArchive(res.Offsets)
	if err == nil || !errors.Is(err, segment.ErrBelowLocal) {
		return res, err
	}
	return l.a.cold.Read(&l.src, r, res.Offsets)
}

// OffsetForTime looks in the archive below the local start, then on disk. The
// two halves are one snapshot: if the local start moves meanwhile, what was
// looked through on disk is looked up again in the archive (KAFKA-17637).
func (l *Log) OffsetForTime(ctx context.Context, ts int64, until segment.Until) (segment.TimeOffset, error) {
	for from := int64(-1); ; {
		o := l.Offsets()
		from = max(from, o.LogStart)
		if from < o.LocalStart {
			found, err := l.coldFirst(ctx, ts, from, min(o.LocalStart, o.Bound(until)))
			if err != nil || found.Offset >= 0 {
				return found, err
			}
			from = o.LocalStart
		}
		found, err := l.local.OffsetForTime(ctx, ts, until)
		if err != nil {
			return found, err
		}
		if l.local.Offsets().LocalStart <= from {
			return found, nil
		}
	}
}

func (l *Log) coldFirst(ctx context.Context, ts, from, below int64) (segment.TimeOffset, error) {
	if from >= below {
		return segment.TimeOffset{Timestamp: -1, Offset: -1, Epoch: -1}, nil
	}
	return l.a.cold.FirstAt(ctx, &l.src, ts, from, below)
}

// OffsetOfMaxTime compares the largest timestamps of the two parts.
func (l *Log) OffsetOfMaxTime(ctx context.Context, until segment.Until) (segment.TimeOffset, error) {
	for {
		o := l.Offsets()
		local, err := l.local.OffsetOfMaxTime(ctx, until)
		if err != nil {
			return local, err
		}
		below := min(o.LocalStart, o.Bound(until))
		if o.LogStart < below {
			m, err := await(ctx, l.manifest)
			if err != nil {
				return segment.TimeOffset{}, err
			}
			if most, ok := m.MaxTime(o.LogStart); local.Offset >= 0 && (!ok || most < local.Timestamp) {
				return local, nil // no need to look: it is on disk
			}
			cold, err := l.a.cold.MaxAt(ctx, &l.src, o.LogStart, below)
			if err != nil {
				return cold, err
			}
			// The first record with the largest timestamp: at a tie the archived one.
			if cold.Offset >= 0 && (local.Offset < 0 || cold.Timestamp >= local.Timestamp) {
				local = cold
			}
		}
		if l.local.Offsets().LocalStart <= o.LocalStart {
			return local, nil
		}
	}
}
