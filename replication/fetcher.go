package replication

import (
	"bytes"
	"cmp"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"firn/replication/meta"
)

// FetcherConfig is what a Fetcher is made of.
type FetcherConfig struct {
	// Self is this broker's id.
	Self int32
	// PartitionBytes is replica.fetch.max.bytes, AnswerBytes
	// replica.fetch.response.max.bytes, MinBytes and MaxWait the other
	// replica.fetch.* keys.
	PartitionBytes, AnswerBytes, MinBytes int32
	MaxWait                               time.Duration
	// Backoff is replica.fetch.backoff.ms: the longest pause after an error.
	Backoff time.Duration
	// GivenUp is called for a log that can't go on (S4), waits for its repair (S5),
	// or must be discarded (T8): it must be listed. Nothing is discarded before the
	// state no longer counts on this replica (S7). nil: nobody is told.
	GivenUp func(p *Partition, err error)
	// Hold: nothing more of p is fetched for now; nil: nothing is held back.
	Hold func(p *Partition, now time.Time) bool
	// Enter is called before p's log is changed, which waits for its disk. false:
	// others are to follow from now on, and the rest of the answer isn't taken; the
	// Fetcher is of no use any more. nil: go on.
	Enter func(p *Partition) bool
	// Fetched counts the bytes of records that were fetched of p; nil: nobody counts.
	Fetched func(p *Partition, bytes int, now time.Time)
	Log     *slog.Logger
}

// Fetcher is the following side of replication: a step machine that follows
// partitions from one broker. It starts no goroutine, knows no network and no
// clock, and is not safe for concurrent use, but for MaxLag. What takes an answer
// writes to disk, so a lock is no way to share it.
//
//	loop { ask := f.Next(now); carry it to the source; f.Take…(answer, now) }
//
// A partition goes through these phases, in one leader epoch:
//
//	comparing ─ the source tells where our last epoch ends there; cut (R5) ─▶ fetching
//	fetching  ─ records ─▶ append ─▶ the log flushes what is due (S6) ─▶ next fetch
//	          ─ diverging epoch ─▶ cut ─▶ fetching
//	          ─ below the source's log ─▶ beginning ─▶ the log starts again there
//	          ─ only in the archive ─▶ rebuilding ─▶ the log starts again at its end (T8)
//	waiting   ─ damaged: until it is repaired (S5) ─▶ comparing
//	          ─ of another history than the archive: listed, and when nobody counts
//	            on it any more (S7) ─▶ rebuilding
//	dead      ─ failed until restart (S4)
//
// An error holds back its partition alone, with growing pauses, and so does a flush
// that takes long.
type Fetcher struct {
	cfg   FetcherConfig
	log   *slog.Logger
	parts map[partitionKey]*following
	// byName is parts by topic name.
	byName map[nameKey]*following
	order  []*following // by key

	// The fetch session (KIP-227): what the source knows already need not be
	// said again. epoch 0 begins one.
	session      int32
	sessionEpoch int32
	forgotten    []FetchKey // to be told
	// failures and notBefore are of the source as a whole.
	failures  int
	notBefore time.Time
	// flushes waits for the flushes that keep partitions out of the next fetch.
	flushes *Waiter
	lag     atomic.Int64 // see MaxLag

	fetch  FetchRequest
	ends   []EpochQuestion
	starts []FetchKey
}

// FetchKey names a partition in a request.
type FetchKey struct {
	TopicID meta.TopicID
	Topic   string
	Index   int32
}

type partitionKey struct {
	id    meta.TopicID
	index int32
}

type nameKey struct {
	topic string
	index int32
}

type phase uint8

const (
	comparing phase = iota
	fetching
	beginning // up to here the source is asked
	rebuilding
	busy // rebuilding, under way
	waiting
	dead
)

