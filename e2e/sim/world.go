package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"firn/replication/meta"
	"firn/segment"
	"firn/tiering"
)

// world is a cluster with all that it runs on, its clients, and what goes wrong.
type world struct {
	plan     plan
	s        *sched
	counts   *counts
	zk       *zookeeper
	bucket   *bucket
	machines []*machine
	replicas []int32
	topicID  meta.TopicID
	identity tiering.Identity
	history  *history
	archives []archived
	tree     []treeState
	seen     [][]*seen
	jitter   bool
	// traceDisk has the trace show what changes on disks.
	traceDisk bool

	clients sync.WaitGroup
	stop    context.CancelFunc // of the clients
	healing bool

	mu struct {
		sync.Mutex
		failure  error
		producer int64
		leaders  []int32 // by partition, as clients may know
	}
}

// fail notes that an invariant doesn't hold. The first one ends the run.
func (w *world) fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	w.s.trace.note("violation", "%v", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.failure == nil {
		w.mu.failure = err
	}
}

func (w *world) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.failure
}

// producerID is the id of a new producer.
func (w *world) producerID() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.producer++
	return w.mu.producer
}

func newWorld(p plan, t *trace) (*world, error) {
	s := newSched(p.seed, t)
	c := newCounts()
	w := &world{plan: p, s: s, counts: c, zk: newZooKeeper(s, c), bucket: newBucket(s, c)}
	w.history = newHistory(w, p.partitions)
	w.archives = make([]archived, p.partitions)
	for i := range w.archives {
		w.archives[i].verified = map[string]bool{}
	}
	w.bucket.wrote, w.bucket.deleting = w.wroteObject, w.deletingObject
	for i := range brokers {
		w.machines = append(w.machines, &machine{
			w: w, id: int32(i), cut: map[int32]bool{},
			skew: time.Duration(s.rng.IntN(4000)-2000) * time.Millisecond, segmentBytes: int64(900 + s.rng.IntN(1800)),
		})
		w.machines[i].wipe()
		w.replicas = append(w.replicas, int32(i))
		w.seen = append(w.seen, make([]*seen, p.partitions))
	}
	ctx := context.Background()
	if err := meta.Init(ctx, w.zk.eye); err != nil {
		return nil, err
	}
	w.topicID = meta.TopicID{1}
	t1 := meta.Topic{Name: topic, ID: w.topicID}
	for i := range p.partitions {
		list := slices.Clone(w.replicas)
		t1.Replicas = append(t1.Replicas, append(list[i%brokers:], list[:i%brokers]...))
	}
	if err := meta.CreateTopic(t1, map[string]string{"min.insync.replicas": fmt.Sprint(minInsync)}).Commit(ctx, w.zk.eye); err != nil {
		return nil, err
	}
	var err error
	w.identity, err = tiering.CheckStart(ctx, w.bucket.mem, tiering.Start{ClusterID: "sim", NewMetadata: true, NewID: func() string { return "archive" }})
	if err != nil {
		return nil, err
	}
	w.watchTree()
	return w, nil
}

// treeState is what the metadata says of a partition.
type treeState struct {
	state meta.PartitionState
	ptr   meta.Pointer
}

// watchTree holds each commit against the invariants of the metadata.
func (w *world) watchTree() {
	w.tree = make([]treeState, w.plan.partitions)
	w.mu.leaders = slices.Repeat([]int32{-1}, w.plan.partitions)
	for i := range w.tree {
		w.tree[i].state = meta.NoState()
	}
	ctx := context.Background()
	w.zk.committed = func(who string, ops []meta.Op) {
		for i := range w.tree {
			part, t := int32(i), &w.tree[i]
			if writes(ops, meta.StatePath(topic, part)) {
				before := t.state
				var err error
				if t.state, err = meta.LoadState(ctx, w.zk.eye, topic, part); err != nil {
					w.fail("state of %d: %v", part, err)
				}
				s := t.state
				w.mu.Lock()
				w.mu.leaders[i] = s.Leader.ID
				w.mu.Unlock()
				w.s.trace.note("zookeeper", "%s: partition %d version %d epoch %d leader %v ISR %v eligible %v", who, part, s.Version, s.LeaderEpoch, s.Leader, s.ISR, s.Eligible)
				w.wroteState(who, part, before, s)
			}
			if writes(ops, meta.PointerPath(w.topicID, part)) {
				before := t.ptr
				var err error
				if t.ptr, _, err = meta.LoadPointer(ctx, w.zk.eye, w.topicID, part); err != nil {
					w.fail("pointer of %d: %v", part, err)
				}
				w.s.trace.note("zookeeper", "%s: pointer of %d: sequence %d, log start %d, archived end %d", who, part, t.ptr.Sequence, t.ptr.LogStart, t.ptr.ArchivedEnd)
				w.movedPointer(who, part, before, t.ptr)
			}
		}
	}
}

