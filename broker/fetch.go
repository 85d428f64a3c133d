package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/broker/wire"
	"firn/replication"
	"firn/segment"
)

// fetcher is what a connection needs to answer Fetch requests, used again for each.
type fetcher struct {
	req     wire.FetchRequest
	resp    wire.FetchResponse
	parts   []fetchPart // what this request reads, in the order of reading
	bodies  []body
	aborted []wire.Aborted
	nodes   []wire.Node
	topic   topicCache
	waiter  *replication.Waiter
	timer   *time.Timer
	until   segment.Until
	session *session // the last one that this connection used
	replica replicaFetch
	// follower: a replica that follows may answer (KIP-392).
	follower bool
}

// fetchPart is a partition of a Fetch request and what was read of it.
type fetchPart struct {
	name []byte
	id   [16]byte
	want wire.FetchPartition
	told *sessionPart // of an incremental fetch

	t    *topic
	p    *replication.Partition
	code int16 // 0: there is an answer in res
	// fixed: code was known without reading, and reading again won't change it.
	fixed bool
	skip  bool // an incremental fetch doesn't mention it
	res   segment.ReadResult
	// diverging is not of epoch -1 where a replica must cut its log first.
	diverging segment.EpochEnd
	// preferred is the replica that a consumer should rather read from, -1 for none.
	preferred int32
	// offsets: only those are asked for, for the replica is throttled.
	offsets bool
}

// noOffsets goes with an error.
var noOffsets = segment.Offsets{LogStart: -1, HighWatermark: -1, Stable: -1}

// answerFetch answers a Fetch request when it has what it asks for, or when its
// time is up. polls ends the wait when the broker stops.
func (c *conn) answerFetch(ctx, polls context.Context, h wire.RequestHeader, body []byte) error {
	if wire.FetchFlexible(h.Version) {
		var err error
		if body, err = wire.SkipHeaderTags(body); err != nil {
			return &badRequest{err}
		}
	}
	if c.fetch == nil {
		c.fetch = &fetcher{waiter: replication.NewWaiter()}
	}
	f := c.fetch
	if err := f.req.Parse(h.Version, body); err != nil {
		return &badRequest{err}
	}
	if err := c.acks.drain(ctx); err != nil {
		return err
	}
	defer f.reset()
	f.until = segment.UntilHighWatermark
	if f.req.Isolation == 1 {
		f.until = segment.UntilStable
	}
	f.follower = h.Version >= 11
	f.replica = noReplica
	if f.req.ReplicaID >= 0 {
		c.meetReplica(f)
	}
	s, code := f.begin(c.s.sessions)
	if code != 0 {
		return c.writeFetchError(h, code)
	}
	c.resolve(f)
	switch {
	case f.replica.admitted():
		c.noteReplica(f)
	case len(f.req.Rack) > 0 && f.follower:
		c.preferReplicas(f)
	}
	if err := c.await(polls, f); err != nil {
		return err
	}
	return c.writeFetch(h, f, s)
}

// begin finds or begins the session that a request belongs to and lists the
// partitions to read. Without a session s is nil.
func (f *fetcher) begin(cache *sessionCache) (s *session, code int16) {
	r := &f.req
	f.parts = f.parts[:0]
	if r.SessionEpoch == initialEpoch || r.SessionEpoch == finalEpoch {
		if r.SessionID != noSession { // a full fetch ends the session that it names
			if old := f.find(cache, r.SessionID); old != nil && old.replica == f.replica.Member {
				cache.remove(old)
			}
			f.session = nil
		}
		f.listRequest()
		if r.SessionEpoch == initialEpoch && (r.ReplicaID < 0 || f.replica.admitted()) {
			s = cache.create(r, f.replica.Member)
			f.session = s
			f.attach(s)
		}
		return s, 0
	}
	s = f.find(cache, r.SessionID)
	if s == nil || s.replica != f.replica.Member {
		return nil, kerr.FetchSessionIDNotFound.Code
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.epoch != r.SessionEpoch:
		return nil, kerr.InvalidFetchSessionEpoch.Code
	case s.byID != (r.Version >= 13):
		return nil, kerr.FetchSessionTopicIDError.Code
	}
	s.updateLocked(r)
	if len(s.parts) != s.counted {
		cache.resize(s, len(s.parts))
	}
	if len(s.parts) == 0 {
		cache.remove(s)
		f.session = nil
		return nil, 0
	}
	f.session = s
	s.used.Store(cache.now().UnixMilli())
	s.epoch = nextEpoch(s.epoch)
	f.replica.proven = s.answered
	for p := s.first; p != nil; p = p.next {
		f.parts = append(f.parts, fetchPart{name: p.name, id: p.id, want: p.want, told: p})
	}
	return s, 0
}

