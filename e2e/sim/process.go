package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"firn/replication"
	"firn/replication/controller"
	"firn/replication/meta"
	"firn/segment"
	"firn/segment/vfs"
	"firn/tiering"
	"firn/tiering/cache"
)

// process is a broker from its start to its end: the production parts, held
// together as package broker holds them, without the protocol.
type process struct {
	w    *world
	m    *machine
	name string
	log  *logBook

	ctx    context.Context
	cancel context.CancelCauseFunc
	gone   once
	wg     sync.WaitGroup

	// crashIn and ioFault are faults of the disk that are waiting to happen;
	// wreck is what a power loss in the midst of things has left.
	crashIn atomic.Int64
	changes atomic.Int64 // of the disk, so far
	ioFault atomic.Bool
	wreck   *vfs.Mem
	leaving once // it is about to stop in order
	left    once // it has
	tended  bool // somebody sees to its end

	zk      *zkClient
	fs      vfs.FS
	faults  *vfs.Injector // below fs
	dir     *segment.Dir
	cache   *cache.Cache
	archive *tiering.Archive
	lease   *replication.Lease
	epochs  brokerEpochs

	parts    []*replica
	fetchers map[int32]*fetcher

	reg     atomic.Pointer[meta.Registration]
	ready   once // has registered once
	opened  once // parts are there
	img     *meta.Image
	last    int64
	cluster struct {
		sync.Mutex
		live    map[int32]meta.Registration
		offline map[int32]meta.Offline
	}
	proposing chan struct{}
}

// replica is one partition on a process.
type replica struct {
	p      *process
	tp     tiering.Partition
	local  *segment.Log
	tiered *tiering.Log
	part   *replication.Partition

	mu    sync.Mutex
	want  *meta.PartitionState
	newer context.CancelFunc // ends the change of role that is under way
	kick  chan struct{}
	// doomed: its log must go, for it doesn't fit its leader's; until the state
	// names it no more.
	doomed atomic.Bool
	seen   int32 // version of the state that was last wanted
}

// start begins a process on m.
func (m *machine) start() {
	m.starts++
	p := &process{w: m.w, m: m, name: fmt.Sprintf("%v.%d", m, m.starts), proposing: make(chan struct{}, 1), fetchers: map[int32]*fetcher{}}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.log = &logBook{p: p}
	p.faults = vfs.Inject(m.disk, m.hook(p))
	p.fs = mortal{p.faults, p.dead}
	p.zk = m.w.zk.client(p)
	m.proc = p
	p.run(func() { p.main() })
}

func (p *process) dead() bool { return p.gone.Load() }

// die ends the process as SIGKILL does: nothing that it does has any effect.
func (p *process) die() {
	if p.gone.CompareAndSwap(false, true) {
		p.cancel(errCrashed)
	}
}

// bury waits for what runs of a dead process, and releases what it holds.
func (p *process) bury() {
	p.die()
	p.wg.Wait()
	if p.archive != nil {
		p.archive.Close()
	}
	if p.cache != nil {
		_ = p.cache.Close()
	}
	if p.dir != nil {
		_ = p.dir.Close(segment.CleanMark{})
	}
}

// run runs f in a goroutine of the process.
func (p *process) run(f func()) { p.wg.Go(f) }

// pause waits, as a step of the named actor of this process.
func (p *process) pause(ctx context.Context, what string, d time.Duration) error {
	return p.w.s.wait(ctx, p.name+" "+what, func() bool { return p.m.paused && !p.dead() }, between(d, d+d/8+time.Microsecond))
}

func (p *process) main() {
	if err := p.open(p.ctx); err != nil {
		if p.ctx.Err() == nil {
			p.w.fail("%s can't start: %v", p.name, err)
		}
		return
	}
	for p.ctx.Err() == nil {
		_, lost := p.zk.Session()
		if err := p.join(p.ctx); err != nil {
			p.log.note("not registered: %v", err)
			if final(err) {
				p.w.fail("%s: %v", p.name, err)
				return
			}
			_ = p.pause(p.ctx, "waits to register", 300*time.Millisecond)
			continue
		}
		p.live(lost)
	}
}

// final: there is no use in trying again. That another is registered under our id
// passes when its session ends (B1).
func final(err error) bool {
	return errors.Is(err, meta.ErrRolledBack)
}

