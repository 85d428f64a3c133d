package broker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/broker/config"
	"firn/broker/group"
	"firn/replication"
)

// coordinator keeps the consumer groups whose partition of __consumer_offsets is
// led here: one shard per partition.
//
//	hash of the group's id ─▶ partition of __consumer_offsets ─▶ its leader (F1)
//
//	this broker leads ─▶ shard ─▶ loads all records ─▶ answers ─▶ leads no more: gone
//
// Locks, each taken before those below it: coordinator.mu and a shard's mu are
// never held together; a shard's mu, then timers'.
type coordinator struct {
	topics  func() *topicIndex
	now     func() time.Time
	log     *slog.Logger
	changed *signal // of the broker: topics or roles
	config  group.Config
	// commitTimeout is how long a request waits for its write to be committed
	// (offsets.commit.timeout.ms).
	commitTimeout time.Duration
	// expiry is how often offsets are looked through for those past their time.
	expiry time.Duration

	timers  timers
	loading sync.WaitGroup
	// lost asks for a look: a shard has ended by itself.
	lost chan struct{}

	// listed is raised when mu.shards has changed.
	listed signal
	mu     struct {
		sync.RWMutex
		shards map[int32]*shard
	}
}

func newCoordinator(b *Broker) *coordinator {
	c := &coordinator{topics: b.topics.Load, now: b.now, log: b.log, changed: &b.changed, lost: make(chan struct{}, 1)}
	c.timers.init(b.now)
	c.mu.shards = map[int32]*shard{}
	if b.cfg.Settings != nil {
		c.configure(b.cfg.Settings)
	}
	return c
}

// configure reads the settings, all of which are fixed at start.
func (c *coordinator) configure(s *config.Broker) {
	c.config = group.Config{
		InitialDelay: s.Millis("group.initial.rebalance.delay.ms"),
		MinSession:   s.Millis("group.min.session.timeout.ms"),
		MaxSession:   s.Millis("group.max.session.timeout.ms"),
		MaxSize:      int(s.Int("group.max.size")),
		Retention:    time.Duration(s.Int("offsets.retention.minutes")) * time.Minute,
		MaxMetadata:  int(s.Int("offset.metadata.max.bytes")),
	}
	c.commitTimeout = s.Millis("offsets.commit.timeout.ms")
	c.expiry = max(s.Millis("offsets.retention.check.interval.ms"), time.Millisecond)
}

// run follows the leadership of __consumer_offsets until ctx ends.
func (c *coordinator) run(ctx context.Context) error {
	var timing sync.WaitGroup
	timing.Go(func() { c.timers.run(ctx) })
	expiry := time.NewTicker(c.expiry)
	defer expiry.Stop()
	seen := c.topics()
	for ctx.Err() == nil {
		changed := c.changed.wait()
		x := c.topics()
		c.follow(ctx, x)
		if x != seen {
			c.forgetDeleted(seen, x)
			seen = x
		}
		select {
		case <-changed:
		case <-c.lost:
		case <-expiry.C:
			c.expire()
		case <-ctx.Done():
		}
	}
	c.loading.Wait()
	for _, s := range c.list() {
		s.unload()
	}
	timing.Wait()
	return nil
}

// follow makes a shard of each partition that this broker has come to lead, and
// ends those of the others. A new epoch is a new shard, even under the same
// leader: what was written in between decides.
func (c *coordinator) follow(ctx context.Context, x *topicIndex) {
	t := x.byName[offsetsTopic]
	for i, s := range c.snapshot() {
		if t.partition(i) != s.part || !s.leads() || s.gone() {
			c.set(i, nil)
			s.unload()
		}
	}
	if t == nil {
		return
	}
	for p, part := range t.parts {
		if part == nil {
			continue
		}
		if _, epoch, here := part.Leader(); here && c.get(int32(p)) == nil {
			s := newShard(c, part, int32(p), epoch)
			c.set(int32(p), s)
			c.loading.Go(func() { s.load(ctx) })
		}
	}
}

func (c *coordinator) get(p int32) *shard {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.shards[p]
}

func (c *coordinator) set(p int32, s *shard) {
	c.mu.Lock()
	if s == nil {
		delete(c.mu.shards, p)
	} else {
		c.mu.shards[p] = s
	}
	c.mu.Unlock()
	c.listed.raise()
}

func (c *coordinator) snapshot() map[int32]*shard {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.mu.shards)
}

func (c *coordinator) list() []*shard {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Values(c.mu.shards))
}

// loadPatience is how long a request waits for its shard to load before it is
// told to come back: most load at once, and a client's back-off is longer.
const loadPatience = 250 * time.Millisecond

// shard finds the shard of a group, or the Kafka error that says why it isn't here.
func (c *coordinator) shard(ctx context.Context, groupID string) (*shard, error) {
	t := c.topics().byName[offsetsTopic]
	if t == nil {
		return nil, kerr.NotCoordinator
	}
	p := coordinatorPartition(groupID, len(t.Replicas))
	patience := time.NewTimer(loadPatience)
	defer patience.Stop()
	for {
		listed := c.listed.wait()
		_, epoch, here := leaderOf(t.partition(p))
		if !here {
			return nil, kerr.NotCoordinator
		}
		ready := listed
		if s := c.get(p); s != nil && s.epoch == epoch {
			select {
			case <-s.ready:
				return s, nil
			default:
			}
			ready = s.ready
		}
		select {
		case <-ready:
		case <-patience.C:
			return nil, kerr.CoordinatorLoadInProgress
		case <-ctx.Done():
			return nil, kerr.CoordinatorNotAvailable
		}
	}
}

func leaderOf(p *replication.Partition) (id, epoch int32, here bool) {
	if p == nil {
		return -1, -1, false
	}
	m, epoch, here := p.Leader()
	return m.ID, epoch, here
}

// coordinatorPartition is the partition of __consumer_offsets that a group
// belongs to: Java's String.hashCode, as Kafka has it.
func coordinatorPartition(groupID string, partitions int) int32 {
	var h int32
	for _, unit := range utf16.Encode([]rune(groupID)) {
		h = 31*h + int32(unit)
	}
	if h < 0 {
		h = -h
	}
	if h < 0 { // there is no positive twin of the smallest int32
		h = 0
	}
	return h % int32(max(partitions, 1))
}

// loadingShards counts the shards that are not at work yet.
func (c *coordinator) loadingShards() (n int) {
	for _, s := range c.list() {
		select {
		case <-s.ready:
		default:
			n++
		}
	}
	return n
}

// expire has every shard drop the offsets that are past their time.
func (c *coordinator) expire() {
	for _, s := range c.list() {
		s.expire()
	}
}

// forgetDeleted deletes the offsets of topics that are gone, so that another
// topic of that name doesn't inherit them (F7).
func (c *coordinator) forgetDeleted(old, now *topicIndex) {
	gone := map[string][16]byte{}
	for id, t := range old.byID {
		if now.byID[id] == nil {
			gone[t.Name] = id
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, s := range c.list() {
		s.forget(gone)
	}
}