// find finds a session, the connection's own without the cache's lock.
func (f *fetcher) find(cache *sessionCache, id int32) *session {
	if s := f.session; s != nil && s.id == id && !s.gone.Load() {
		return s
	}
	return cache.get(id)
}

func (f *fetcher) listRequest() {
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		for _, want := range f.req.Partitions[t.From:t.Below] {
			f.parts = append(f.parts, fetchPart{name: t.Name, id: t.ID, want: want})
		}
	}
}

// attach connects the partitions of a new session's first fetch, so that the
// session learns what the client is told.
func (f *fetcher) attach(s *session) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range f.parts {
		p := &f.parts[i]
		key := string(p.name)
		if p.name == nil {
			key = string(p.id[:])
		}
		p.told = s.parts[sessionKey{key, p.want.Index}]
	}
}

// resolve finds the partitions, and the errors that need no reading.
func (c *conn) resolve(f *fetcher) {
	index := c.s.b.topics.Load()
	for i := range f.parts {
		p := &f.parts[i]
		p.diverging, p.preferred = segment.EpochEnd{Epoch: -1, End: -1}, -1
		p.t = f.topic.find(index, p.name, p.id)
		switch {
		case f.req.ReplicaID >= 0 && f.replica.refused(p.t, p.want.Index) != 0:
			p.fail(f.replica.refused(p.t, p.want.Index))
		case p.t == nil && p.name == nil:
			p.fail(kerr.UnknownTopicID.Code)
		case p.t == nil || p.want.Index < 0 || int(p.want.Index) >= len(p.t.parts):
			p.fail(kerr.UnknownTopicOrPartition.Code)
		case p.t.partition(p.want.Index) == nil:
			p.fail(kerr.NotLeaderForPartition.Code)
		default:
			p.p = p.t.partition(p.want.Index)
		}
	}
}

func (p *fetchPart) fail(code int16) {
	p.code, p.fixed = code, true
	p.res.Offsets = noOffsets
}

// await reads until there is enough to answer or the time is up.
func (c *conn) await(polls context.Context, f *fetcher) error {
	most := min(int(f.req.MaxBytes), c.s.net.FetchMaxBytes)
	least := min(int(f.req.MinBytes), most)
	got, now := f.read(most)
	wait := time.Duration(f.req.MaxWaitMillis) * time.Millisecond
	if now || got >= least || wait <= 0 || len(f.parts) == 0 {
		return nil
	}
	if err := c.flush(); err != nil { // what is held back shall not wait as well
		return err
	}
	if f.timer == nil {
		f.timer = time.NewTimer(wait)
	} else {
		f.timer.Reset(wait)
	}
	c.waits.Store(true)
	defer c.waits.Store(false)
	defer f.timer.Stop()
	defer f.waiter.Reset(0)
	for {
		f.waiter.Reset(int64(least - got))
		if !f.register() {
			f.releaseRead()
			if over := f.sleep(polls); over {
				f.read(most)
				return nil
			}
		}
		if got, now = f.read(most); now || got >= least {
			return nil
		}
	}
}

