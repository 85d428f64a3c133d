package replication

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"firn/replication/isr"
	"firn/replication/meta"
	"firn/replication/scenariotest"
	"firn/segment"
	"firn/segment/batch"
)

var seeds = flag.Int("seeds", 60, "how many seeds TestRandomFaults runs")
var firstSeed = flag.Int("seed", 1, "the first of them")

// TestRandomFaults runs three replicas through faults that a seed decides: messages
// late or lost, writes to the store refused, lost or late, crashes, a disk that is
// wiped, elections that brokers hear of late. Whatever was acknowledged at acks=all
// is on every leader from then on, and in the end on all.
func TestRandomFaults(t *testing.T) {
	acked, elections := 0, 0
	for seed := range *seeds {
		r := newChaos(t, uint64(*firstSeed+seed))
		for range 1500 {
			r.step()
			if t.Failed() {
				t.Fatalf("seed %d", *firstSeed+seed)
			}
		}
		r.heal()
		if t.Failed() {
			t.Fatalf("seed %d", *firstSeed+seed)
		}
		acked += len(r.acked)
		elections += r.elections
	}
	t.Logf("%d seeds, %d acknowledged, %d elections", *seeds, acked, elections)
	if acked < 5**seeds || elections < 2**seeds {
		t.Errorf("too little has happened: %d acknowledged, %d elections", acked, elections)
	}
}

type chaos struct {
	*world
	rnd       *rand.Rand
	pending   []pendingAck
	acked     map[int64]string
	next      int
	late      []Proposal                  // writes that may still arrive
	wiped     int32                       // not yet in sync again; 0: none
	heard     map[int32]int32             // version of the state that each broker was told
	asked     map[int32]bool              // a request of it is under way
	gone      map[int32]meta.Registration // the last of each broker
	elections int
}

type pendingAck struct {
	b     *broker
	part  *Partition
	a     Appended
	value string
}

func newChaos(t testing.TB, seed uint64) *chaos {
	r := &chaos{
		world: newWorld(t), rnd: rand.New(rand.NewPCG(seed, 1)), acked: map[int64]string{},
		heard: map[int32]int32{}, asked: map[int32]bool{}, gone: map[int32]meta.Registration{},
	}
	r.do(scenariotest.Parse(t, "new replicas=1,2,3 min=2 lag=1000"))
	r.do(scenariotest.Parse(t, "state leader=1 epoch=1 isr=1,2,3"))
	return r
}

func (r *chaos) any() *broker { return r.brokers[int32(1+r.rnd.IntN(3))] }

func (r *chaos) step() {
	r.now = r.now.Add(time.Duration(r.rnd.IntN(60)) * time.Millisecond)
	b := r.any()
	switch n := r.rnd.IntN(100); {
	case n < 15:
		if l := r.brokers[r.state.Leader.ID]; l != nil && r.rnd.IntN(4) > 0 {
			b = l // mostly; the others are asked as well
		}
		r.write(b)
	case n < 72:
		r.talk(b)
	case n < 82:
		r.propose(b)
	case n < 83 && len(r.late) > 0:
		_ = r.store(r.late[0])
		r.late = r.late[1:]
	case n < 94:
		r.hear(b)
	case n < 95 && r.rnd.IntN(2) == 0:
		r.crash(b, r.wiped == 0 && r.rnd.IntN(3) == 0)
	case n < 96 && r.rnd.IntN(3) == 0:
		if reg, ok := r.regs[b.id]; ok { // its session ends
			r.gone[b.id] = reg
			delete(r.regs, b.id)
		}
	default:
		r.register(b)
	}
	r.elect()
	r.settle()
}

func (r *chaos) write(b *broker) {
	r.next++
	value := fmt.Sprintf("value %d.", r.next)
	a, err := b.part.Append(textBatch(r.t, 1, value), AppendOptions{Epoch: AnyEpoch, All: true, Now: 1})
	if err == nil {
		r.pending = append(r.pending, pendingAck{b, b.part, a, value})
	}
}

// settle takes the acks that have come.
func (r *chaos) settle() {
	r.pending = slices.DeleteFunc(r.pending, func(p pendingAck) bool {
		if p.b.part != p.part {
			return true // its broker has crashed
		}
		done, err := p.part.Acked(p.a)
		if done {
			r.acked[p.a.First] = p.value
		}
		return done || err != nil
	})
	if slices.Contains(r.state.ISR, r.regs[r.wiped].Member()) {
		r.wiped = 0
	}
}

// talk does one thing of b's following.
func (r *chaos) talk(b *broker) {
	if b.source == 0 {
		return
	}
	switch {
	case !r.asked[b.id]:
		r.request(b)
		r.asked[b.id] = b.ask.Fetch != nil || b.ask.Ends != nil || b.ask.Starts != nil
	case r.rnd.IntN(12) == 0:
		b.fetcher.Unreachable(r.now)
		r.asked[b.id] = false
	default:
		r.deliver(b)
		r.asked[b.id] = false
	}
}

func (r *chaos) propose(b *broker) {
	pr, ok := b.part.Propose(r.cluster())
	if !ok {
		return
	}
	switch r.rnd.IntN(6) {
	case 0: // it arrives, and nobody hears of it
		_ = r.store(pr)
		b.part.Settle(pr, errors.New("unknown"), r.now)
	case 1: // it may arrive later
		r.late = append(r.late, pr)
		b.part.Settle(pr, errors.New("unknown"), r.now)
	default:
		b.part.Settle(pr, r.store(pr), r.now)
	}
}

