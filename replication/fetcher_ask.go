package replication

import (
	"slices"
	"time"

	"firn/segment"
)

// Ask is what a Fetcher wants of its source next; exactly one of its fields is set,
// or none: then there is nothing to do before Until, which is zero for "before
// something is to be followed", or before Flushed tells. It is good until the next
// call to the Fetcher.
type Ask struct {
	Fetch  *FetchRequest
	Ends   []EpochQuestion
	Starts []FetchKey
	Until  time.Time
}

// FetchRequest is a Fetch: a full one names all partitions, another those of which
// the session doesn't know this yet.
type FetchRequest struct {
	Session, SessionEpoch int32
	MaxWait               time.Duration
	MinBytes, MaxBytes    int32
	Partitions            []FetchPartition
	Forgotten             []FetchKey
}

// FetchPartition asks for the records of a partition.
type FetchPartition struct {
	FetchKey
	// Epoch is the leader epoch that the follower is in.
	Epoch int32
	// Offset is where its log ends, LastEpoch the last epoch that it knows, -1 for none.
	Offset    int64
	LastEpoch int32
	LogStart  int64
	MaxBytes  int32
}

// EpochQuestion asks where an epoch ends.
type EpochQuestion struct {
	FetchKey
	// CurrentEpoch is the leader epoch that the follower is in, Epoch the one asked about.
	CurrentEpoch, Epoch int32
}

// Next says what to ask the source for now. It does no I/O.
func (f *Fetcher) Next(now time.Time) Ask {
	if now.Before(f.notBefore) {
		return Ask{Until: f.notBefore}
	}
	f.ends, f.starts = f.ends[:0], f.starts[:0]
	f.flushes.Reset(0)
	var lag int64
	var flushed time.Time // until when all wait for the flush of some
	for _, w := range f.order {
		o := w.p.log.Offsets()
		lag = max(lag, w.committed-o.End)
		if now.Before(w.notBefore) {
			continue
		}
		if w.phase <= beginning && !f.flushed(w, o, now) {
			if until := w.unflushed.Add(flushGrace); now.Before(until) {
				flushed = earlier(flushed, until)
			}
			continue
		}
		switch w.phase {
		case comparing:
			latest := w.p.log.LatestEpoch()
			if latest < 0 { // it knows no history that could differ
				w.phase = fetching
				continue
			}
			w.askedIn, w.asked = w.epoch, latest
			f.ends = append(f.ends, EpochQuestion{w.fetchKey(), w.epoch, latest})
		case beginning:
			f.starts = append(f.starts, w.fetchKey())
		case waiting:
			switch discards := w.p.Discards(); {
			case !discards && w.p.log.Err() == nil:
				w.phase, w.failures = comparing, 0 // repaired
				w.notBefore = now
			case discards && !w.p.countedOn(f.cfg.Self):
				w.phase = rebuilding
			default:
				w.notBefore = now.Add(lookAgain)
			}
		}
	}
	f.lag.Store(lag)
	switch {
	case len(f.ends) > 0:
		return Ask{Ends: f.ends}
	case len(f.starts) > 0:
		return Ask{Starts: f.starts}
	case !flushed.IsZero():
		return Ask{Until: flushed}
	}
	return f.nextFetch(now)
}

// flushGrace is how long a fetch waits for a flush that is due, so that one fetch
// goes out for all; most take less. What takes longer holds up nobody else.
const flushGrace = 20 * time.Millisecond

// flushed says that the log of w has flushed what is due. Else Flushed tells when it
// has, for a log flushes by itself; until then it is left alone, with a disk that
// perhaps hangs.
func (f *Fetcher) flushed(w *following, o segment.Offsets, now time.Time) bool {
	if o.Counted < o.End {
		f.flushes.Add(w.p, o.End-1, segment.UntilCounted) // first register, then look
		o = w.p.log.Offsets()
	}
	if o.Counted == o.End {
		w.unflushed = time.Time{}
		return true
	}
	if err := w.p.log.Err(); err != nil {
		w.unflushed = time.Time{}
		f.trouble(w, err, now)
	} else if w.unflushed.IsZero() {
		w.unflushed = now
	}
	return false
}

// Flushed gets a value when a flush is done that Next waits for.
func (f *Fetcher) Flushed() <-chan struct{} { return f.flushes.C() }

// lookAgain is how often a replica that waits, for its repair, for nobody to count
// on it any more or for a long flush, or is held back, looks again.
const lookAgain = 100 * time.Millisecond

// nextFetch makes the next Fetch of all that can be fetched.
func (f *Fetcher) nextFetch(now time.Time) Ask {
	r := &f.fetch
	r.Partitions, r.Forgotten = r.Partitions[:0], r.Forgotten[:0]
	var until time.Time
	ready := 0
	for _, w := range f.order {
		if w.phase == dead || w.phase == busy {
			f.forget(w)
			continue
		}
		if now.Before(w.notBefore) || w.phase != fetching || !w.unflushed.IsZero() {
			until = earlier(until, f.again(w, now))
			f.forget(w)
			continue
		}
		if f.cfg.Hold != nil && f.cfg.Hold(w.p, now) {
			w.notBefore = now.Add(lookAgain)
			until = earlier(until, w.notBefore)
			f.forget(w)
			continue
		}
		o := w.p.log.Offsets()
		want := FetchPartition{
			FetchKey:  w.fetchKey(),
			Epoch:     w.epoch,
			Offset:    o.End,
			LastEpoch: w.p.log.LatestEpoch(),
			LogStart:  o.LogStart,
			MaxBytes:  f.cfg.PartitionBytes,
		}
		w.sent = o.End
		ready++
		if w.inSession && w.told == want {
			continue
		}
		if !w.inSession && slices.Contains(f.forgotten, w.fetchKey()) {
			// Since that was to be told no request has gone out. The source would add it
			// and then forget it, in one request.
			f.endSession()
			return f.nextFetch(now)
		}
		w.told, w.inSession = want, true
		r.Partitions = append(r.Partitions, want)
	}
	if ready == 0 {
		return Ask{Until: until}
	}
	// An answer that waits must not keep those waiting whose pause is over.
	r.MaxWait = f.cfg.MaxWait
	if !until.IsZero() {
		r.MaxWait = max(0, min(r.MaxWait, until.Sub(now)))
	}
	r.MinBytes, r.MaxBytes = f.cfg.MinBytes, f.cfg.AnswerBytes
	r.Session, r.SessionEpoch = f.session, f.sessionEpoch
	r.Forgotten = append(r.Forgotten, f.forgotten...)
	f.forgotten = f.forgotten[:0]
	return Ask{Fetch: r}
}

// again is when to look again at w, of which nothing can be fetched now; at a flush,
// after as long as it has taken until now.
func (f *Fetcher) again(w *following, now time.Time) time.Time {
	if now.Before(w.notBefore) || w.unflushed.IsZero() {
		return later(w.notBefore, now)
	}
	return now.Add(min(now.Sub(w.unflushed), lookAgain))
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// Rebuild is a log that must start again at the archived end.
type Rebuild struct {
	Partition *Partition
	Epoch     int32
	w         *following
}

// NextRebuild says which log is to be rebuilt, if any: Partition.Rebuild does it,
// waits for the archive, and should hold up nothing else; Rebuilt tells what came
// of it.
func (f *Fetcher) NextRebuild(now time.Time) (Rebuild, bool) {
	for _, w := range f.order {
		if w.phase == rebuilding && !now.Before(w.notBefore) {
			w.phase = busy
			return Rebuild{w.p, w.epoch, w}, true
		}
	}
	return Rebuild{}, false
}
