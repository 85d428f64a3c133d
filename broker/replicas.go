package broker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"firn/replication"
	"firn/replication/isr"
	"firn/replication/meta"
	"firn/segment"
	"firn/segment/vfs"
	"firn/tiering"
)

// replicas are the partitions that this broker hosts. image alone changes them,
// by apply; everybody may look.
type replicas struct {
	node int32
	dir  *segment.Dir
	fs   vfs.FS
	path string // of dir
	// archive is nil if there is none. With one, every log but the internal
	// topics' goes through it: whether it uploads is the topic's to say.
	archive *tiering.Archive
	// self is this broker in its current registration.
	self func() meta.Member
	// lease is the broker's; nil if it needs none.
	lease *replication.Lease
	// topicInfo is what the archive is to know of a topic.
	topicInfo func(tiering.TopicID) tiering.TopicInfo
	// changed is raised when a replica has taken a new role.
	changed *signal
	// moved is told of each replica that has taken a new role; nil: nobody is.
	moved func(*replication.Partition)
	// reconfigured asks for a round of retention: settings have changed.
	reconfigured chan<- struct{}
	// deleted asks for the removal of deleted topics from the archive.
	deleted chan<- struct{}
	log     *slog.Logger
	// ctx ends when the broker stops: a change of role may take as long as the
	// archive does, so it outlives the round that began it.
	ctx   context.Context
	roles sync.WaitGroup

	lost lostLogs

	mu struct {
		sync.RWMutex
		all map[replicaKey]*replica
		// cramped are the topics that have a replica here without a log, since the
		// disk has no space for one; image tries again.
		cramped map[meta.TopicID]bool
		// unopened are why logs can't be opened, though there is space.
		unopened map[segment.TopicPartition]error
	}
}

type replicaKey struct {
	topic meta.TopicID
	index int32
}

// replica is one partition on this broker: its log, and its part in replication.
type replica struct {
	key   replicaKey
	name  segment.TopicPartition
	local *segment.Log
	// tiered is local with what is archived of it; nil for a log without archive.
	tiered *tiering.Log
	part   *replication.Partition
	// What log, archive and part were last told; image's alone.
	options segment.Options
	policy  tiering.Policy
	rules   isr.Rules
	mending mending

	mu struct {
		sync.Mutex
		// want is the state to take on, nil if there is none beyond what it has;
		// busy: a goroutine is at it, which newer cancels for a newer state.
		want  *meta.PartitionState
		busy  bool
		newer context.CancelFunc
		// failed: the last try to take on a state failed; hopeless is why, if no
		// other try of the same would help.
		failed   bool
		hopeless error
	}
}

const (
	// openers bounds the logs that are opened at once: more than a few make no
	// disk faster.
	openers = 8
	// roleWait is how long a round waits for its replicas to take their roles
	// before it is published all the same; what takes longer waits for the archive.
	roleWait = 2 * time.Second
)

// get returns a hosted replica, nil if there is none.
func (rs *replicas) get(topic meta.TopicID, p int32) *replica {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return rs.mu.all[replicaKey{topic, p}]
}

// list returns all replicas.
func (rs *replicas) list() []*replica {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return slices.Collect(maps.Values(rs.mu.all))
}

// apply brings the replicas from picture old to next, and enters them there.
// Topics that are gone go first: one of them may have left its name to another.
// anew has every replica take on its state, though it be the one that it had: this
// broker's registration is another.
func (rs *replicas) apply(ctx context.Context, old, next *topicIndex, anew bool) error {
	var gone []*topic
	for id, t := range old.byID {
		switch {
		case next.byID[id] != nil:
		case next.vanished[id]:
			if err := rs.abandon(ctx, t); err != nil {
				return err
			}
		default:
			gone = append(gone, t)
		}
	}
	if err := rs.drop(ctx, gone); err != nil {
		return err
	}
	if len(gone) > 0 {
		select {
		case rs.deleted <- struct{}{}:
		default: // asked for already
		}
	}
	if err := rs.leave(ctx, old, next); err != nil {
		return err
	}

	cramped := rs.takeCramped() // drawn anew, every time
	var g errgroup.Group
	g.SetLimit(openers)
	var moving sync.WaitGroup
	for id, t := range next.byID {
		before := old.byID[id]
		if before == t && !anew {
			continue
		}
		for p := range t.Replicas {
			if !slices.Contains(t.Replicas[p], rs.node) {
				continue
			}
			g.Go(func() error {
				rs.bring(next, before, t, int32(p), anew, cramped[id], &moving)
				return nil
			})
		}
	}
	_ = g.Wait() // a replica that can't be opened is logged, and doesn't hold up the others
	waitAtMost(ctx, &moving, roleWait)
	return nil
}

