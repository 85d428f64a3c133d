package broker

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"firn/broker/peer"
	"firn/replication"
)

// followers have this broker's replicas follow their leaders: for each source
// num.replica.fetchers goroutines, each with a Fetcher and a connection. A change
// of that number holds for what is assigned from then on.
//
//	role taken on ─▶ assign ─▶ Fetcher of its leader ─▶ Next ─▶ peer ─▶ Take… ─┐
//	                                                     ▲────────────────────┘
type followers struct {
	b    *Broker
	log  *slog.Logger
	seed maphash.Seed
	// rebuilds bounds the logs that are rebuilt from the archive at once.
	rebuilds chan struct{}
	// bytesIn and bytesOut count the records that replication has brought here
	// and taken away.
	bytesIn, bytesOut atomic.Int64

	mu struct {
		sync.Mutex
		ctx     context.Context // nil before run
		sources map[sourceKey]*source
		of      map[*replication.Partition]*source
		// hung are replicas whose disks keep their sources from going on: those
		// have nobody else any more, and nobody else has them.
		hung map[*replication.Partition]*source
		wait sync.WaitGroup
	}
}

// sourceKey is one of the fetchers of one broker.
type sourceKey struct {
	broker  int32
	fetcher int
}

// maxRebuilds is how many logs are started again at the archived end at once.
const maxRebuilds = 4

func newFollowers(b *Broker) *followers {
	fs := &followers{b: b, log: b.log, seed: maphash.MakeSeed(), rebuilds: make(chan struct{}, maxRebuilds)}
	fs.mu.sources = map[sourceKey]*source{}
	fs.mu.of = map[*replication.Partition]*source{}
	fs.mu.hung = map[*replication.Partition]*source{}
	return fs
}

// run lets what is assigned be followed until ctx ends.
func (fs *followers) run(ctx context.Context) error {
	fs.mu.Lock()
	fs.mu.ctx = ctx
	fs.mu.Unlock()
	for _, r := range fs.b.replicas.list() {
		fs.assign(r.part)
	}
	fs.watch(ctx)
	fs.mu.Lock()
	for _, s := range fs.mu.sources {
		s.client.Close()
	}
	fs.mu.Unlock()
	fs.mu.wait.Wait()
	return nil
}

// assign has a replica followed as its role says now; it is called after each
// change of it.
func (fs *followers) assign(p *replication.Partition) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.assignLocked(p)
}

func (fs *followers) assignLocked(p *replication.Partition) {
	if fs.mu.ctx == nil || fs.mu.ctx.Err() != nil || fs.mu.hung[p] != nil {
		return
	}
	leader, epoch, ok := p.Follows()
	old := fs.mu.of[p]
	var next *source
	if ok && leader.ID != fs.b.cfg.NodeID {
		next = fs.sourceLocked(leader.ID, p)
	}
	if old != nil && old != next {
		old.change(func(f *replication.Fetcher) { f.Unfollow(p) })
		delete(fs.mu.of, p)
	}
	if next != nil {
		fs.mu.of[p] = next
		next.change(func(f *replication.Fetcher) { f.Follow(p, epoch) })
	}
}

// sourceLocked is the fetcher that follows p from a broker.
func (fs *followers) sourceLocked(broker int32, p *replication.Partition) *source {
	c := fs.b.settings()
	id := p.TopicID()
	n := uint64(max(1, c.Int("num.replica.fetchers")))
	key := sourceKey{broker, int((maphash.Bytes(fs.seed, id[:]) + uint64(p.Index())) % n)}
	if s := fs.mu.sources[key]; s != nil {
		return s
	}
	s := newSource(fs, key)
	fs.mu.sources[key] = s
	ctx := fs.mu.ctx
	fs.mu.wait.Go(func() { s.run(ctx) })
	return s
}

