package tiering

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"firn/segment"
	"firn/segment/vfs"
	"firn/tiering/objstore"
)

// sim is three replicas of a partition, a bucket and a metadata store that fail
// at random, driven from one seed. Replication is the simplest there is: what
// the leader appends is on all three before it is committed, one broker
// crashes at a time, and it has caught up before the next does.
type sim struct {
	*world
	rng     *rand.Rand
	disks   [3]*disk
	brokers [3]*broker
	leader  int
	epoch   int32
	faults  bool
	late    []func() // pointer writes that have not landed yet
	trace   []string
	counts  map[string]int
}

var errInjected = errors.New("injected")

func (s *sim) did(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

func (s *sim) open(i int) {
	o := s.defaults()
	o.segmentBytes = []int64{1500, 2100, 2900}[i] // borders differ (D28)
	b := s.start(s.disks[i], o)
	s.brokers[i] = b
	b.onStore(func(op objstore.Op) objstore.Fault {
		switch {
		case b.dead.Load():
			return objstore.Fault{Before: errCrashed}
		case !s.faults || s.rng.IntN(12) > 0:
			return objstore.Fault{}
		case s.rng.IntN(2) == 0:
			return objstore.Fault{Before: errInjected}
		}
		return objstore.Fault{After: errInjected}
	})
	b.pointers.swap = func(do func() (Pointer, error)) (Pointer, error) {
		if !s.faults || s.rng.IntN(3) > 0 {
			return do()
		}
		switch s.rng.IntN(3) {
		case 0: // the answer is lost
			_, _ = do()
		case 1: // the request is on its way for long
			s.late = append(s.late, func() { _, _ = do() })
		}
		return Pointer{}, errInjected
	}
}

func (s *sim) elect(i int) {
	if l := s.brokers[s.leader]; l != nil && s.rng.IntN(2) == 0 {
		l.log.StopLeading() // else it is a zombie until it hears of it
	}
	s.epoch++
	s.leader = i
	s.pointers.Elect(testPart, s.epoch)
	if err := s.brokers[i].log.Lead(s.t.Context(), s.epoch); err != nil {
		s.t.Fatalf("broker %d can't lead epoch %d: %v", i, s.epoch, err)
	}
	s.counts["elections"]++
}

// hear tells a broker that it doesn't lead any more.
func (s *sim) hear(i int) {
	if i != s.leader {
		s.brokers[i].log.StopLeading()
	}
}

// catchUp copies the leader's log to all others, but for zombies, which don't
// follow: they hear of it sooner or later.
func (s *sim) catchUp(all bool) {
	for i, b := range s.brokers {
		if i == s.leader {
			continue
		}
		if all || s.rng.IntN(4) == 0 {
			s.hear(i)
		}
		if b.log.lead.Load() != nil {
			s.counts["zombies"]++
			continue
		}
		l := s.brokers[s.leader]
		if o := l.log.Offsets(); b.log.Offsets().End < o.LogStart && o.ArchivedEnd < 0 {
			if err := b.log.Local().RestartAt(o.LogStart, o.LogStart, l.log.Local().Epochs()[:1], nil); err != nil {
				s.t.Fatal(err)
			}
		}
		if b.log.Offsets().End < l.log.Offsets().LocalStart {
			if err := b.log.RestartAtArchivedEnd(s.t.Context()); err != nil {
				s.t.Fatalf("restart at the archived end: %v", err)
			}
			s.counts["restarts"]++
		}
		l.copyTo(b)
		if start := l.log.Offsets().LogStart; start > b.log.Offsets().LogStart {
			if err := b.log.SetLogStart(s.t.Context(), min(start, b.log.Offsets().HighWatermark)); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// expected errors of one step are those that were injected.
func (s *sim) tolerate(what string, err error) {
	if err == nil || errors.Is(err, errInjected) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrMoved) || errors.Is(err, errNotLeading) {
		return
	}
	s.t.Fatalf("%s: %v", what, err)
}

func (s *sim) step() {
	ctx := s.t.Context()
	i := s.rng.IntN(3)
	b := s.brokers[i]
	l := s.brokers[s.leader]
	switch k := s.rng.IntN(100); {
	case k < 25:
		n := 1 + s.rng.IntN(40)
		s.did("append %d", n)
		l.appendOnly(n)
		s.catchUp(false)
		l.log.SetHighWatermark(l.log.Offsets().End)
		s.catchUp(false)
	case k < 60: // a zombie steps too
		b.settle()
		_, err := b.log.Step(ctx, s.now())
		s.did("step of %d: %v", i, err)
		s.tolerate("step", err)
	case k < 70:
		before := b.log.Offsets().LocalStart
		err := b.log.Evict(ctx, s.now())
		s.did("evict at %d: %d to %d, %v", i, before, b.log.Offsets().LocalStart, err)
		s.tolerate("evict", err)
		if b.log.Offsets().LocalStart > before {
			s.counts["evictions"]++
		}
	case k < 78:
		err := b.log.Keep(ctx, s.now())
		s.did("keep at %d: %v", i, err)
		s.tolerate("keep", err)
	case k < 83:
		n, err := b.log.Sweep(ctx, s.now())
		s.did("sweep at %d: %d, %v", i, n, err)
		if !errors.Is(err, ErrFenced) {
			s.tolerate("sweep", err)
		}
		s.counts["swept"] += n
	case k < 87:
		o := l.log.Offsets()
		start := o.LogStart + s.rng.Int64N(o.HighWatermark-o.LogStart+1)/3
		err := l.log.SetLogStart(ctx, start)
		s.did("log start %d: %v", start, err)
		s.tolerate("log start", err)
	case k < 91:
		s.faults = !s.faults
		s.did("faults %t", s.faults)
	case k < 94:
		for _, f := range s.late {
			f()
		}
		s.did("%d late pointer writes land", len(s.late))
		s.counts["late"] += len(s.late)
		s.late = nil
	case k < 97:
		faults := s.faults
		s.faults = false // an election may need the store (T8)
		s.did("elect %d", i)
		s.catchUp(true)
		s.elect(i)
		s.catchUp(false)
		s.faults = faults
	default:
		keep := []int{0, 50, 100}[s.rng.IntN(3)]
		s.did("crash %d, keeping %d %%", i, keep)
		faults := s.faults
		s.faults = false
		s.catchUp(true)
		b.crash()
		clone := s.disks[i].fs.(*vfs.Mem).CrashClone(vfs.CrashOptions{Keep: keep, Rand: s.rng})
		s.disks[i] = &disk{fs: clone}
		s.open(i)
		if i == s.leader {
			s.brokers[i].log.StopLeading()
			next := (i + 1 + s.rng.IntN(2)) % 3
			s.elect(next)
		}
		s.catchUp(true)
		s.faults = faults
		s.counts["crashes"]++
	}
	s.advance(time.Duration(s.rng.IntN(30)) * time.Second)
}

// check holds the archive against what was committed: every object that the
// pointer leads to is there and right (T3, T6), nobody's disk begins past it (T4).
func (s *sim) check() {
	s.checkArchived(0)
	ptr, _ := s.pointers.LoadPointer(s.t.Context(), testPart)
	for i, b := range s.brokers {
		o := b.log.Offsets()
		if o.LocalStart > max(ptr.ArchivedEnd, ptr.LogStart, o.LogStart) {
			s.t.Fatalf("broker %d: disk begins at %d, archive is %d to %d", i, o.LocalStart, ptr.LogStart, ptr.ArchivedEnd)
		}
	}
}

func TestSimulation(t *testing.T) {
	seeds := 60
	total := map[string]int{}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := &sim{world: newWorld(t), rng: rand.New(rand.NewPCG(uint64(seed), 41)), counts: map[string]int{}}
			defer func() {
				if t.Failed() {
					for _, line := range s.trace {
						t.Log(line)
					}
				}
			}()
			for i := range s.disks {
				s.disks[i] = newDisk()
				s.open(i)
			}
			s.elect(0)
			for range 150 {
				s.step()
				s.check()
			}
			s.finish()
			total["seeds"]++
			for k, n := range s.counts {
				total[k] += n
			}
			total["segments"] += int(s.pointer().Sequence)
		})
	}
	t.Logf("%v", total)
	for _, k := range []string{"elections", "evictions", "crashes", "zombies", "late", "swept", "segments"} {
		if total[k] < total["seeds"]/4 { // fewer with -run
			t.Errorf("too little happened: %d %s", total[k], k)
		}
	}
}

// finish lets everything heal, and reads all of it everywhere.
func (s *sim) finish() {
	s.faults = false
	for _, f := range s.late {
		f()
	}
	s.catchUp(true)
	s.elect(s.leader)
	l := s.brokers[s.leader]
	l.mustUpload()
	l.sweepClean()
	s.catchUp(true)
	for i, b := range s.brokers {
		b.mustEvict()
		o := b.log.Offsets()
		for off := o.LogStart; off < o.HighWatermark; {
			next := b.read(off, segment.UntilHighWatermark)
			if next <= off {
				s.t.Fatalf("broker %d: nothing at %d of %+v", i, off, o)
			}
			off = next
		}
	}
	s.check()
}
