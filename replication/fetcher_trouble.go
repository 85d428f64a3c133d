package replication

import (
	"encoding/binary"
	"errors"
	"time"

	"firn/segment"
)

// trouble is an error of w's own log.
func (f *Fetcher) trouble(w *following, err error, now time.Time) {
	switch own := w.p.log.Err(); {
	case errors.Is(err, ErrNotFollowing), errors.Is(err, segment.ErrClosed):
		f.pause(w, now) // its role has changed: we are about to hear
	case errors.Is(own, segment.ErrQuarantined):
		f.stop(w, own, waiting)
	case own != nil:
		f.stop(w, own, dead)
	case errors.Is(err, segment.ErrOffsetOutOfRange), errors.Is(err, segment.ErrOtherHistory):
		// It has nothing in common with its leader's but what may be archived, or
		// is of another history than that.
		w.p.discards.Store(true)
		f.stop(w, err, waiting)
	case errors.Is(err, segment.ErrNoSpace):
		f.pause(w, now)
	case errors.Is(err, segment.ErrFenced):
		w.phase = comparing
		f.pause(w, now)
	default:
		f.log.Error("replicating a partition; will retry", "topic", w.p.topic, "partition", w.p.index, "epoch", w.epoch, "err", err)
		f.pause(w, now)
	}
}

// stop leaves the partition in phase next, without which it can't go on.
func (f *Fetcher) stop(w *following, err error, next phase) {
	w.phase = next
	f.log.Error("a replica can't follow its leader", "topic", w.p.topic, "partition", w.p.index, "epoch", w.epoch, "err", err)
	if f.cfg.GivenUp != nil {
		f.cfg.GivenUp(w.p, err)
	}
}

// firstOffset is the base offset of the first batch.
func firstOffset(records []byte) (int64, bool) {
	if len(records) < 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(records)), true
}