// writes: ops change the node at path.
func writes(ops []meta.Op, path string) bool {
	return slices.ContainsFunc(ops, func(o meta.Op) bool {
		return o.Path == path && o.Kind != meta.Check && o.Kind != meta.Announce
	})
}

// begin starts the brokers and their clients.
func (w *world) begin() {
	for _, m := range w.machines {
		m.start()
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	n := uint64(0)
	for part := range int32(w.plan.partitions) {
		for i := range w.plan.producers {
			c := newClient(w, fmt.Sprintf("producer %d.%d", part, i), n)
			w.clients.Go(func() { c.produce(ctx, part) })
			n++
		}
		c := newClient(w, fmt.Sprintf("hasty producer %d", part), n)
		w.clients.Go(func() { c.hurry(ctx, part) })
		n++
		for i := range w.plan.consumers {
			c := newClient(w, fmt.Sprintf("consumer %d.%d", part, i), n)
			w.clients.Go(func() { c.consume(ctx, part) })
			n++
		}
	}
	if w.plan.deletes {
		for part := range int32(w.plan.partitions) {
			c := newClient(w, fmt.Sprintf("admin %d", part), n)
			w.clients.Go(func() { c.administer(ctx, part) })
			n++
		}
	}
	w.nemesis(0)
}

// leader is who leads a partition, by the metadata; -1 for nobody.
func (w *world) leader(part int32) int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.leaders[part]
}

// simulate runs one seed to its end, in the bubble of the caller, and returns
// what has been seen. The error is the first invariant that did not hold.
func simulate(p plan, t *trace, disks bool) (*counts, error) {
	w, err := newWorld(p, t)
	if err != nil {
		return nil, err
	}
	w.traceDisk = disks
	w.begin()
	const longest = 3 * time.Minute
	w.s.run(func() bool {
		return w.failed() != nil || w.counts.enough() && time.Since(w.s.began) > 15*time.Second || time.Since(w.s.began) > longest
	}, w.step)
	if w.failed() == nil {
		w.heal()
	}
	w.end()
	return w.counts, w.failed()
}

// step is between two events.
func (w *world) step() {
	w.tend()
	w.check()
}

// heal ends all faults, and waits until the cluster is whole by itself.
func (w *world) heal() {
	w.s.trace.note("world", "heals")
	w.healing = true
	w.endFaults()
	deadline := time.Now().Add(time.Minute)
	due := make([]int64, w.plan.partitions)
	for i := range due {
		due[i] = w.history.end(int32(i))
	}
	w.s.run(func() bool {
		return w.failed() != nil || w.whole() && w.archivedTo(due) || time.Now().After(deadline)
	}, w.step)
	if w.failed() == nil && w.whole() && !w.archivedTo(due) {
		w.fail("the archive doesn't catch up with %v: %s", due, w.describe())
	}
	if w.failed() == nil && w.plan.fills {
		w.fill()
		deadline = time.Now().Add(time.Minute)
	}
	w.stop()
	w.s.run(func() bool {
		return w.failed() != nil || w.level() || time.Now().After(deadline)
	}, w.step)
	if w.failed() == nil && !w.level() {
		w.fail("the cluster does not heal: %s", w.describe())
	}
	if w.failed() == nil {
		w.readAll()
	}
}

// fill fills the disk of a leader, for a while. Others lead for it, though it is still
// in sync, and writes are acknowledged; then it leads again what it is preferred for.
func (w *world) fill() {
	m := w.machines[w.leader(0)]
	w.s.trace.note("world", "fills the disk of %v", m)
	acked := 0
	w.wait("its disk is full, and it leads on", func() bool {
		if w.plan.reserve >= 0 {
			m.proc.dir.SetReserve(math.MaxInt64)
		} else {
			m.proc.faults.SetQuota(0) // what is deleted, somebody else takes
		}
		acked = w.counts.of("acknowledged writes")
		return w.leads(m) == 0
	})
	w.wait("its disk is full, and nothing is acknowledged", func() bool { return w.counts.of("acknowledged writes") >= acked+10 })
	m.proc.dir.SetReserve(w.plan.reserve)
	m.proc.faults.SetQuota(-1)
	w.wait("its disk has room, and it isn't in sync", w.whole)
	if w.plan.balance > 0 {
		w.wait("its disk has room, and it doesn't lead what it should", func() bool {
			for part, t := range w.tree {
				if int32(part%brokers) == m.id && t.state.Leader.ID != m.id {
					return false
				}
			}
			return true
		})
	}
}

// wait waits until ok, within half a minute, or fails in words.
func (w *world) wait(otherwise string, ok func() bool) {
	deadline := time.Now().Add(30 * time.Second)
	w.s.run(func() bool { return w.failed() != nil || ok() || time.Now().After(deadline) }, w.step)
	if w.failed() == nil && !ok() {
		w.fail("%s: %s", otherwise, w.describe())
	}
}

