package replication

import (
	"context"
	"errors"
	"time"

	"firn/replication/meta"
	"firn/segment"
)

// FetchAnswer answers a FetchRequest.
type FetchAnswer struct {
	// Err is of the request as a whole; ErrSession: begin a new session.
	Err        error
	Session    int32
	Partitions []PartitionAnswer
}

// PartitionAnswer is the answer about one partition.
type PartitionAnswer struct {
	TopicID meta.TopicID
	Index   int32
	Err     error
	// Diverging is not of epoch -1 where our log is to be cut first.
	Diverging     segment.EpochEnd
	HighWatermark int64
	LogStart      int64
	// Records are good until the answer has been taken.
	Records []byte
}

// EpochAnswer answers an EpochQuestion.
type EpochAnswer struct {
	Topic string
	Index int32
	Err   error
	End   segment.EpochEnd
}

// StartAnswer tells where a log begins.
type StartAnswer struct {
	Topic    string
	Index    int32
	Err      error
	LogStart int64
}

// ErrSession: the source doesn't know the fetch session.
var ErrSession = errors.New("replication: unknown fetch session")

// Unreachable tells that the source has not answered.
func (f *Fetcher) Unreachable(now time.Time) {
	f.endSession()
	f.failures++
	f.notBefore = now.Add(f.backoff(f.failures))
}

// Interrupted tells that the source was not let answer, for there is something
// else to ask first.
func (f *Fetcher) Interrupted() { f.endSession() }

// TakeFetch takes the answer to the last FetchRequest.
func (f *Fetcher) TakeFetch(ctx context.Context, a *FetchAnswer, now time.Time) {
	if a.Err != nil {
		f.endSession()
		if !errors.Is(a.Err, ErrSession) {
			f.log.Warn("the source refuses to be followed", "err", a.Err)
			f.failures++
			f.notBefore = now.Add(f.backoff(f.failures))
		}
		return
	}
	f.failures = 0
	switch {
	case a.Session == 0:
		f.endSession() // it keeps none: each request names all
	case f.sessionEpoch == 0:
		f.session, f.sessionEpoch = a.Session, 1
	default:
		f.sessionEpoch = max(1, f.sessionEpoch+1)
	}
	for i := range a.Partitions {
		a := &a.Partitions[i]
		w := f.parts[partitionKey{a.TopicID, a.Index}]
		switch {
		case w == nil || w.phase != fetching || w.told.Epoch != w.epoch || w.sent != w.p.log.Offsets().End:
			// not what was asked for, any more
		case a.Err != nil:
			f.refused(w, a.Err, now)
		case !f.enter(w):
			return
		default:
			f.takePartition(ctx, w, a, now)
		}
	}
}

func (f *Fetcher) enter(w *following) bool { return f.cfg.Enter == nil || f.cfg.Enter(w.p) }

// takePartition takes what the answer says of one partition.
func (f *Fetcher) takePartition(ctx context.Context, w *following, a *PartitionAnswer, now time.Time) {
	if a.Diverging.Epoch >= 0 || a.Diverging.End >= 0 {
		// What else the answer says is of another history (A3).
		f.truncate(w, a.Diverging, now)
		return
	}
	r := Replicated{a.Records, a.HighWatermark, a.LogStart}
	err := w.p.Replicate(ctx, w.epoch, r)
	if errors.Is(err, segment.ErrOutOfOrder) && f.beginEarlier(w, a.Records) {
		err = w.p.Replicate(ctx, w.epoch, r)
	}
	if err != nil {
		f.trouble(w, err, now)
		return
	}
	w.failures, w.committed = 0, a.HighWatermark
	if f.cfg.Fetched != nil && len(a.Records) > 0 {
		f.cfg.Fetched(w.p, len(a.Records), now)
	}
}

// refused is an error that the source has answered.
func (f *Fetcher) refused(w *following, err error, now time.Time) {
	switch {
	case errors.Is(err, ErrMovedToArchive):
		w.phase = rebuilding
	case errors.Is(err, segment.ErrOffsetOutOfRange):
		w.phase = beginning
	case w.failures > 3 && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrFencedEpoch) && !errors.Is(err, ErrUnknownEpoch):
		f.log.Warn("following a partition", "topic", w.p.topic, "partition", w.p.index, "epoch", w.epoch, "err", err)
	}
	f.pause(w, now)
}

