package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/group"
	"firn/replication"
	"firn/segment"
)

// shard is the groups of one partition of __consumer_offsets, in one leader epoch.
//
// mu covers a decision together with the append of what it wrote: so the log has
// the records in the order in which they were decided, which is the order in
// which the next coordinator takes them (F5). The append is a write to the page
// cache, no more: what waits for replicas or a flush is unsettled, and waited for
// without the lock.
//
//	decide ─▶ append ─▶ unsettled ─▶ committed ─▶ seen by OffsetFetch, told to members
//
// Unsettled writes are settled by whoever next takes the lock.
type shard struct {
	c     *coordinator
	part  *replication.Partition
	index int32
	epoch int32
	// ready is closed once the shard has loaded, or is gone.
	ready chan struct{}

	mu struct {
		sync.Mutex
		state     shardState
		groups    map[string]*hosted
		last      group.Ticket
		waiting   map[group.Ticket]chan<- kmsg.Response
		unsettled []unsettled
	}
}

type shardState uint8

const (
	shardLoading shardState = iota
	shardActive
	shardGone
)

// hosted is a group in its shard.
type hosted struct {
	*group.Group
	shard *shard
	// open counts its unsettled writes.
	open int
	// timer is its place among timers.
	timer timer
	// told is the state that the log last told of.
	told group.State
}

// unsettled is a write that is appended and not known to be committed.
type unsettled struct {
	appended replication.Appended
	of       *hosted
	deadline time.Time
	// commits are what it does to offsets.
	commits []commit
	// write is what the group waits for, nil for nothing.
	write *group.Write
}

// commit is an offset that is set, or, where it is nil, deleted.
type commit struct {
	partition group.Partition
	offset    *group.Offset
}

func newShard(c *coordinator, p *replication.Partition, index, epoch int32) *shard {
	s := &shard{c: c, part: p, index: index, epoch: epoch, ready: make(chan struct{})}
	s.mu.groups = map[string]*hosted{}
	s.mu.waiting = map[group.Ticket]chan<- kmsg.Response{}
	return s
}

// leads: this broker still leads in the shard's epoch.
func (s *shard) leads() bool {
	_, epoch, here := s.part.Leader()
	return here && epoch == s.epoch
}

// enter takes the lock if the shard is at work; then the caller must unlock it.
func (s *shard) enter() error {
	s.mu.Lock()
	switch {
	case s.mu.state == shardLoading:
		s.mu.Unlock()
		return kerr.CoordinatorLoadInProgress
	case s.mu.state == shardGone || !s.leads() || !s.part.Answers():
		s.mu.Unlock()
		return kerr.NotCoordinator
	}
	s.settleLocked()
	return nil
}

// groupLocked returns a group, made if need be.
func (s *shard) groupLocked(name string) *hosted {
	h := s.mu.groups[name]
	if h == nil {
		h = s.hostLocked(group.New(name, &s.c.config, s.c.now()))
	}
	return h
}

func (s *shard) hostLocked(g *group.Group) *hosted {
	h := &hosted{Group: g, shard: s, timer: timer{at: -1}, told: g.State()}
	s.mu.groups[g.Name()] = h
	return h
}

// tidyLocked forgets a group of which nothing is left.
func (s *shard) tidyLocked(h *hosted) {
	if h.open == 0 && h.Vacant() && s.mu.groups[h.Name()] == h {
		delete(s.mu.groups, h.Name())
	}
}

// carryOutLocked does what a group's input has led to.
func (s *shard) carryOutLocked(h *hosted, e group.Effects) {
	for _, w := range e.Writes {
		if _, err := s.writeLocked(h, w.Records, nil, w); err != nil {
			s.c.log.Warn("group's metadata not written", "group", h.Name(), "err", err)
			s.carryOutLocked(h, h.Written(s.c.now(), w, groupError(err)))
		}
	}
	s.deliverLocked(e.Replies)
	if s.mu.groups[h.Name()] != h {
		return
	}
	if state := h.State(); state != h.told {
		h.told = state
		s.c.log.Info("group", "group", h.Name(), "state", state, "generation", h.Generation(), "members", h.Size())
	}
	s.c.timers.schedule(h)
	s.tidyLocked(h)
}

func (s *shard) deliverLocked(replies []group.Reply) {
	for _, r := range replies {
		if c := s.mu.waiting[r.To]; c != nil {
			delete(s.mu.waiting, r.To)
			c <- r.Message // has room for the one
		}
	}
}

// writeLocked appends a group's records, and settles them at once if they are
// committed. commits is what they do to offsets, w what the group waits for.
func (s *shard) writeLocked(h *hosted, records []group.Record, commits []commit, w *group.Write) (replication.Appended, error) {
	a, err := s.appendLocked(records)
	if err != nil {
		return a, err
	}
	h.open++
	s.mu.unsettled = append(s.mu.unsettled, unsettled{
		appended: a, of: h, deadline: s.c.now().Add(s.c.commitTimeout), commits: commits, write: w,
	})
	s.settleLocked()
	return a, nil
}

func (s *shard) appendLocked(records []group.Record) (replication.Appended, error) {
	now := s.c.now().UnixMilli()
	b, err := groupBatches(records, now)
	if err != nil {
		return replication.Appended{}, err
	}
	return s.part.Append(b, replication.AppendOptions{
		Epoch: s.epoch, All: true, Origin: segment.OriginCoordinator, Now: now,
	})
}

