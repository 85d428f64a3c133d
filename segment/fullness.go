package segment

import "time"

// Fullness is the judgement whether a disk is too full to lead on. It lasts, so that
// leads don't move to and fro while the free space hovers at the reserve:
//
//	      short of space for Patience.Full
//	room ──────────────────────────────────▶ full
//	     ◀──────────────────────────────────
//	      Space.Room free for Patience.Room
//
// Short is a disk below its reserve, or one on which writes fail again and again.
// What is seen first is believed at once: a start is no blip. The zero Fullness has
// seen nothing.
type Fullness struct {
	Full bool

	seen bool
	// since is when what speaks for the other judgement began; zero: nothing does.
	since time.Time
	// refused is how many writes had failed at the last look, refusedAt when the
	// latest was seen.
	refused   int64
	refusedAt time.Time
}

// Patience is how long a Fullness waits before it changes.
type Patience struct {
	Full, Room time.Duration
}

// Look is f after a look at the disk at time now.
func (f Fullness) Look(now time.Time, s Space, p Patience) Fullness {
	first := !f.seen
	if !first && s.Refused > f.refused {
		f.refusedAt = now
	}
	f.seen, f.refused = true, s.Refused
	// A write that has failed speaks for a while: who was refused tries again soon.
	failing := !f.refusedAt.IsZero() && now.Sub(f.refusedAt) <= p.Full/2
	other, wait := s.Low || failing, p.Full
	if f.Full {
		other, wait = s.Free >= s.Room() && !failing, p.Room
	}
	switch {
	case !other:
		f.since = time.Time{}
		return f
	case f.since.IsZero():
		f.since = now
	}
	if first || now.Sub(f.since) >= wait {
		f.Full, f.since = !f.Full, time.Time{}
	}
	return f
}
