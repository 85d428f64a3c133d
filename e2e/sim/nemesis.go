package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"firn/replication/meta"
	"firn/segment"
)

// nemesis has something go wrong again and again, until the world heals. n is the
// number of the next fault, which alone decides on what chance it has: one may be
// left out without the others becoming something else.
func (w *world) nemesis(n int) {
	r := rand.New(rand.NewPCG(w.plan.seed, 0x6e656d<<20|uint64(n)))
	w.s.post(&event{
		key:   "nemesis",
		delay: exactly(between(w.plan.faultEvery/2, w.plan.faultEvery*3/2)(r)),
		fire: func() {
			if w.healing {
				return
			}
			w.counts.add("fault numbers", 1)
			w.strike(n, r)
			w.nemesis(n + 1)
		},
	})
}

// strike makes one fault. What can't be done now is left for another time.
func (w *world) strike(n int, r *rand.Rand) {
	m := w.machines[r.IntN(len(w.machines))]
	if leader := w.leader(int32(r.IntN(w.plan.partitions))); r.IntN(2) == 0 && leader >= 0 {
		m = w.machines[leader] // where it hurts
	}
	what, do := w.fault(m, r)
	if do == nil || w.plan.skip[n] {
		return
	}
	w.counts.add("faults", 1)
	w.s.trace.note("nemesis", "fault %d, %v: %s", n, m, what)
	do()
}

// fault chooses what goes wrong with m, or around it.
func (w *world) fault(m *machine, r *rand.Rand) (what string, do func()) {
	short := between(200*time.Millisecond, 3*time.Second)(r)
	long := between(time.Second, 10*time.Second)(r)
	keep := []int{0, 50, 100}[r.IntN(3)]
	running := m.proc != nil && !m.proc.dead() && !m.proc.leaving.Load()
	switch n := r.IntN(100); {
	case n < 14 && running:
		return "process crash", func() { w.crash(m, notAtAll, short, r) }
	case n < 24 && running && (w.spare(m) || w.plan.unclean):
		return "power loss", func() { w.crash(m, keep, short, r) }
	case n < 26 && w.plan.unclean:
		return "power loss everywhere", func() {
			for _, m := range w.machines {
				if m.proc != nil && !m.proc.dead() {
					w.crash(m, keep, between(200*time.Millisecond, 3*time.Second)(r), r)
				}
			}
		}
	case n < 32 && running && w.spare(m):
		return "power loss in the midst of writing", func() {
			m.keep, m.damaged = keep, true
			m.proc.crashIn.Store(1 + r.Int64N(30))
		}
	case n < 36 && running && w.spare(m):
		return "wiped disk", func() { w.crash(m, wiped, short, r) }
	case n < 40 && running && w.spare(m):
		return "failing fsync", func() {
			m.damaged = true
			m.proc.ioFault.Store(true)
		}
	case n < 46 && running && m.proc.opened.Load():
		return "orderly restart", func() {
			p := m.proc
			p.run(func() { p.leave() })
		}
	case n < 54 && running && !m.paused:
		return "pause", func() {
			m.paused = true
			m.proc.zk.heard()
			w.s.after(fmt.Sprintf("%v goes on", m), short, func() { w.resume(m) })
		}
	case n < 62 && running && !m.cutOff:
		return "cut off from ZooKeeper", func() {
			m.cutOff = true
			m.proc.zk.heard()
			w.s.after(fmt.Sprintf("%v reaches ZooKeeper", m), long/2, func() { w.reach(m) })
		}
	case n < 70:
		other, both := w.machines[r.IntN(len(w.machines))], r.IntN(2) == 0
		if other == m || m.cut[other.id] {
			return "", nil
		}
		return fmt.Sprintf("packets to %v lost, both ways %t", other, both), func() {
			m.cut[other.id] = true
			if both {
				other.cut[m.id] = true
			}
			w.s.after(fmt.Sprintf("%v and %v hear each other", m, other), long, func() {
				delete(m.cut, other.id)
				delete(other.cut, m.id)
			})
		}
	case n < 75 && running:
		return "session expired", func() { m.proc.zk.expire() }
	case n < 79 && !w.zk.down:
		return "ZooKeeper without a quorum", func() {
			w.zk.down = true
			w.s.after("ZooKeeper has a quorum", long, w.zk.quorum)
		}
	case n < 84:
		return w.turn(&w.zk.faulty, "ZooKeeper loses requests", long)
	case n < 87:
		return w.turn(&w.jitter, "jitter", long)
	case n < 91:
		return w.turn(&w.bucket.down, "store down", long)
	case n < 95:
		return w.turn(&w.bucket.slow, "store slow", long)
	case n < 98:
		return w.turn(&w.bucket.faulty, "store faulty", long)
	case running && !m.full:
		return "disk full", func() {
			m.full = true
			m.proc.faults.SetQuota(r.Int64N(3000))
			w.s.after(fmt.Sprintf("%v has space", m), long/2, func() { w.space(m) })
		}
	}
	return "", nil
}

// turn switches something on for a while.
func (w *world) turn(on *bool, what string, d time.Duration) (string, func()) {
	if *on {
		return "", nil
	}
	return what, func() {
		*on = true
		w.s.after(what+" no more", d, func() { *on = false })
	}
}

// What a crash takes, besides a percentage of what was not synced that survives.
const (
	notAtAll = -1 // only the process: the page cache stays
	wiped    = -2 // everything
)