// truncate cuts w's log by what the source has told of an epoch (R5).
func (f *Fetcher) truncate(w *following, theirs segment.EpochEnd, now time.Time) {
	before := w.p.log.Offsets().End
	at, ok, err := w.p.Truncate(w.epoch, theirs)
	if err != nil {
		f.log.Warn("a log can't be cut to its leader's history", "topic", w.p.topic, "partition", w.p.index, "epoch", w.epoch, "at", at, "err", err)
		f.trouble(w, err, now)
		return
	}
	if at < before {
		f.log.Info("log cut to its leader's history", "topic", w.p.topic, "partition", w.p.index, "epoch", w.epoch, "from", before, "to", at)
	}
	w.failures = 0
	w.phase = fetching
	if !ok {
		w.phase = comparing
	}
}

// TakeEnds takes the answers to the last questions about epochs.
func (f *Fetcher) TakeEnds(answers []EpochAnswer, now time.Time) {
	f.failures = 0
	for i := range answers {
		a := &answers[i]
		w := f.byName[nameKey{a.Topic, a.Index}]
		if w == nil || w.phase != comparing || w.askedIn != w.epoch || w.asked != w.p.log.LatestEpoch() {
			continue
		}
		switch {
		case a.Err != nil:
			f.refused(w, a.Err, now)
			w.phase = comparing
		case a.End.Epoch < 0 || a.End.End < 0:
			w.phase = fetching // the fetch will tell
		case !f.enter(w):
			return
		default:
			f.truncate(w, a.End, now)
		}
	}
}

// TakeStarts takes the answers about where logs begin.
func (f *Fetcher) TakeStarts(answers []StartAnswer, now time.Time) {
	f.failures = 0
	for i := range answers {
		a := &answers[i]
		w := f.byName[nameKey{a.Topic, a.Index}]
		if w == nil || w.phase != beginning {
			continue
		}
		if a.Err != nil {
			f.refused(w, a.Err, now)
			w.phase = beginning
			continue
		}
		if !f.enter(w) {
			return
		}
		f.begin(w, a.LogStart, now)
	}
}

// begin starts w's log again where the source's begins, if ours ends before that,
// or is of no use. Else the fetch tells what is wrong with it.
func (f *Fetcher) begin(w *following, start int64, now time.Time) {
	o := w.p.log.Offsets()
	if !w.p.Discards() && o.End >= start && o.LocalStart <= start {
		w.phase = fetching
		f.pause(w, now)
		return
	}
	if err := w.p.BeginAt(w.epoch, start); err != nil {
		f.trouble(w, err, now)
		return
	}
	f.log.Info("log starts again where its leader's begins", "topic", w.p.topic, "partition", w.p.index, "offset", start, "ended_at", o.End)
	w.phase, w.failures = comparing, 0
}

// beginEarlier starts an empty log again where the batch begins that holds its
// start: a log start may lie inside a batch.
func (f *Fetcher) beginEarlier(w *following, records []byte) bool {
	o := w.p.log.Offsets()
	base, ok := firstOffset(records)
	if !ok || o.LocalStart != o.End || base >= o.End {
		return false
	}
	return w.p.BeginAt(w.epoch, base) == nil
}

// Rebuilt tells what came of a rebuild.
func (f *Fetcher) Rebuilt(r Rebuild, err error, now time.Time) {
	w := f.parts[r.w.key]
	if w != r.w || w.phase != busy || w.epoch != r.Epoch || w.p != r.Partition {
		return // it has another role now
	}
	switch {
	case err == nil:
		w.phase, w.failures = comparing, 0
	case errors.Is(err, segment.ErrNotArchived):
		w.phase = beginning
	default:
		w.phase = rebuilding
		f.log.Warn("a log can't be started again at the archived end yet; will retry", "topic", w.p.topic, "partition", w.p.index, "err", err)
		f.pause(w, now)
	}
}