// read reads all partitions. It says how many bytes there are, and whether
// there is an error that the client should hear of now: one about leaders or
// topics. An error of the storage is held until the time is up, since clients ask
// again at once.
func (f *fetcher) read(most int) (got int, now bool) {
	for i := range f.parts {
		p := &f.parts[i]
		if p.fixed {
			now = true
			continue
		}
		p.res.Records.Release()
		p.res, p.code = segment.ReadResult{}, 0
		view := replication.View{Epoch: p.want.LeaderEpoch, Follower: f.follower, Replica: f.replica.admitted()}
		if p.want.LeaderEpoch < 0 {
			view.Epoch = replication.AnyEpoch
		}
		var err error
		if left := most - got; (left > 0 || got == 0) && !p.offsets {
			p.res, err = p.p.Read(segment.ReadRequest{
				Offset:   p.want.Offset,
				MaxBytes: max(0, min(int(p.want.MaxBytes), left)),
				Until:    f.until,
				MinOne:   got == 0,
				Whole:    f.replica.admitted(),
			}, view)
		} else {
			p.res.Offsets, err = p.p.Offsets(view)
		}
		if err != nil {
			p.res.Records.Release()
			p.res = segment.ReadResult{Offsets: noOffsets}
			p.code = fetchCode(err)
			if p.code != kerr.KafkaStorageError.Code && p.code != kerr.CorruptMessage.Code {
				now = true
			}
			continue
		}
		got += p.res.Records.Len()
	}
	return got, now
}

// register makes the waiter wait on all partitions, and says whether something
// has come meanwhile.
func (f *fetcher) register() (come bool) {
	for i := range f.parts {
		p := &f.parts[i]
		if p.fixed || p.code != 0 {
			continue
		}
		// What was visible has been read, as far as it may be.
		past := max(p.want.Offset, p.res.Offsets.Bound(f.until))
		f.waiter.Add(p.p, past, f.until)
		o, err := p.p.Offsets(replication.View{Epoch: replication.AnyEpoch, Follower: f.follower, Replica: f.replica.admitted()})
		if err != nil || o.Bound(f.until) > past || o.LogStart > p.want.Offset {
			come = true
		}
	}
	return come
}

// releaseRead lets go of what was read, which pins files, before a wait.
func (f *fetcher) releaseRead() {
	for i := range f.parts {
		f.parts[i].res.Records.Release()
	}
}

// sleep waits for news; over says that there will be none in time.
func (f *fetcher) sleep(polls context.Context) (over bool) {
	if f.cold() {
		return f.sleepCold(polls)
	}
	select {
	case <-f.waiter.C():
		return false
	case <-f.timer.C:
	case <-polls.Done():
	}
	return true
}

// fetchCodes are the codes that a consumer may find beside a partition. On any
// other the Java client throws, and drops records that it has read already.
var fetchCodes = []*kerr.Error{
	kerr.OffsetOutOfRange, kerr.CorruptMessage, kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition,
	kerr.ReplicaNotAvailable, kerr.TopicAuthorizationFailed, kerr.KafkaStorageError, kerr.FencedLeaderEpoch,
	kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable, kerr.UnknownTopicID, kerr.InconsistentTopicID,
}

// fetchCode is the code for an error of reading; what has no place in a Fetch
// answer is our own trouble, and passes.
func fetchCode(err error) int16 {
	ke := kafkaError(err)
	for _, known := range fetchCodes {
		if errors.Is(ke, known) {
			return ke.Code
		}
	}
	return kerr.KafkaStorageError.Code
}

// reset lets go of what a request left.
func (f *fetcher) reset() {
	f.releaseRead()
	if cap(f.parts) > 1024 { // a rare large request leaves nothing behind
		f.parts, f.bodies, f.waiter = nil, nil, replication.NewWaiter()
	}
	clear(f.parts)
	f.parts = f.parts[:0]
	f.topic = topicCache{}
}

// close ends what the fetcher holds.
func (f *fetcher) close() {
	if f.timer != nil {
		f.timer.Stop()
	}
}
