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
		f.giveUp(w, own, waiting)
	case own != nil:
		f.giveUp(w, own, dead)
	case errors.Is(err, segment.ErrOffsetOutOfRange) && w.phase != beginning:
		// It has nothing in common with its leader's but what may be archived.
		f.giveUp(w, err, waiting)
	case errors.Is(err, segment.ErrNoSpace):
		f.pause(w, now)
	case errors.Is(err, segment.ErrFenced):
		w.phase = comparing
		f.pause(w, now)
	case errors.Is(err, segment.ErrOtherHistory):
		f.giveUp(w, err, waiting)
	default:
		f.log.Error("replicating a partition; will retry", "topic", w.p.topic, "partition", w.p.index, "epoch", w.epoch, "err", err)
		f.pause(w, now)
	}
}

// giveUp has the partition listed, once, and leaves it in phase next.
func (f *Fetcher) giveUp(w *following, err error, next phase) {
	w.phase = next
	w.discard = next == waiting
	f.log.Error("a replica is given up", "topic", w.p.topic, "partition", w.p.index, "epoch", w.epoch, "err", err)
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