// leads counts the partitions that m leads, by the metadata.
func (w *world) leads(m *machine) (n int) {
	for _, t := range w.tree {
		if t.state.Leader.ID == m.id {
			n++
		}
	}
	return n
}

// whole: every replica runs and is in sync.
func (w *world) whole() bool {
	for part := range int32(w.plan.partitions) {
		s := w.tree[part].state
		if s.Leader == meta.NoLeader || len(s.ISR) < brokers {
			return false
		}
		for _, m := range s.ISR {
			p := w.machines[m.ID].proc
			if p == nil || p.dead() || !p.opened.Load() || p.self() != m || p.parts[part].local.Err() != nil {
				return false
			}
			if _, epoch, _ := p.parts[part].part.Leader(); epoch != s.LeaderEpoch {
				return false
			}
		}
	}
	return true
}

// archivedTo: all that is before these offsets is archived.
func (w *world) archivedTo(due []int64) bool {
	for i := range due {
		if w.tree[i].ptr.ArchivedEnd < due[i] {
			return false
		}
	}
	return true
}

// level: it is whole, and all have everything, committed.
func (w *world) level() bool {
	if !w.whole() {
		return false
	}
	for part := range w.plan.partitions {
		end := w.machines[0].proc.parts[part].local.Offsets().End
		for _, m := range w.machines {
			if o := m.proc.parts[part].local.Offsets(); o.End != end || o.HighWatermark != end {
				return false
			}
		}
	}
	return true
}

// describe says how the cluster stands.
func (w *world) describe() string {
	out := ""
	for part := range int32(w.plan.partitions) {
		s := w.tree[part].state
		out += fmt.Sprintf("\n  partition %d: %+v, committed up to %d", part, s, w.history.end(part))
		for _, m := range w.machines {
			switch p := m.proc; {
			case p == nil || p.dead():
				out += fmt.Sprintf("\n    %v is dead", m)
			case !p.opened.Load():
				out += fmt.Sprintf("\n    %v is starting", m)
			default:
				leader, epoch, here := p.parts[part].part.Leader()
				out += fmt.Sprintf("\n    %s, registered as %v, epoch %d of %v, leads %t, %+v, %v", p.name, p.self(), epoch, leader, here, p.parts[part].tiered.Offsets(), p.parts[part].local.Err())
			}
		}
	}
	return out
}

// readAll reads the whole log through every replica, its archived part from the
// archive: it is the history, once and in order.
func (w *world) readAll() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, m := range w.machines {
			for _, r := range m.proc.parts {
				w.readReplica(m.proc, r)
			}
		}
	}()
	over := false
	w.s.run(func() bool {
		select {
		case <-done:
			over = true
		default:
		}
		return over
	}, w.step)
}

func (w *world) readReplica(p *process, r *replica) {
	who := fmt.Sprintf("the last read of %v by %s", r.tp, p.name)
	at := r.tiered.Offsets().LogStart
	end := w.history.end(r.tp.Num)
	for empty := 0; at < end && w.failed() == nil; {
		res, err := r.tiered.Read(segment.ReadRequest{Offset: at, MaxBytes: 64 << 10, Until: segment.UntilHighWatermark, MinOne: true})
		if errors.Is(err, segment.ErrOffsetOutOfRange) && at < res.Offsets.LogStart {
			at = res.Offsets.LogStart // retention goes on
			continue
		}
		if err != nil && empty > 30 {
			w.fail("T7: %s: offset %d: %v", who, at, err)
			return
		}
		var b []byte
		if err == nil {
			b = contents(&res.Records)
		}
		if len(b) > 0 {
			at, empty = w.history.read(who, r.tp.Num, at, b), 0
			continue
		}
		if empty++; empty > 60 {
			w.fail("T7: %s: nothing at %d, the log ends at %d: %+v", who, at, end, res.Offsets)
			return
		}
		t := time.NewTimer(time.Second)
		select {
		case <-res.Pending:
		case <-t.C:
		}
		t.Stop()
	}
}

// end ends everything that runs.
func (w *world) end() {
	// What never ends would go on in virtual time for ever, and nobody would hear.
	late := time.AfterFunc(time.Hour, func() {
		panic(fmt.Sprintf("sim: seed %d: something of a dead process doesn't end; before that: %v", w.plan.seed, w.failed()))
	})
	defer late.Stop()
	w.stop()
	w.s.stop()
	for _, m := range w.machines {
		if m.proc != nil {
			m.proc.die()
		}
	}
	w.clients.Wait()
	for _, m := range w.machines {
		if m.proc != nil {
			m.proc.bury()
		}
	}
}
