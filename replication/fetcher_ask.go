package replication

import "time"

// Ask is what a Fetcher wants of its source next; exactly one of its fields is set,
// or none: then there is nothing to do before Until, which is zero for "before
// something is to be followed". It is good until the next call to the Fetcher.
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

// Next says what to ask the source for now. It flushes what is due first (S6).
func (f *Fetcher) Next(now time.Time) Ask {
	if now.Before(f.notBefore) {
		return Ask{Until: f.notBefore}
	}
	f.ends, f.starts = f.ends[:0], f.starts[:0]
	for _, w := range f.order {
		if now.Before(w.notBefore) {
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
	switch {
	case len(f.ends) > 0:
		return Ask{Ends: f.ends}
	case len(f.starts) > 0:
		return Ask{Starts: f.starts}
	}
	return f.nextFetch(now)
}

// lookAgain is how often a replica that waits, for its repair or for nobody to
// count on it any more, or is held back, looks again.
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
		if now.Before(w.notBefore) || w.phase != fetching {
			until = earlier(until, later(w.notBefore, now))
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
		if o.Counted < o.End {
			if err := w.p.log.FlushDue(); err != nil {
				f.trouble(w, err, now)
				f.forget(w)
				continue
			}
		}
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
