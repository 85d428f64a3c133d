package replication

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"firn/replication/isr"
	"firn/replication/meta"
	"firn/segment"
)

// Config is what a Partition is made of.
type Config struct {
	Topic   string
	TopicID meta.TopicID
	Index   int32
	// Log is the replica's log. The Partition sets its OnCounted; who opened it
	// closes it, when no call into the Partition is left.
	Log Log
	// Rules are min.insync.replicas and the number of replicas; see SetRules.
	Rules isr.Rules
	// Lease is the broker's; nil where nobody can be elected in its place.
	Lease *Lease
}

// Partition is this broker's replica of a partition. All methods may be called
// at any time by anyone.
//
// Locks, each taken before those below it:
//
//	becoming   one change of role at a time; held while the log makes ready
//	appending  appends, against changes of role and of the ISR: what is checked
//	           before an append holds until it is done
//	mu         the tracker: who is how far
//	waiting    who waits; see Waiter
//
// Reads take none of them: role is an immutable snapshot.
type Partition struct {
	topic   string
	topicID meta.TopicID
	index   int32
	log     Log
	lease   *Lease

	role atomic.Pointer[role]
	// vouched is until when the other members vouch for this leadership, by the
	// lease's clock.
	vouched atomic.Int64
	// discards: see Discards.
	discards atomic.Bool

	becoming  chan struct{} // a lock that hears a ctx
	stopped   bool          // by becoming
	appending sync.Mutex
	mu        struct {
		sync.Mutex
		rules   isr.Rules
		tracker *isr.Tracker // nil while not leading
		proofs  []proof      // of this leadership, at most one per broker
		others  []meta.Member
		// Of the leadership that tracker is of: who fetches, what we have asked
		// the store for, since when we look at who lags, and who has come in
		// while it was listed as having lost the partition.
		followers  []follower
		asked      asked
		began      time.Time
		readmitted []meta.Member
		// state is the last that was taken on, leading or not; rebuild ends the
		// rebuilding of the log that is under way.
		state   meta.PartitionState
		rebuild context.CancelFunc
	}
	waiting waitList
}

// role is what this replica is, as of its last change.
type role struct {
	// leading in epoch, under the registration that the state names (R6).
	leading bool
	epoch   int32
	// leader is the broker that leads, -1 for none.
	leader meta.Member
	// start is where the log ended when this leadership began.
	start int64
	// enough: the ISR suffices for acks=all.
	enough bool
	// alone: what this replica counts is committed; no other counts.
	alone bool
}

// New makes a replica of a partition that neither leads nor follows until Become.
func New(c Config) *Partition {
	p := &Partition{
		topic:    c.Topic,
		topicID:  c.TopicID,
		index:    c.Index,
		log:      c.Log,
		lease:    c.Lease,
		becoming: make(chan struct{}, 1),
	}
	p.mu.rules = c.Rules
	p.mu.state = meta.NoState()
	// R2 holds across restarts: the log remembers the last epoch that it was in.
	p.role.Store(&role{epoch: c.Log.LatestEpoch(), leader: meta.NoLeader})
	c.Log.OnCounted(p.counted)
	return p
}

// Topic is the topic's name.
func (p *Partition) Topic() string { return p.topic }

// TopicID is the topic's id.
func (p *Partition) TopicID() meta.TopicID { return p.topicID }

// Index is the partition's number.
func (p *Partition) Index() int32 { return p.index }

// Leader tells who leads, in which epoch, and whether that is this replica. A
// replica that is still making ready to lead doesn't.
func (p *Partition) Leader() (leader meta.Member, epoch int32, here bool) {
	r := p.role.Load()
	return r.leader, r.epoch, r.leading
}

// AnyEpoch stands for "whichever epoch it is".
const AnyEpoch int32 = -1

// View is how a caller looks at a partition. Its zero value is a leader's in
// epoch 0: say AnyEpoch where no epoch is known.
type View struct {
	// Epoch is the leader epoch that the caller believes in, or AnyEpoch.
	Epoch int32
	// Follower allows an answer by a replica that doesn't lead (KIP-392).
	Follower bool
	// Replica: it is a replica that fetches. Its leader answers past its lease:
	// that is how replicas vouch for it.
	Replica bool
}

// check says whether this replica answers a caller with view v.
func (r *role) check(v View) error {
	switch {
	case v.Epoch != AnyEpoch && v.Epoch < r.epoch:
		return ErrFencedEpoch
	case v.Epoch != AnyEpoch && v.Epoch > r.epoch:
		return ErrUnknownEpoch
	case !r.leading && !v.Follower:
		return ErrNotLeader
	}
	return nil
}

// check says whether this replica answers a caller with view v now, and in which
// role.
func (p *Partition) check(v View) (*role, error) {
	r := p.role.Load()
	if err := r.check(v); err != nil {
		return nil, err
	}
	if r.leading && !v.Replica && !p.surely() {
		return nil, ErrNotLeader
	}
	return r, nil
}

// Read reads as the log does, if this replica answers v.
func (p *Partition) Read(r segment.ReadRequest, v View) (segment.ReadResult, error) {
	role, err := p.check(v)
	if err != nil {
		return segment.ReadResult{}, err
	}
	res, err := p.log.Read(r)
	if err != nil && !role.leading && errors.Is(err, segment.ErrOffsetOutOfRange) && r.Offset > p.log.Offsets().LogStart {
		return res, ErrOffsetNotAvailable // it is not here yet (T7)
	}
	return res, err
}

// Lookup gives the log's lookups, if this replica answers v.
func (p *Partition) Lookup(v View) (Lookup, error) {
	if _, err := p.check(v); err != nil {
		return nil, err
	}
	return p.log, nil
}

// Offsets gives the log's offsets, if this replica answers v.
func (p *Partition) Offsets(v View) (segment.Offsets, error) {
	if _, err := p.check(v); err != nil {
		return segment.Offsets{}, err
	}
	return p.log.Offsets(), nil
}

// Latest is the end of what a client may read. A new leader whose high watermark
// has not reached its epoch's start answers ErrOffsetNotAvailable instead: it
// would tell less than the last leader did (A10 in Kafka: KIP-207).
func (p *Partition) Latest(v View, until segment.Until) (int64, error) {
	r, err := p.check(v)
	if err != nil {
		return 0, err
	}
	o := p.log.Offsets()
	if r.leading && o.HighWatermark < r.start {
		return 0, ErrOffsetNotAvailable
	}
	return o.Bound(until), nil
}