// following is one partition that a Fetcher follows.
type following struct {
	key   partitionKey
	p     *Partition
	epoch int32
	phase phase
	// told is what the session has of it, in which it is if inSession.
	told      FetchPartition
	inSession bool
	// sent is the offset of the fetch that is under way.
	sent int64
	// asked is the epoch that the last question was about, in epoch askedIn.
	asked, askedIn int32
	// committed is the leader's high watermark as last heard.
	committed int64
	// unflushed is since when a flush of its log is waited for; zero: none is.
	unflushed time.Time
	failures  int
	notBefore time.Time
}

// NewFetcher makes a Fetcher that follows nothing yet.
func NewFetcher(c FetcherConfig) *Fetcher {
	f := &Fetcher{cfg: c, log: c.Log, parts: make(map[partitionKey]*following), byName: make(map[nameKey]*following), flushes: NewWaiter()}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	return f
}

// Follow begins to follow p in a leader epoch, or goes on in a newer one.
func (f *Fetcher) Follow(p *Partition, epoch int32) {
	key := partitionKey{p.topicID, p.index}
	w := f.parts[key]
	if w != nil && w.p == p && w.epoch == epoch {
		return
	}
	if w == nil {
		w = &following{key: key}
		f.parts[key] = w
		f.byName[nameKey{p.topic, p.index}] = w
		i, _ := slices.BinarySearchFunc(f.order, key, func(w *following, k partitionKey) int { return w.key.compare(k) })
		f.order = slices.Insert(f.order, i, w)
	}
	w.p, w.epoch, w.phase, w.sent = p, epoch, comparing, -1
	if p.Discards() {
		w.phase = waiting
	}
	w.failures, w.notBefore, w.unflushed = 0, time.Time{}, time.Time{}
	// Who has just been elected is there, whatever it was when it last didn't answer.
	f.failures, f.notBefore = 0, time.Time{}
}

// Unfollow ends the following of p in whatever epoch.
func (f *Fetcher) Unfollow(p *Partition) {
	key := partitionKey{p.topicID, p.index}
	w := f.parts[key]
	if w == nil {
		return
	}
	f.forget(w)
	delete(f.parts, key)
	if k := (nameKey{p.topic, p.index}); f.byName[k] == w { // else of a topic that has its name now
		delete(f.byName, k)
	}
	i, _ := slices.BinarySearchFunc(f.order, key, func(w *following, k partitionKey) int { return w.key.compare(k) })
	f.order = slices.Delete(f.order, i, i+1)
}

func (k partitionKey) compare(o partitionKey) int {
	if c := bytes.Compare(k.id[:], o.id[:]); c != 0 {
		return c
	}
	return cmp.Compare(k.index, o.index)
}

// Len is how many partitions are followed.
func (f *Fetcher) Len() int { return len(f.order) }

func (w *following) fetchKey() FetchKey { return FetchKey{w.key.id, w.p.topic, w.key.index} }

// forget has the session forget w.
func (f *Fetcher) forget(w *following) {
	if w.inSession {
		f.forgotten = append(f.forgotten, w.fetchKey())
		w.inSession = false
	}
}

// endSession begins a new session with the next fetch.
func (f *Fetcher) endSession() {
	f.session, f.sessionEpoch = 0, 0
	f.forgotten = f.forgotten[:0]
	for _, w := range f.order {
		w.inSession = false
	}
}

// pause holds w back after an error: shortly at first, for most errors around an
// election pass at once.
func (f *Fetcher) pause(w *following, now time.Time) {
	w.failures++
	w.notBefore = now.Add(f.backoff(w.failures))
}

const firstBackoff = 10 * time.Millisecond

func (f *Fetcher) backoff(failures int) time.Duration {
	return min(f.cfg.Backoff, firstBackoff<<min(failures-1, 20))
}

// MaxLag is how many records the log furthest behind lacked, when Next was last
// called, of what its leader had committed. Anybody may ask.
func (f *Fetcher) MaxLag() int64 { return f.lag.Load() }
