package broker

import (
	"bytes"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"firn/broker/wire"
	"firn/replication/meta"
	"firn/segment"
)

// Fetch sessions (KIP-227): a client names its partitions once, and then only
// what changes; the answer names only partitions with news.
//
// An incremental request gets its session mostly from its connection's memory of
// the last one, so that the cache's lock is taken when a session begins or ends,
// or moves to another connection.

// Special epochs of a session, and the id of none.
const (
	initialEpoch = 0
	finalEpoch   = -1
	noSession    = 0
)

// evictAfter is how long a session is safe from larger ones, and how long an
// unused one from all others (Kafka's min.incremental.fetch.session.eviction.ms).
const evictAfter = 2 * time.Minute

// maxSessionPartitions bounds the partitions of all sessions together. Who gets
// no session is answered all the same: with every partition each time.
const maxSessionPartitions = 500_000

func nextEpoch(e int32) int32 {
	switch {
	case e < 0:
		return finalEpoch
	case e == math.MaxInt32:
		return 1
	}
	return e + 1
}

// session is what a client's incremental fetches build on.
type session struct {
	id   int32
	byID bool // topics are named by id: v13 and later
	// replica is whose it is; of ID -1 for a consumer's.
	replica meta.Member
	created time.Time
	used    atomic.Int64 // Unix milliseconds
	gone    atomic.Bool  // no longer in the cache
	counted int          // partitions that the cache has counted; of the cache

	mu    sync.Mutex
	epoch int32
	// answered is when a replica was last answered: its next request in the
	// session proves that it has followed us then.
	answered time.Time
	parts    map[sessionKey]*sessionPart
	first    *sessionPart // the order in which they are read
	last     *sessionPart
}

type sessionKey struct {
	topic string // the name, or the id's 16 bytes
	index int32
}

// sessionPart is a partition of a session: what to fetch, and what the client
// was told of it last.
type sessionPart struct {
	prev, next *sessionPart

	name []byte
	id   [16]byte
	want wire.FetchPartition

	highWatermark int64
	logStart      int64
	// epoch is the leader epoch in which a replica was answered last, -1 for none.
	epoch int32
}

// unknown is a position that no answer equals, so that the next is told.
const unknown = -1

func (s *session) append(p *sessionPart) {
	p.prev, p.next = s.last, nil
	if s.last == nil {
		s.first = p
	} else {
		s.last.next = p
	}
	s.last = p
}

func (s *session) unlink(p *sessionPart) {
	if p.prev == nil {
		s.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		s.last = p.prev
	} else {
		p.next.prev = p.prev
	}
}

// toEnd lets the others go first the next time.
func (s *session) toEnd(p *sessionPart) {
	s.unlink(p)
	s.append(p)
}

// updateLocked takes over what a request says: new partitions, changed ones,
// and those to forget.
func (s *session) updateLocked(r *wire.FetchRequest) {
	for i := range r.Topics {
		t := &r.Topics[i]
		key := topicKey(t)
		for _, want := range r.Partitions[t.From:t.Below] {
			p := s.parts[sessionKey{key, want.Index}]
			if p == nil {
				p = &sessionPart{id: t.ID, highWatermark: unknown, logStart: unknown, epoch: -1}
				if t.Name != nil {
					p.name = bytes.Clone(t.Name)
				}
				s.parts[sessionKey{key, want.Index}] = p
				s.append(p)
			}
			p.want = want
		}
	}
	for i := range r.Forgotten {
		t := &r.Forgotten[i]
		key := topicKey(t)
		for _, index := range r.ForgottenPartitions[t.From:t.Below] {
			if p := s.parts[sessionKey{key, index}]; p != nil {
				delete(s.parts, sessionKey{key, index})
				s.unlink(p)
			}
		}
	}
}

func topicKey(t *wire.FetchTopic) string {
	if t.Name != nil {
		return string(t.Name)
	}
	return string(t.ID[:])
}

// newsLocked says whether the client must be told of p, and notes what it is told;
// more: there is something else to tell.
func (p *sessionPart) newsLocked(code int16, records int, o *segment.Offsets, more bool) bool {
	news := records > 0 || more
	if p.highWatermark != o.HighWatermark {
		p.highWatermark, news = o.HighWatermark, true
	}
	if p.logStart != o.LogStart {
		p.logStart, news = o.LogStart, true
	}
	if code != 0 {
		p.highWatermark, news = unknown, true // when the error goes, that is news too
	}
	return news
}

// sessionCache holds the sessions of all connections.
type sessionCache struct {
	slots int
	now   func() time.Time

	mu struct {
		sync.Mutex
		byID  map[int32]*session
		parts int // of all
	}
}

func newSessionCache(slots int, now func() time.Time) *sessionCache {
	c := &sessionCache{slots: slots, now: now}
	c.mu.byID = map[int32]*session{}
	return c
}

func (c *sessionCache) get(id int32) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.byID[id]
}

func (c *sessionCache) remove(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(s)
}

func (c *sessionCache) removeLocked(s *session) {
	if s.gone.CompareAndSwap(false, true) {
		delete(c.mu.byID, s.id)
		c.mu.parts -= s.counted
	}
}

// resize counts the partitions of s, which is no longer served if they are too many.
func (c *sessionCache) resize(s *session, parts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.gone.Load() {
		return
	}
	c.mu.parts += parts - s.counted
	s.counted = parts
	if c.mu.parts > maxSessionPartitions {
		c.removeLocked(s)
	}
}

// create begins a session with the partitions of r; nil if there is no room.
func (c *sessionCache) create(r *wire.FetchRequest, replica meta.Member) *session {
	n := len(r.Partitions)
	if n == 0 {
		return nil
	}
	now := c.now()
	s := &session{byID: r.Version >= 13, replica: replica, created: now, epoch: nextEpoch(initialEpoch), parts: make(map[sessionKey]*sessionPart, n)}
	s.used.Store(now.UnixMilli())
	s.updateLocked(r) // nobody else knows it yet
	s.counted = len(s.parts)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.byID) >= c.slots && !c.evictLocked(now, n, replica.ID >= 0) || c.mu.parts+n > maxSessionPartitions {
		return nil
	}
	for s.id == noSession || c.mu.byID[s.id] != nil {
		s.id = rand.Int32()
	}
	c.mu.byID[s.id] = s
	c.mu.parts += s.counted
	return s
}

// evictLocked makes room for a session of n partitions: the one that has not
// been used for longest goes if that is long, else the smallest, if it has had its
// time and the new one, being larger, gains more. For a replica's any consumer's goes.
func (c *sessionCache) evictLocked(now time.Time, n int, replica bool) bool {
	var oldest, smallest, consumer *session
	for _, s := range c.mu.byID {
		if s.replica.ID < 0 && (consumer == nil || s.used.Load() < consumer.used.Load()) {
			consumer = s
		}
		if oldest == nil || s.used.Load() < oldest.used.Load() {
			oldest = s
		}
		if s.replica.ID < 0 && now.Sub(s.created) > evictAfter && (smallest == nil || s.counted < smallest.counted) {
			smallest = s
		}
	}
	switch {
	case oldest != nil && now.UnixMilli()-oldest.used.Load() > evictAfter.Milliseconds():
		c.removeLocked(oldest)
	case smallest != nil && smallest.counted < n:
		c.removeLocked(smallest)
	case replica && consumer != nil:
		c.removeLocked(consumer)
	default:
		return false
	}
	return true
}