// maxLag is Kafka's MaxLag: how many committed records the replica furthest behind lacks.
func (fs *followers) maxLag() (lag int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, s := range fs.mu.sources {
		lag = max(lag, s.fetcher.MaxLag())
	}
	return lag
}

// source is a fetcher of one broker, with its connection and goroutine.
type source struct {
	fs     *followers
	key    sourceKey
	client *peer.Client
	more   chan struct{} // something has changed

	mu struct {
		sync.Mutex
		// changes are what others want of the fetcher.
		changes []func(*replication.Fetcher)
		// polling: a fetch is under way, which an interrupt may end.
		polling   bool
		lastBreak time.Time
		writing
	}

	// The rest is the goroutine's own. What it does with an answer waits for disks,
	// which must hold up nobody who has a change.
	fetcher *replication.Fetcher
	fetched replication.FetchAnswer
	ends    []replication.EpochAnswer
	starts  []replication.StartAnswer
}

func newSource(fs *followers, key sourceKey) *source {
	c, broker := fs.b.settings(), key.broker
	s := &source{
		fs:   fs,
		key:  key,
		more: make(chan struct{}, 1),
		client: peer.New(peer.Config{
			Self:          fs.b.self,
			Address:       func() (string, error) { return fs.b.peerAddress(broker) },
			Dial:          fs.b.cfg.Dial,
			Timeout:       c.Millis("replica.socket.timeout.ms"),
			ReceiveBuffer: fs.receiveBuffer(),
			ClientID:      "firn-replica-" + strconv.Itoa(int(fs.b.cfg.NodeID)),
		}),
	}
	s.fetcher = replication.NewFetcher(replication.FetcherConfig{
		Self:           fs.b.cfg.NodeID,
		PartitionBytes: int32(c.Int("replica.fetch.max.bytes")),
		AnswerBytes:    int32(c.Int("replica.fetch.response.max.bytes")),
		MinBytes:       int32(c.Int("replica.fetch.min.bytes")),
		MaxWait:        c.Millis("replica.fetch.wait.max.ms"),
		Backoff:        c.Millis("replica.fetch.backoff.ms"),
		GivenUp:        fs.b.replicaLost,
		Hold:           fs.hold,
		Enter:          s.enter,
		Fetched:        fs.fetched,
		Log:            fs.log.With("source", broker),
	})
	return s
}

// receiveBuffer is the user's, where there is one: Kafka's default would halve what
// a connection carries.
func (fs *followers) receiveBuffer() int {
	if c := fs.b.settings(); c.IsSet("replica.socket.receive.buffer.bytes") {
		return int(c.Int("replica.socket.receive.buffer.bytes"))
	}
	return 0
}

// breakAfter is how long a poll is let be before another may be broken off.
const breakAfter = 20 * time.Millisecond

// change has the fetcher's goroutine change what is followed, before it asks or
// takes an answer again. A poll that waits for records would keep what is new
// waiting, so it is broken off, though not again and again.
func (s *source) change(do func(*replication.Fetcher)) {
	s.mu.Lock()
	s.mu.changes = append(s.mu.changes, do)
	if s.mu.polling && time.Since(s.mu.lastBreak) > breakAfter {
		s.mu.lastBreak = time.Now()
		s.client.Interrupt()
	}
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// run drives the fetcher until ctx ends.
func (s *source) run(ctx context.Context) {
	defer s.client.Close()
	for ctx.Err() == nil && s.leave() {
		ask := s.next(ctx)
		var err error
		switch {
		case ask.Fetch != nil:
			err = s.client.Fetch(ctx, ask.Fetch, &s.fetched)
		case ask.Ends != nil:
			s.ends, err = s.client.EpochEnds(ctx, ask.Ends, s.ends[:0])
		case ask.Starts != nil:
			s.starts, err = s.client.Starts(ctx, ask.Starts, s.starts[:0])
		default:
			s.sleep(ctx, ask.Until)
			continue
		}
		s.take(ctx, &ask, err)
	}
}

// next makes the changes and says what to ask. The lock lets no change come between
// that and the poll, which would keep it waiting.
func (s *source) next(ctx context.Context) replication.Ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeChangesLocked()
	now := time.Now()
	s.startRebuilds(ctx, now)
	ask := s.fetcher.Next(now)
	s.mu.polling = ask.Fetch != nil
	return ask
}

