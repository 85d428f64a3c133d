package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"firn/replication/meta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// broker is a broker with its session and registration.
type broker struct {
	*meta.MemorySession
	self meta.Registration
	in   meta.Incarnation
}

// join begins a session on tree and registers broker id in it.
func join(t *testing.T, tree *meta.Memory, id int32) *broker {
	t.Helper()
	b := &broker{MemorySession: tree.Begin()}
	must(t, meta.Init(t.Context(), b))
	b.in = meta.Incarnation{
		Broker: meta.Broker{ID: id, StorageID: string(rune('a' + id))},
		BootID: "boot",
		Intend: func(int64) error { return nil },
	}
	b.register(t)
	return b
}

func (b *broker) register(t *testing.T) {
	t.Helper()
	r, err := meta.Register(t.Context(), b, b.in)
	must(t, err)
	b.self, b.in.LastEpoch = r, r.Epoch
}

// run runs a controller on b until the end of the test's ctx.
func (b *broker) run(t *testing.T, ctx context.Context, elected func(Change)) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- New(Config{Store: b, Self: b.self, Elected: elected}).Run(ctx) }()
	t.Cleanup(func() {
		if err := <-done; !errors.Is(err, context.Canceled) && !errors.Is(err, meta.ErrClosed) {
			t.Errorf("Run = %v", err)
		}
	})
}

func topic(name string, id byte, replicas ...[]int32) meta.Topic {
	return meta.Topic{Name: name, ID: meta.TopicID{id}, Replicas: replicas}
}

func leader(t *testing.T, s meta.Store, name string, p int32) meta.PartitionState {
	t.Helper()
	state, err := meta.LoadState(context.Background(), s, name, p)
	must(t, err)
	return state
}

func TestControllerFollowsTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tree := meta.NewMemory()
		b1, b2, b3 := join(t, tree, 1), join(t, tree, 2), join(t, tree, 3)
		b1.run(t, ctx, nil)
		synctest.Wait()
		b3.run(t, ctx, nil)
		t.Cleanup(cancel)

		must(t, meta.CreateTopic(topic("t", 1, []int32{2, 1}, []int32{1, 2}), nil).Commit(ctx, b2))
		synctest.Wait()
		for p, want := range []meta.Member{b2.self.Member(), b1.self.Member()} {
			if s := leader(t, b1, "t", int32(p)); s.Leader != want || len(s.ISR) != 2 || s.LeaderEpoch != 0 {
				t.Fatalf("partition %d: %+v", p, s)
			}
		}

		b2.register(t) // bounced (A19)
		synctest.Wait()
		if s := leader(t, b1, "t", 0); s.Leader != b2.self.Member() || s.LeaderEpoch != 1 {
			t.Fatalf("after b2 has come again: %+v", s)
		}

		b1.End() // the controller goes, and with it a leader
		synctest.Wait()
		if m, err := meta.LoadController(ctx, b3); err != nil || m != b3.self.Member() {
			t.Fatalf("controller %v, %v", m, err)
		}
		if s := leader(t, b2, "t", 1); s.Leader != b2.self.Member() || s.LeaderEpoch != 1 || s.ControllerEpoch != 2 {
			t.Fatalf("after b1 has gone: %+v", s)
		}
	})
}

func TestDeletedTopicGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tree := meta.NewMemory()
		b := join(t, tree, 1)
		b.run(t, ctx, nil)
		t.Cleanup(cancel)
		must(t, meta.CreateTopic(topic("t", 1, []int32{1}), nil).Commit(ctx, b))
		synctest.Wait()
		img, err := meta.LoadTopic(ctx, b, "t")
		must(t, err)
		must(t, meta.DeleteTopic(img.Topic, 1).Commit(ctx, b))
		synctest.Wait()
		if img, err := meta.LoadTopic(ctx, b, "t"); !errors.Is(err, meta.ErrNotFound) {
			t.Fatalf("%+v, %v", img, err)
		}
		must(t, meta.CreateTopic(topic("t", 2, []int32{1}), nil).Commit(ctx, b))
		synctest.Wait()
		if s := leader(t, b, "t", 0); s.Leader != b.self.Member() || s.LeaderEpoch != 0 {
			t.Fatalf("the next of that name: %+v", s)
		}
	})
}

// Whatever fails, and whether it was applied or not, the controller gets there
// (Z3): all partitions led, each raised no more than once.
func TestControllerSettlesEveryFailure(t *testing.T) {
	for n := 1; ; n++ {
		fired := false
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			tree := meta.NewMemory()
			b := join(t, tree, 1)
			must(t, meta.CreateTopic(topic("t", 1, []int32{1}, []int32{1}), nil).Commit(ctx, b))
			i := 0
			tree.Fault = func([]meta.Op, bool) error {
				if i++; i == n {
					fired = true
					return errors.New("connection lost")
				}
				return nil
			}
			b.run(t, ctx, nil)
			t.Cleanup(cancel)
			time.Sleep(time.Minute)
			for p := range int32(2) {
				if s := leader(t, b, "t", p); s.Leader != b.self.Member() || s.LeaderEpoch != 0 || s.Version != 0 {
					t.Errorf("call %d failed: partition %d: %+v", n, p, s)
				}
			}
		})
		if !fired {
			return
		}
	}
}

// B3: one who was controller writes nothing more.
func TestZombieControllerIsFenced(t *testing.T) {
	ctx := t.Context()
	tree := meta.NewMemory()
	b1, b2 := join(t, tree, 1), join(t, tree, 2)
	zombie, next := New(Config{Store: b1, Self: b1.self}), New(Config{Store: b2, Self: b2.self})
	must(t, zombie.Step(ctx))
	if !zombie.leads {
		t.Fatal("no controller")
	}
	// Its session ends at the store, and it has not heard of it: it goes on with
	// another session, as a client library may do behind its back.
	b1.End()
	must(t, next.Step(ctx))
	must(t, meta.CreateTopic(topic("t", 1, []int32{2}), nil).Commit(ctx, b2))
	zombie.cfg.Store = tree.Begin()
	zombie.img.Topics["t"] = &meta.TopicImage{Topic: topic("t", 1, []int32{2}), States: []meta.PartitionState{meta.NoState()}}
	must(t, zombie.Step(ctx))
	if zombie.leads {
		t.Error("still believes that it is controller")
	}
	if s := leader(t, b2, "t", 0); s.Version != meta.Missing {
		t.Errorf("it wrote %+v", s)
	}
}

func TestElectionsAreTold(t *testing.T) {
	ctx := t.Context()
	tree := meta.NewMemory()
	b := join(t, tree, 1)
	var told []Why
	c := New(Config{Store: b, Self: b.self, Elected: func(ch Change) { told = append(told, ch.Why) }})
	must(t, meta.CreateTopic(topic("t", 1, []int32{1}), nil).Commit(ctx, b))
	must(t, c.Step(ctx))
	b.in.BootID = "another boot"
	b.register(t)
	c.cfg.Self = b.self
	notes, err := b.Changes(ctx, c.after)
	must(t, c.Notes(ctx, notes, err))
	must(t, c.Step(ctx))
	if want := []Why{Created, Recovered}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