// store writes a proposal, with the checks that go with it (R4).
func (r *chaos) store(pr Proposal) error {
	conflict := func(path string) error { return &meta.Conflict{Op: meta.Op{Path: path}, Err: meta.ErrVersion} }
	s := pr.State
	if s.Version != r.state.Version {
		return conflict(meta.StatePath("t", 0))
	}
	for _, m := range append([]meta.Member{s.Leader}, s.ISR...) {
		if reg, ok := r.regs[m.ID]; !ok || reg.Epoch != m.Epoch {
			return conflict("registration")
		}
	}
	s.Version++
	r.state = s
	return nil
}

// hear has a broker take on the state as it is.
func (r *chaos) hear(b *broker) {
	source := b.source
	r.tell(b.id)
	if source != b.source {
		r.asked[b.id] = false
	}
}

// crash begins a broker's next life, with its log or an empty one.
func (r *chaos) crash(b *broker, wipe bool) {
	reg, ok := r.regs[b.id]
	if !ok {
		return
	}
	reg.Epoch++
	if wipe {
		reg.ValidFrom, r.wiped = reg.Epoch, b.id
		b.log = openLog(r.t)
	}
	r.regs[b.id], r.gone[b.id] = reg, reg
	r.asked[b.id] = false
	r.revive(b)
}

func (r *chaos) register(b *broker) {
	if _, ok := r.regs[b.id]; ok {
		return
	}
	reg, ok := r.gone[b.id]
	if !ok {
		reg = meta.Registration{ID: b.id, Epoch: 1, ValidFrom: 1}
	}
	reg.Epoch++
	r.regs[b.id], r.gone[b.id] = reg, reg
}

// elect is the controller: a leader that isn't registered as such is replaced by
// one that holds, out of the ISR first, then of the eligible.
func (r *chaos) elect() {
	s := r.state
	if reg, ok := r.regs[s.Leader.ID]; ok && reg.Epoch == s.Leader.Epoch || r.rnd.IntN(3) > 0 {
		return
	}
	holding := func(set []meta.Member) (out []meta.Member) {
		for _, id := range r.replicas {
			if reg, ok := r.regs[id]; ok && slices.ContainsFunc(set, reg.Holds) {
				out = append(out, reg.Member())
			}
		}
		return out
	}
	in := holding(s.ISR)
	if len(in) == 0 {
		if in = holding(s.Eligible); len(in) == 0 {
			return
		}
		in = in[:1]
	}
	before := slices.Concat(s.Eligible, s.ISR)
	s.Leader, s.ISR, s.Eligible = in[0], in, nil
	if !(isr.Rules{MinInsync: 2, Replicas: 3}).Enough(len(in)) {
		for _, m := range before {
			is := func(x meta.Member) bool { return x.ID == m.ID }
			if !slices.ContainsFunc(s.ISR, is) && !slices.ContainsFunc(s.Eligible, is) {
				s.Eligible = append(s.Eligible, m)
			}
		}
	}
	s.LeaderEpoch++
	s.Version++
	r.state = s
	r.elections++
	r.complete(r.brokers[s.Leader.ID])
}

// complete: a log has everything that was acknowledged.
func (r *chaos) complete(b *broker) {
	for offset, value := range r.acked {
		if got := recordAt(r.t, b.log, offset); got != value {
			r.t.Errorf("broker %d has %q at %d, acknowledged was %q; state %+v", b.id, got, offset, value, r.state)
		}
	}
}

func recordAt(t testing.TB, l *segment.Log, offset int64) string {
	if o := l.Offsets(); offset >= o.End || offset < o.LocalStart {
		return "nothing"
	}
	res, err := l.Read(segment.ReadRequest{Offset: offset, MaxBytes: 1, Until: segment.UntilCounted, MinOne: true})
	if err != nil {
		return err.Error()
	}
	bt, _, err := batch.Next(readAll(t, res))
	if err != nil {
		return err.Error()
	}
	value := ""
	err = batch.Walk(bt, batch.Limit{}, func(r batch.Record) error { value = string(r.Value); return nil })
	if err != nil {
		return err.Error()
	}
	return value
}

// heal ends all faults and waits until everybody is in sync.
func (r *chaos) heal() {
	for range 2000 {
		r.now = r.now.Add(20 * time.Millisecond)
		for _, id := range r.replicas {
			b := r.brokers[id]
			r.register(b)
			r.hear(b)
			if b.source != 0 {
				if r.asked[id] {
					r.deliver(b)
					r.asked[id] = false
				}
				r.request(b)
				r.deliver(b)
			}
			if pr, ok := b.part.Propose(r.cluster()); ok {
				b.part.Settle(pr, r.store(pr), r.now)
			}
		}
		r.elect()
		r.settle()
		if len(r.state.ISR) == 3 && r.agree() {
			for _, b := range r.brokers {
				r.complete(b)
			}
			r.out.Reset()
			if r.same(); r.out.Len() > 0 {
				r.t.Error(r.out.String())
			}
			return
		}
	}
	r.draw()
	r.t.Errorf("not in sync again: %+v\n%s", r.state, r.out.String())
}

func (r *chaos) agree() bool {
	end := r.brokers[1].log.Offsets()
	for _, b := range r.brokers {
		if o := b.log.Offsets(); o.End != end.End || o.HighWatermark != o.End {
			return false
		}
	}
	return true
}