func (s *source) makeChangesLocked() {
	for _, do := range s.mu.changes {
		do(s.fetcher)
	}
	clear(s.mu.changes)
	s.mu.changes = s.mu.changes[:0]
}

func (s *source) take(ctx context.Context, ask *replication.Ask, err error) {
	s.mu.Lock()
	s.mu.polling = false
	s.makeChangesLocked()
	s.mu.Unlock()
	now := time.Now()
	switch {
	case errors.Is(err, peer.ErrInterrupted):
		s.fetcher.Interrupted()
	case err != nil:
		if ctx.Err() == nil {
			s.fs.log.Warn("a broker that is followed doesn't answer", "err", err)
		}
		s.fetcher.Unreachable(now)
	case ask.Fetch != nil:
		s.fetcher.TakeFetch(ctx, &s.fetched, now)
	case ask.Ends != nil:
		s.fetcher.TakeEnds(s.ends, now)
	case ask.Starts != nil:
		s.fetcher.TakeStarts(s.starts, now)
	}
}

// startRebuilds begins the rebuilds that are due, each in the background: they
// wait for the archive.
func (s *source) startRebuilds(ctx context.Context, now time.Time) {
	for {
		r, ok := s.fetcher.NextRebuild(now)
		if !ok {
			return
		}
		s.fs.mu.wait.Go(func() {
			select {
			case s.fs.rebuilds <- struct{}{}:
				defer func() { <-s.fs.rebuilds }()
			case <-ctx.Done():
				return
			}
			err := r.Partition.Rebuild(ctx, r.Epoch)
			s.change(func(f *replication.Fetcher) { f.Rebuilt(r, err, time.Now()) })
		})
	}
}

// sleep waits until then, for ever if it is zero, or until something changes or is
// flushed.
func (s *source) sleep(ctx context.Context, until time.Time) {
	var c <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		c = t.C
	}
	select {
	case <-c:
	case <-s.more:
	case <-s.fetcher.Flushed():
	case <-ctx.Done():
	}
}

var errNoAddress = errors.New("broker: not registered, or without a listener between brokers")

// peerAddress is where another broker takes the requests of brokers.
func (b *Broker) peerAddress(id int32) (string, error) {
	e := endpoint(b.topics.Load().broker(id), b.interBroker)
	if e == nil {
		return "", errNoAddress
	}
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))), nil
}

// replicaLost is called when a replica's log can't go on as it is: what it has must
// be discarded, and is given up first (S7).
func (b *Broker) replicaLost(p *replication.Partition, err error) {
	b.log.Error("a replica has lost what it was counted for", "topic", p.Topic(), "partition", p.Index(), "err", err)
	select {
	case b.relistDue <- struct{}{}:
	default: // asked for already
	}
}

// hold: the partition is throttled, and isn't in sync.
func (fs *followers) hold(p *replication.Partition, now time.Time) bool {
	t := fs.b.topics.Load().byID[p.TopicID()]
	return t.has(p.Index()) && fs.b.waits(t, p.Index(), now) && !p.InSync(fs.b.cfg.NodeID)
}

// fetched counts what was fetched.
func (fs *followers) fetched(p *replication.Partition, bytes int, now time.Time) {
	fs.bytesIn.Add(int64(bytes))
	t := fs.b.topics.Load().byID[p.TopicID()]
	if t.has(p.Index()) && t.throttledFollowers.has(p.Index(), fs.b.cfg.NodeID) {
		fs.b.throttles.follower.Moved(now, bytes)
	}
}