// crash ends m's process, and takes from its disk what keep says.
func (w *world) crash(m *machine, keep int, away time.Duration, r *rand.Rand) {
	m.proc.die()
	m.proc.zk.heard()
	switch {
	case keep == wiped:
		m.wipe()
		m.damaged = true
	case keep >= 0:
		m.lose(keep, r)
		m.damaged = true
	}
	w.comeBack(m, away)
}

// comeBack starts m again after a while.
func (w *world) comeBack(m *machine, away time.Duration) {
	dead := m.proc
	dead.tended = true
	w.s.after(fmt.Sprintf("%v comes back", m), away, func() {
		if m.proc != dead {
			return
		}
		go func() {
			dead.bury()
			w.s.after(fmt.Sprintf("%v starts", m), time.Microsecond, func() {
				if m.proc == dead {
					m.paused = false
					m.start()
				}
			})
		}()
	})
}

// spare: the cluster can bear that m loses what it has. Nobody else has lost
// anything since it was last whole, and others hold what was committed.
func (w *world) spare(m *machine) bool {
	for _, other := range w.machines {
		if other != m && other.damaged && !w.restored(other) {
			return false
		}
	}
	if m.damaged && !w.restored(m) {
		return false
	}
	for part := range int32(w.plan.partitions) {
		s := w.tree[part].state
		if s.Version == meta.Missing {
			return false
		}
		holds := slices.ContainsFunc(slices.Concat(s.ISR, s.Eligible), func(x meta.Member) bool {
			r, err := meta.LoadRegistration(context.Background(), w.zk.eye, x.ID)
			if err != nil || x.ID == m.id || !r.Holds(x) {
				return false
			}
			o, err := meta.LoadOffline(context.Background(), w.zk.eye, x.ID)
			if err != nil || o.Lists(w.topicID, part) {
				return false
			}
			p := w.machines[x.ID].proc
			return p == nil || !p.opened.Load() || p.parts[part].local.Err() == nil
		})
		if !holds {
			return false
		}
	}
	return true
}

// restored: a machine that had lost something is in every ISR again.
func (w *world) restored(m *machine) bool {
	if m.proc == nil || m.proc.dead() || m.proc.reg.Load() == nil || m.proc.crashIn.Load() > 0 || m.proc.ioFault.Load() {
		return false
	}
	for part := range int32(w.plan.partitions) {
		s := w.tree[part].state
		if !slices.Contains(s.ISR, m.proc.self()) || m.proc.parts[part].local.Err() != nil {
			return false
		}
	}
	m.damaged = false
	return true
}

func (w *world) resume(m *machine) {
	if m.paused {
		m.paused = false
		m.proc.zk.heard()
	}
}

func (w *world) reach(m *machine) {
	m.cutOff = false
	m.proc.zk.heard()
}

func (w *world) space(m *machine) {
	m.full = false
	m.proc.faults.SetQuota(-1)
}

// tend looks after machines whose power went in the midst of things, and after
// logs that have failed for good: their operator restarts them.
func (w *world) tend() {
	for _, m := range w.machines {
		p := m.proc
		if p == nil || p.tended {
			continue
		}
		switch {
		case p.dead() && p.wreck != nil:
			w.s.trace.note("nemesis", "%v: the power is gone", m)
			p.zk.heard()
			m.lose(0, nil)
			w.comeBack(m, between(100*time.Millisecond, 2*time.Second)(w.s.rng))
		case p.left.Load():
			p.zk.heard()
			w.comeBack(m, between(100*time.Millisecond, 2*time.Second)(w.s.rng))
		case !p.dead() && !p.leaving.Load() && p.opened.Load() && slices.ContainsFunc(p.parts, func(r *replica) bool { return r.local.Err() != nil }):
			p.tended = true
			w.s.after(fmt.Sprintf("%v's operator looks", m), between(time.Second, 5*time.Second)(w.s.rng), func() {
				if m.proc == p && !p.dead() {
					w.s.trace.note("nemesis", "%v: restarted for a failed log", m)
					w.crash(m, notAtAll, 100*time.Millisecond, nil)
				}
			})
		}
	}
}

// endFaults ends what goes wrong, and starts whoever is down.
func (w *world) endFaults() {
	w.zk.faulty, w.bucket.down, w.bucket.slow, w.bucket.faulty, w.jitter = false, false, false, false, false
	w.zk.quorum()
	for _, m := range w.machines {
		clear(m.cut)
		m.cutOff, m.paused = false, false
		m.proc.crashIn.Store(0)
		m.proc.ioFault.Store(false)
		if m.full {
			w.space(m)
		}
		m.proc.zk.heard()
		if m.proc.dead() {
			w.comeBack(m, time.Millisecond)
		}
	}
}

// leave stops the process in order, as SIGTERM does.
func (p *process) leave() {
	p.leaving.Store(true)
	for _, r := range p.parts {
		_ = r.part.Stop(p.ctx)
	}
	reg := p.reg.Load()
	if reg == nil || !p.opened.Load() {
		p.left.Store(true)
		p.die()
		return
	}
	p.archive.Close()
	nonce := p.name
	if err := p.dir.Close(segment.CleanMark{BrokerEpoch: reg.Epoch, StorageID: reg.StorageID, Nonce: nonce}); err != nil {
		p.log.note("closing: %v", err)
	} else {
		ctx, cancel := context.WithTimeout(p.ctx, 2*time.Second)
		err := meta.ShutDown(*reg, nonce).Commit(ctx, p.zk)
		cancel()
		p.log.note("has left in order: %v", err)
	}
	p.zk.current().End()
	p.left.Store(true)
	p.die()
}