// takeCramped returns the topics whose logs wait for space, to be tried again.
func (rs *replicas) takeCramped() map[meta.TopicID]bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	was := rs.mu.cramped
	rs.mu.cramped = nil
	return was
}

// isCramped: a log of the topic waits for space.
func (rs *replicas) isCramped(id meta.TopicID) bool {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return rs.mu.cramped[id]
}

func (rs *replicas) anyCramped() bool {
	rs.mu.RLock()
	defer rs.mu.RUnlock()
	return len(rs.mu.cramped) > 0
}

// notOpened tells of a log that can't be opened. Of one that waits for space that
// was told when it began to.
func (rs *replicas) notOpened(t *topic, p int32, err error, told bool) {
	if !errors.Is(err, segment.ErrNoSpace) {
		rs.log.Error("partition can't be opened", "topic", t.Name, "partition", p, "err", err)
		rs.mu.Lock()
		defer rs.mu.Unlock()
		if rs.mu.unopened == nil {
			rs.mu.unopened = map[segment.TopicPartition]error{}
		}
		rs.mu.unopened[segment.TopicPartition{Topic: t.Name, Partition: p}] = err
		return
	}
	if !told {
		rs.log.Error("partition can't be opened; will retry until the disk has space", "topic", t.Name, "partition", p, "err", err)
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.mu.cramped == nil {
		rs.mu.cramped = map[meta.TopicID]bool{}
	}
	rs.mu.cramped[t.ID] = true
}

// bring makes one replica what picture next says, and enters it there. cramped: its
// log may have waited for space.
func (rs *replicas) bring(next *topicIndex, before, t *topic, p int32, anew, cramped bool, moving *sync.WaitGroup) {
	r := rs.get(t.ID, p)
	opened := r == nil
	if opened {
		if name := (segment.TopicPartition{Topic: t.Name, Partition: p}); rs.lost.has(name) && !rs.openLost(t, name) {
			return
		}
		var err error
		if r, err = rs.open(next, t, p); err != nil {
			rs.notOpened(t, p, err, cramped)
			return
		}
	}
	if r.configure(next, t) {
		select {
		case rs.reconfigured <- struct{}{}:
		default: // asked for already
		}
	}
	t.parts[p] = r.part
	if t.states[p].LeaderEpoch >= 0 && (anew || opened || before == nil || int(p) >= len(before.states) || before.states[p].Version != t.states[p].Version) {
		moving.Add(1)
		rs.become(r, t.states[p], moving.Done)
	}
}

// configure takes on a topic's settings, and says whether its log's have changed.
func (r *replica) configure(x *topicIndex, t *topic) (changed bool) {
	if o := logOptions(t.settings, x.settings, t.internal, r.tiered != nil); o != r.options {
		r.local.SetOptions(o)
		r.options, changed = o, true
	}
	if p := policyOf(t.settings, x.settings); r.tiered != nil && p != r.policy {
		r.tiered.SetPolicy(p)
		r.policy, changed = p, true
	}
	if rules := rulesOf(t, r.key.index); rules != r.rules {
		r.part.SetRules(rules)
		r.rules = rules
	}
	return changed
}

func rulesOf(t *topic, p int32) isr.Rules {
	return isr.Rules{MinInsync: t.settings.MinInsyncReplicas, Replicas: len(t.Replicas[p]), Unclean: t.settings.UncleanLeaderElection}
}

// open opens or creates a replica's log.
func (rs *replicas) open(x *topicIndex, t *topic, p int32) (*replica, error) {
	r := &replica{
		key:     replicaKey{t.ID, p},
		name:    segment.TopicPartition{Topic: t.Name, Partition: p},
		options: logOptions(t.settings, x.settings, t.internal, rs.archives(t)),
		policy:  policyOf(t.settings, x.settings),
		rules:   rulesOf(t, p),
	}
	if err := rs.openLocal(r); err != nil {
		return nil, err
	}
	var log replication.Log = r.local
	if rs.archives(t) {
		if err := rs.openArchived(r); err != nil {
			return nil, err
		}
		log = r.tiered
	}
	r.part = replication.New(replication.Config{Topic: t.Name, TopicID: t.ID, Index: p, Log: log, Rules: r.rules, Lease: rs.lease})
	if errors.Is(r.local.Err(), segment.ErrQuarantined) {
		rs.mend(rs.ctx, r, acceptsLoss(t, p)) // before anybody is told that it is given up
	}
	rs.mu.Lock()
	rs.mu.all[r.key] = r
	delete(rs.mu.unopened, r.name)
	rs.mu.Unlock()
	return r, nil
}

// archives: the topic's logs go through the archive.
func (rs *replicas) archives(t *topic) bool { return rs.archive != nil && !t.internal }

// openLocal opens the log on disk.
func (rs *replicas) openLocal(r *replica) (err error) {
	if r.local = rs.dir.Get(r.name); r.local != nil && r.local.TopicID() == r.key.topic {
		return nil // an earlier try came so far
	}
	r.local, err = rs.dir.Open(r.name, r.key.topic, r.options)
	if errors.Is(err, segment.ErrTopicID) {
		// Of another topic that had this name. It isn't ours to delete (B10, B14).
		var aside string
		if aside, err = rs.dir.SetAside(r.name); err != nil {
			return err
		}
		rs.log.Warn("log of another topic with the same name set aside", "topic", r.name.Topic, "partition", r.name.Partition, "dir", aside)
		r.local, err = rs.dir.Open(r.name, r.key.topic, r.options)
	}
	return err
}

// archiveOpenWait bounds how long the opening of a log waits for the archive;
// what it must know before it leads, it waits for then.
const archiveOpenWait = 5 * time.Second

// openArchived joins the log with its archived part.
func (rs *replicas) openArchived(r *replica) (err error) {
	ctx, cancel := context.WithTimeout(rs.ctx, archiveOpenWait)
	defer cancel()
	id := tiering.TopicID(r.key.topic)
	r.tiered, err = rs.archive.Open(ctx, r.local, tiering.PartitionConfig{
		Partition: tiering.Partition{Topic: r.name.Topic, ID: id, Num: r.name.Partition},
		Policy:    r.policy,
		Topic:     func() tiering.TopicInfo { return rs.topicInfo(id) },
		FS:        rs.fs,
		Dir:       filepath.Join(rs.path, r.name.String()),
	})
	return err
}

// drop ends the replicas of deleted topics, and deletes their logs.
func (rs *replicas) drop(ctx context.Context, gone []*topic) error {
	var keys []replicaKey
	var names []segment.TopicPartition
	for _, t := range gone {
		for p := range t.Replicas {
			if !slices.Contains(t.Replicas[p], rs.node) {
				continue
			}
			keys = append(keys, replicaKey{t.ID, int32(p)})
			names = append(names, segment.TopicPartition{Topic: t.Name, Partition: int32(p)})
			if r := rs.get(t.ID, int32(p)); r != nil {
				if err := rs.end(ctx, r); err != nil {
					return err
				}
			}
		}
	}
	rs.forget(keys, names)
	return nil
}

// abandon ends the replicas of a topic that is gone without a trace of its
// deletion, and keeps their logs (B10).
func (rs *replicas) abandon(ctx context.Context, t *topic) error {
	for p := range t.Replicas {
		r := rs.get(t.ID, int32(p))
		if r == nil {
			continue
		}
		if err := rs.end(ctx, r); err != nil {
			return err
		}
		rs.mu.Lock()
		delete(rs.mu.all, r.key)
		rs.mu.Unlock()
		if err := r.local.Close(); err != nil {
			rs.log.Warn("closing a stray log", "topic", t.Name, "partition", p, "err", err)
		}
		rs.log.Warn("stray log: its topic is gone, and nothing says that it was deleted; it is kept and not served",
			"topic", t.Name, "partition", p, "topic_id", t.ID.String())
	}
	return nil
}

// end ends what the replica does, for good.
func (rs *replicas) end(ctx context.Context, r *replica) error {
	r.abandon()
	if err := r.part.Stop(ctx); err != nil {
		return err
	}
	if rs.moved != nil {
		rs.moved(r.part)
	}
	if r.tiered != nil {
		r.tiered.Close()
	}
	return nil
}

// stop ends every replica's role. Its logs stay open.
func (rs *replicas) stop(ctx context.Context) {
	for _, r := range rs.list() {
		r.abandon()
		if err := r.part.Stop(ctx); err != nil {
			rs.log.Warn("partition doesn't stop", "topic", r.name.Topic, "partition", r.name.Partition, "err", err)
		}
	}
	rs.roles.Wait()
}