// settleLocked takes what has been committed, in the order of the log.
func (s *shard) settleLocked() {
	for len(s.mu.unsettled) > 0 && s.mu.state == shardActive {
		u := s.mu.unsettled[0]
		done, err := s.part.Acked(u.appended)
		switch {
		case errors.Is(err, replication.ErrNotEnoughReplicasAfterAppend):
			// It is committed all the same; its client is told of the doubt.
		case err != nil:
			// Another leader decides what becomes of it, or, if the log has failed
			// (S4), what is left of it: the shard begins anew with what it finds.
			s.unloadLocked()
			select {
			case s.c.lost <- struct{}{}:
			default:
			}
			return
		case !done:
			s.overdueLocked()
			return
		}
		s.mu.unsettled = s.mu.unsettled[1:]
		u.of.open--
		for _, c := range u.commits {
			if c.offset == nil {
				u.of.DeleteOffset(c.partition)
			} else {
				u.of.SetOffset(c.partition, *c.offset)
			}
		}
		if u.write != nil {
			s.carryOutLocked(u.of, u.of.Written(s.c.now(), u.write, nil))
		}
		s.tidyLocked(u.of)
	}
}

// overdueLocked tells groups that wait too long for a write that it has failed,
// as far as they are concerned. If it is committed later, that is in the log.
func (s *shard) overdueLocked() {
	now := s.c.now()
	for i := range s.mu.unsettled {
		if u := &s.mu.unsettled[i]; u.write != nil && now.After(u.deadline) {
			w, h := u.write, u.of
			u.write = nil
			s.carryOutLocked(h, h.Written(now, w, kerr.CoordinatorNotAvailable))
			return // the queue may have changed; the next call goes on
		}
	}
}

// unload ends the shard: whoever waits is sent to look for the coordinator anew.
func (s *shard) unload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unloadLocked()
}

// gone: the shard has ended.
func (s *shard) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.state == shardGone
}

func (s *shard) unloadLocked() {
	if s.mu.state == shardGone {
		return
	}
	if s.mu.state == shardLoading {
		close(s.ready)
	}
	s.mu.state = shardGone
	for _, h := range s.mu.groups {
		s.deliverLocked(h.Abandon(kerr.NotCoordinator).Replies)
		s.c.timers.drop(h)
	}
	clear(s.mu.groups)
	s.mu.unsettled = nil
}

// parkLocked makes a ticket, and the channel on which its answer comes.
func (s *shard) parkLocked() (group.Ticket, <-chan kmsg.Response) {
	c := make(chan kmsg.Response, 1)
	s.mu.last++
	s.mu.waiting[s.mu.last] = c
	return s.mu.last, c
}

// await waits for the answer to a ticket. nil: ctx has ended, or there is no lease
// to tell it under, for another coordinator may have decided otherwise.
func (s *shard) await(ctx context.Context, t group.Ticket, answer <-chan kmsg.Response) kmsg.Response {
	m := s.awaitAny(ctx, t, answer)
	if s.leads() && !s.part.Answers() {
		return nil
	}
	return m
}

// awaitAny is await whatever the lease says. Whoever waits here while there are
// unsettled writes sees to it that they are settled.
func (s *shard) awaitAny(ctx context.Context, t group.Ticket, answer <-chan kmsg.Response) kmsg.Response {
	select {
	case m := <-answer:
		return m
	default:
	}
	w := replication.NewWaiter()
	defer w.Reset(0)
	for {
		var overdue <-chan time.Time
		if offset, deadline, ok := s.oldest(); ok {
			w.Reset(0)
			w.Add(s.part, offset, segment.UntilHighWatermark)
			timer := time.NewTimer(max(deadline.Sub(s.c.now()), 0) + time.Millisecond)
			defer timer.Stop()
			overdue = timer.C
			s.settle()
		}
		select {
		case m := <-answer:
			return m
		case <-w.C():
		case <-overdue:
		case <-ctx.Done():
			s.mu.Lock()
			delete(s.mu.waiting, t)
			s.mu.Unlock()
			return nil
		}
		s.settle()
	}
}

func (s *shard) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked()
}

// oldest is the first write that is unsettled and waited for by its group.
func (s *shard) oldest() (offset int64, deadline time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.mu.unsettled {
		if u := &s.mu.unsettled[i]; u.write != nil && u.write.Awaited() {
			return u.appended.Last, u.deadline, true
		}
	}
	return 0, time.Time{}, false
}

// committed waits until an append is committed, and says with which Kafka error
// it isn't.
func (s *shard) committed(ctx context.Context, a replication.Appended) error {
	if done, err := s.part.Acked(a); done || err != nil {
		return asError(groupError(err))
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.commitTimeout)
	defer cancel()
	w := replication.NewWaiter()
	defer w.Reset(0)
	w.Add(s.part, a.Last, segment.UntilHighWatermark)
	for {
		if done, err := s.part.Acked(a); done || err != nil {
			return asError(groupError(err))
		}
		select {
		case <-w.C():
		case <-ctx.Done():
			return kerr.CoordinatorNotAvailable
		}
	}
}

// groupError is what a group's client is told of a write that failed. Clients of
// groups don't know the codes of Produce.
func groupError(err error) *kerr.Error {
	switch ke := kafkaError(err); ke {
	case kerr.UnknownTopicOrPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut:
		return kerr.CoordinatorNotAvailable
	case kerr.NotLeaderForPartition, kerr.KafkaStorageError, kerr.FencedLeaderEpoch:
		return kerr.NotCoordinator
	case kerr.MessageTooLarge, kerr.RecordListTooLarge:
		return kerr.UnknownServerError
	default:
		return ke
	}
}

// asError keeps a nil *kerr.Error from becoming an error that isn't nil.
func asError(e *kerr.Error) error {
	if e == nil {
		return nil
	}
	return e
}