// retry does f until it succeeds.
func (p *process) retry(ctx context.Context, what string, f func() error) error {
	for {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := p.pause(ctx, what, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// out: the replica doesn't hold what it was counted for (S7).
func (r *replica) out() bool {
	return r.local.Err() != nil || r.tiered.Diverged() || r.doomed.Load()
}

func (r *replica) lost() meta.Lost {
	return meta.Lost{Topic: meta.TopicID(r.tp.ID), Partition: r.tp.Num}
}

// live does what a member does until its session ends (Z1).
func (p *process) live(lost <-chan struct{}) {
	ctx, end := context.WithCancel(p.ctx)
	defer end()
	reg := *p.reg.Load()
	var parts sync.WaitGroup
	parts.Go(func() { p.follow(as(ctx, "follows")) })
	parts.Go(func() { p.keepLease(ctx, reg) })
	parts.Go(func() {
		_ = controller.New(controller.Config{
			Store: p.zk, Self: reg, Rules: electionRules, Ask: p.askEnds, Log: p.log.logger(),
			BalanceEvery: p.w.plan.balance, Balance: controller.Balance{Percent: 10},
		}).Run(as(ctx, "controls"))
	})
	select {
	case <-ctx.Done():
	case <-lost:
		p.log.note("session over")
		p.lease.End()
		p.reg.Store(nil)
		for _, r := range p.parts {
			r.resign()
		}
	}
	end()
	parts.Wait()
}

func electionRules(*meta.TopicImage) controller.Rules { return controller.Rules{MinInsync: minInsync} }

// self is this broker in its current registration.
func (p *process) self() meta.Member {
	if r := p.reg.Load(); r != nil {
		return r.Member()
	}
	return meta.Member{ID: p.m.id}
}

// follow keeps the picture of the cluster current, and has the replicas take on
// what it says. It begins by reading everything.
func (p *process) follow(ctx context.Context) {
	p.last = -1
	for ctx.Err() == nil {
		if err := p.next(ctx); err != nil {
			_ = p.pause(ctx, "follows the metadata", 200*time.Millisecond)
		}
	}
}

func (p *process) next(ctx context.Context) error {
	var notes []meta.Note
	err := error(&meta.ErrGap{})
	if p.last >= 0 {
		notes, err = p.zk.Changes(ctx, p.last)
	}
	if gap := (*meta.ErrGap)(nil); errors.As(err, &gap) {
		img, last, err := meta.Begin(ctx, p.zk)
		if err != nil {
			return err
		}
		p.img, p.last = img, last
		p.show(true)
		return nil
	}
	if err != nil {
		return err
	}
	if err := p.img.Update(ctx, p.zk, notes); err != nil {
		return err
	}
	if len(notes) > 0 {
		p.last = notes[len(notes)-1].Number
	}
	p.show(false)
	return nil
}

// show has everybody work with the picture. anew: it is the first of a session.
func (p *process) show(anew bool) {
	p.cluster.Lock()
	p.cluster.live, p.cluster.offline = p.img.Registered(), p.img.Offline
	p.cluster.Unlock()
	t := p.img.Topics[topic]
	for i, s := range t.States {
		if !names(s, p.m.id) {
			p.parts[i].doomed.Store(false)
		}
		if s.Version != meta.Missing && (anew || s.Version != p.parts[i].seen) {
			p.parts[i].seen = s.Version
			p.parts[i].become(s)
		}
	}
	p.wantProposals()
}

// keepLease renews the lease until ctx ends.
func (p *process) keepLease(ctx context.Context, self meta.Registration) {
	t := replication.LeaseTimes(sessionTimeout)
	for ctx.Err() == nil {
		sent := time.Now()
		short, cancel := context.WithTimeout(ctx, t.Renewal)
		err := meta.RenewLease(short, p.zk, self)
		cancel()
		if r := p.reg.Load(); err == nil && r != nil && r.Epoch == self.Epoch {
			p.lease.Renewed(sent, t.Length)
		}
		if p.pause(ctx, "renews its lease", max(t.Renewal-time.Since(sent), t.Renewal/8)) != nil {
			return
		}
	}
}

// giveUp lists the partition as lost, in the metadata store, until it is there.
func (p *process) giveUp(r *replica) {
	p.w.counts.add("partitions given up", 1)
	p.run(func() {
		_ = p.retry(p.ctx, fmt.Sprintf("gives up %v", r.tp), func() error {
			return p.list(func(o *meta.Offline) bool {
				if o.Lists(meta.TopicID(r.tp.ID), r.tp.Num) || !r.out() {
					return false
				}
				o.Add(r.lost())
				return true
			})
		})
	})
}

// list changes what this broker lists as given up.
func (p *process) list(change func(*meta.Offline) bool) error {
	reg := p.reg.Load()
	if reg == nil {
		return errUnreachable
	}
	o, err := meta.LoadOffline(p.ctx, p.zk, p.m.id)
	if err != nil || !change(&o) {
		return err
	}
	return meta.SetOffline(o).With(reg.Fence()...).Commit(p.ctx, p.zk)
}

// readmitted takes off the list what the state counts on again though it is
// listed (S7).
func (p *process) readmitted(s []meta.PartitionState) {
	p.cluster.Lock()
	mine := p.cluster.offline[p.m.id]
	p.cluster.Unlock()
	var back []meta.Lost
	for i, r := range p.parts {
		if mine.Lists(meta.TopicID(r.tp.ID), r.tp.Num) && !r.out() && slices.Contains(s[i].ISR, p.self()) && s[i].Rev > mine.Rev {
			back = append(back, r.lost())
		}
	}
	if len(back) == 0 {
		return
	}
	_ = p.list(func(o *meta.Offline) bool {
		o.Remove(back...)
		return true
	})
}

// watchDisk lists this broker's disk as full while it is, as the broker does, but in
// a hurry.
func (p *process) watchDisk() {
	patience := segment.Patience{Full: 400 * time.Millisecond, Room: 800 * time.Millisecond}
	var f segment.Fullness
	for p.pause(p.ctx, "looks at its disk", 250*time.Millisecond) == nil {
		f = f.Look(time.Now(), p.dir.Space(), patience)
		reg := p.reg.Load()
		p.cluster.Lock()
		mine := p.cluster.offline[p.m.id]
		p.cluster.Unlock()
		if reg == nil || mine.IsFull(reg.Epoch) == f.Full {
			continue
		}
		err := p.list(func(o *meta.Offline) bool {
			if o.IsFull(reg.Epoch) == f.Full {
				return false
			}
			o.Full = 0
			if f.Full {
				o.Full = reg.Epoch
				p.w.counts.add("disks listed as full", 1)
			}
			return true
		})
		p.log.note("lists its disk as full, %t: %v", f.Full, err)
	}
}

// checkpoint writes the checkpoints now and then, as the broker does.
func (p *process) checkpoint() {
	for p.pause(p.ctx, "checkpoints", 2*time.Second) == nil {
		if err := p.dir.Checkpoint(); err != nil && !p.dead() {
			p.log.note("checkpoint: %v", err)
		}
	}
}
