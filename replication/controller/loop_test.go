package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"firn/replication/meta"
)

// cfg is a controller's on b; edit may change it.
func (b *broker) runWith(t *testing.T, ctx context.Context, edit func(*Config)) {
	t.Helper()
	cfg := Config{Store: b, Self: b.self}
	edit(&cfg)
	done := make(chan error, 1)
	go func() { done <- New(cfg).Run(ctx) }()
	t.Cleanup(func() {
		if err := <-done; !errors.Is(err, context.Canceled) && !errors.Is(err, meta.ErrClosed) {
			t.Errorf("Run = %v", err)
		}
	})
}

// propose has the leader of t-0 change the ISR.
func (b *broker) propose(t *testing.T, isr ...meta.Member) {
	t.Helper()
	img, _, err := meta.Begin(t.Context(), b)
	must(t, err)
	s := img.Topics["t"].States[0]
	s.ISR = isr
	w, err := meta.ChangeState(meta.StateChange{Topic: "t", ID: img.Topics["t"].ID, State: s, Registrations: img.Registered()})
	must(t, err)
	must(t, w.With(b.self.Fence()...).Commit(t.Context(), b))
}

func node(t *testing.T, s meta.Store, name string) meta.Topic {
	t.Helper()
	img, err := meta.LoadTopic(context.Background(), s, name)
	must(t, err)
	return img.Topic
}

func TestAReassignmentFromWishToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tree := meta.NewMemory()
		b1, b2, b3 := join(t, tree, 1), join(t, tree, 2), join(t, tree, 3)
		b3.runWith(t, ctx, func(*Config) {})
		t.Cleanup(cancel)
		must(t, meta.CreateTopic(topic("t", 1, []int32{1, 2}), nil).Commit(ctx, b1))
		synctest.Wait()

		must(t, meta.SetTopic(node(t, b1, "t").Reassign(0, []int32{3, 2})).Commit(ctx, b2))
		synctest.Wait()
		if s := leader(t, b1, "t", 0); s.LeaderEpoch != 0 {
			t.Fatalf("before the new replica is in sync: %+v", s)
		}
		b1.propose(t, b1.self.Member(), b2.self.Member(), b3.self.Member())
		synctest.Wait()
		s, n := leader(t, b1, "t", 0), node(t, b1, "t")
		if s.Leader != b3.self.Member() || s.LeaderEpoch != 1 || len(s.ISR) != 2 || n.Moving(0) || !slices.Equal(n.Replicas[0], []int32{3, 2}) {
			t.Fatalf("%+v of %+v", s, n)
		}

		must(t, meta.SetTopic(n.Reassign(0, []int32{1, 2})).Commit(ctx, b2))
		synctest.Wait()
		must(t, meta.SetTopic(node(t, b1, "t").Cancel(0)).Commit(ctx, b2))
		synctest.Wait()
		if s, n := leader(t, b1, "t", 0), node(t, b1, "t"); s.Leader != b3.self.Member() || n.Moving(0) || !slices.Equal(n.Replicas[0], []int32{2, 3}) {
			t.Fatalf("taken back: %+v of %+v", s, n)
		}
	})
}

func TestAWishForAnElectionIsGrantedAndRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tree := meta.NewMemory()
		b1, b2 := join(t, tree, 1), join(t, tree, 2)
		b1.runWith(t, ctx, func(*Config) {})
		t.Cleanup(cancel)
		must(t, meta.CreateTopic(topic("t", 1, []int32{2, 1}), nil).Commit(ctx, b1))
		synctest.Wait()
		b2.End()
		synctest.Wait()
		b2 = join(t, tree, 2)
		b1.propose(t, b1.self.Member(), b2.self.Member())
		synctest.Wait()
		w, err := meta.AskElection(meta.Election{Name: "w", Kind: meta.PreferredElection, Partitions: map[string][]int32{"t": {0}, "u": {3}}})
		must(t, err)
		must(t, w.Commit(ctx, b2))
		synctest.Wait()
		if s := leader(t, b1, "t", 0); s.Leader != b2.self.Member() || s.LeaderEpoch != 2 {
			t.Errorf("%+v", s)
		}
		if _, err := meta.LoadElection(ctx, b1, "w"); !errors.Is(err, meta.ErrNotFound) {
			t.Errorf("the wish is still there: %v", err)
		}
	})
}

func TestLeadershipsAreGivenBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tree := meta.NewMemory()
		b1, b2 := join(t, tree, 1), join(t, tree, 2)
		b1.runWith(t, ctx, func(c *Config) { c.BalanceEvery, c.Balance.Percent = 5*time.Minute, 10 })
		t.Cleanup(cancel)
		must(t, meta.CreateTopic(topic("t", 1, []int32{2, 1}), nil).Commit(ctx, b1))
		time.Sleep(6 * time.Second) // past the first look
		b2.End()
		synctest.Wait()
		b2 = join(t, tree, 2)
		b1.propose(t, b1.self.Member(), b2.self.Member())
		time.Sleep(4 * time.Minute)
		if s := leader(t, b1, "t", 0); s.Leader != b1.self.Member() {
			t.Fatalf("before its time: %+v", s)
		}
		time.Sleep(2 * time.Minute)
		if s := leader(t, b1, "t", 0); s.Leader != b2.self.Member() {
			t.Fatalf("%+v", s)
		}
	})
}

// replicas answers questions, as far as they are up.
type replicas struct {
	mu    sync.Mutex
	ends  map[int32]LogEnd
	asked int
}

func (r *replicas) ask(_ context.Context, qs []Question) map[Replica]LogEnd {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	out := map[Replica]LogEnd{}
	for _, q := range qs {
		if e, ok := r.ends[q.Member.ID]; ok {
			out[q.Replica] = e
		}
	}
	return out
}

// R6, A20: after a power cut of all, the furthest log leads, once all have told.
func TestTheFurthestLogLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tree := meta.NewMemory()
		all := map[int32]*broker{1: join(t, tree, 1), 2: join(t, tree, 2), 3: join(t, tree, 3)}
		observer := join(t, tree, 9)
		rs := &replicas{ends: map[int32]LogEnd{1: {0, 10}, 2: {0, 30}}}
		told := map[Why]int{}
		observer.runWith(t, ctx, func(c *Config) { c.Ask = rs.ask; c.Elected = func(ch Change) { told[ch.Why]++ } })
		t.Cleanup(cancel)
		must(t, meta.CreateTopic(topic("t", 1, []int32{1, 2, 3}), nil).Commit(ctx, observer))
		synctest.Wait()
		for _, id := range slices.Sorted(maps.Keys(all)) {
			all[id].End()
		}
		synctest.Wait()
		if s := leader(t, observer, "t", 0); s.Leader != meta.NoLeader {
			t.Fatalf("all gone: %+v", s)
		}
		for id := range all {
			b := &broker{MemorySession: tree.Begin(), in: all[id].in}
			b.in.BootID = "after the power cut"
			b.register(t)
			all[id] = b
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := leader(t, observer, "t", 0); s.Leader != meta.NoLeader || rs.asked < 2 || rs.asked > 20 {
			t.Fatalf("one doesn't answer, asked %d times: %+v", rs.asked, s)
		}
		rs.mu.Lock()
		rs.ends[3] = LogEnd{0, 20}
		rs.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := leader(t, observer, "t", 0); s.Leader != all[2].self.Member() || len(s.ISR) != 1 || told[Furthest] != 1 {
			t.Fatalf("%+v, told %v", s, told)
		}
	})
}

// trimming is a store that keeps its notes until it is told.
type trimming struct {
	*broker
	mu     sync.Mutex
	trims  int
	refuse error
}

func (s *trimming) TrimNotes(_ context.Context, _ meta.Op, keep int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trims++
	return s.refuse
}

func TestOnlyTheControllerTrimsNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tree := meta.NewMemory()
		a, b := &trimming{broker: join(t, tree, 1)}, &trimming{broker: join(t, tree, 2)}
		a.runWith(t, ctx, func(c *Config) { c.Store = a })
		synctest.Wait()
		b.runWith(t, ctx, func(c *Config) { c.Store = b })
		t.Cleanup(cancel)
		time.Sleep(time.Minute)
		a.mu.Lock()
		b.mu.Lock()
		defer a.mu.Unlock()
		defer b.mu.Unlock()
		if a.trims < 5 || a.trims > 8 || b.trims != 0 {
			t.Errorf("the controller trimmed %d times in a minute, the other %d", a.trims, b.trims)
		}
	})
}
