package meta

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantRefused: err is a refusal of the operation on path.
func wantRefused(t *testing.T, err error, path string) {
	t.Helper()
	c := (*Conflict)(nil)
	if !errors.As(err, &c) || c.Op.Path != path {
		t.Fatalf("got %v, want a conflict on %s", err, path)
	}
}

// incarnation is a start of broker 1 that records its epochs as it should.
func incarnation(disk, boot string) *Incarnation {
	in := &Incarnation{Broker: Broker{ID: 1, StorageID: disk}, BootID: boot}
	in.Intend = func(epoch int64) error { in.IntendedEpoch = epoch; return nil }
	return in
}

func enrol(t *testing.T, s Store, in *Incarnation) Registration {
	t.Helper()
	r, err := Register(t.Context(), s, *in)
	must(t, err)
	in.LastEpoch = r.Epoch
	got, err := LoadRegistration(t.Context(), s, r.ID)
	must(t, err)
	r.Rev = got.Rev
	if !reflect.DeepEqual(got, r) {
		t.Fatalf("registered as %+v, the store says %+v", r, got)
	}
	return r
}

func TestRegistrationKeepsWhatHolds(t *testing.T) {
	for _, c := range []struct {
		name  string
		shut  bool // in order
		next  func(in *Incarnation)
		keeps bool
	}{
		{"process crashed", false, func(in *Incarnation) {}, true},
		{"its outcome was unknown", false, func(in *Incarnation) { in.IntendedEpoch, in.LastEpoch = in.LastEpoch, 0 }, true},
		{"machine crashed", false, func(in *Incarnation) { in.BootID = "2" }, false},
		{"no boot id", false, func(in *Incarnation) { in.BootID = "" }, false},
		{"another disk", false, func(in *Incarnation) { in.Broker.StorageID = "other"; in.LastEpoch, in.IntendedEpoch = 0, 0 }, false},
		{"an older copy of the disk", false, func(in *Incarnation) { in.LastEpoch, in.IntendedEpoch = 0, 0 }, false},
		{"shut down in order, machine restarted", true, func(in *Incarnation) { in.BootID, in.CleanNonce = "2", "n" }, true},
		{"shut down, a log directory lacks the mark", true, func(in *Incarnation) { in.BootID = "2" }, false},
		{"shut down, the mark is another's", true, func(in *Incarnation) { in.BootID, in.CleanNonce = "2", "m" }, false},
		{"shut down, another disk", true, func(in *Incarnation) {
			in.Broker.StorageID, in.BootID, in.CleanNonce, in.LastEpoch, in.IntendedEpoch = "other", "2", "n", 0, 0
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := NewMemory()
			s := tree.Begin()
			must(t, Init(t.Context(), s))
			in := incarnation("disk", "1")
			first := enrol(t, s, in)
			if first.Epoch != 1 || first.ValidFrom != 1 {
				t.Fatalf("first registration %+v", first)
			}
			if c.shut {
				must(t, ShutDown(first, "n").Commit(t.Context(), s))
			}
			s.End()
			s = tree.Begin()
			c.next(in)
			second := enrol(t, s, in)
			want := Registration{
				ID: 1, Epoch: 2, ValidFrom: 2, StorageID: in.Broker.StorageID, BootID: in.BootID,
				Version: second.Version, Rev: second.Rev,
			}
			if c.keeps {
				want.ValidFrom = 1
			}
			if second != want {
				t.Errorf("second registration %+v, want %+v", second, want)
			}
			if second.Holds(first.Member()) != c.keeps || !second.Holds(second.Member()) {
				t.Errorf("%+v holds %v: %v", second, first.Member(), second.Holds(first.Member()))
			}
			wantRefused(t, s.Commit(t.Context(), first.Fence()...), RegistrationPath(1))
			must(t, s.Commit(t.Context(), second.Fence()...))
		})
	}
}

// B1: the node of the dead session may still stand.
func TestRegisterReplacesItsOwnDeadSession(t *testing.T) {
	tree := NewMemory()
	first := tree.Begin()
	must(t, Init(t.Context(), first))
	in := incarnation("disk", "1")
	enrol(t, first, in)
	second := tree.Begin()
	r := enrol(t, second, in)
	first.End()
	b, err := LoadBroker(t.Context(), second, 1)
	if err != nil || b.Epoch != r.Epoch {
		t.Fatalf("after the old session's end: %+v, %v", b, err)
	}
	if _, err := Register(t.Context(), tree.Begin(), *incarnation("another disk", "1")); !errors.Is(err, ErrDuplicateBroker) {
		t.Fatalf("another broker of the same id: %v", err)
	}
}

func TestRegisterRefusesARolledBackStore(t *testing.T) {
	_, s := newStore(t)
	in := incarnation("disk", "1")
	in.LastEpoch = 9
	if _, err := Register(t.Context(), s, *in); !errors.Is(err, ErrRolledBack) {
		t.Fatalf("Register = %v", err)
	}
}

// Z3: a registration whose outcome is unknown is followed by another, which
// holds what the one before held.
func TestRegisterSettlesUnknownOutcomes(t *testing.T) {
	for _, applied := range []bool{false, true} {
		tree, s := newStore(t)
		in := incarnation("disk", "1")
		before := enrol(t, s, in)
		failed := false
		tree.Fault = func(_ []Op, done bool) error {
			if done == applied && !failed {
				failed = true
				return errors.New("connection lost")
			}
			return nil
		}
		r := enrol(t, s, in)
		want := before.Epoch + 1
		if applied {
			want++
		}
		if r.Epoch != want || r.ValidFrom != before.ValidFrom {
			t.Errorf("applied %v: %+v after %+v", applied, r, before)
		}
	}
}

// S7: what is found lost at the start is listed in the registration's own commit.
func TestRegisterListsWhatIsLost(t *testing.T) {
	_, s := newStore(t)
	in := incarnation("disk", "1")
	in.Lost = []Lost{{idA, 3}}
	enrol(t, s, in)
	if len(s.commits) != 1 {
		t.Errorf("%d commits", len(s.commits))
	}
	in.Lost = []Lost{{idA, 1}}
	enrol(t, s, in)
	o, err := LoadOffline(t.Context(), s, 1)
	if err != nil || !reflect.DeepEqual(o.Partitions, map[TopicID][]int32{idA: {1, 3}}) {
		t.Fatalf("lost, and not listed: %+v, %v", o, err)
	}
	o.Remove(Lost{idA, 1}, Lost{idA, 3})
	must(t, SetOffline(o).Commit(t.Context(), s))
}

func TestOneController(t *testing.T) {
	tree := NewMemory()
	s := tree.Begin()
	ctx := t.Context()
	must(t, Init(ctx, s))
	r := enrol(t, s, incarnation("disk", "1"))
	if m, err := LoadController(ctx, s); err != nil || m != NoLeader {
		t.Fatalf("controller %v, %v", m, err)
	}
	first, err := Campaign(ctx, s, r)
	must(t, err)
	if first.Epoch != 1 {
		t.Errorf("first controller epoch %d", first.Epoch)
	}
	again, err := Campaign(ctx, s, r)
	if err != nil || again != first {
		t.Errorf("campaign repeated: %+v, %v, want %+v", again, err, first)
	}
	must(t, s.Commit(ctx, first.Fence()))

	other := tree.Begin()
	in := incarnation("disk 2", "1")
	in.Broker.ID = 2
	r2 := enrol(t, other, in)
	if _, err := Campaign(ctx, other, r2); !errors.Is(err, ErrNotController) {
		t.Fatalf("second controller: %v", err)
	}
	s.End()
	second, err := Campaign(ctx, other, r2)
	must(t, err)
	if second.Epoch != 2 {
		t.Errorf("second controller epoch %d", second.Epoch)
	}
	wantRefused(t, other.Commit(ctx, first.Fence()), controllerEpoch) // B3
	must(t, other.Commit(ctx, second.Fence()))
}

func TestIDsAreMadeOnce(t *testing.T) {
	_, s := newStore(t)
	ctx := t.Context()
	for _, c := range []struct {
		load func(context.Context, Store) (string, error)
		make func(context.Context, Store, string) (string, error)
	}{{LoadClusterID, MakeClusterID}, {LoadArchiveID, MakeArchiveID}} {
		if _, err := c.load(ctx, s); !errors.Is(err, ErrNotFound) {
			t.Errorf("new store: %v", err)
		}
		for _, candidate := range []string{"first", "second"} {
			if id, err := c.make(ctx, s, candidate); id != "first" || err != nil {
				t.Errorf("make %s = %s, %v", candidate, id, err)
			}
		}
		if id, err := c.load(ctx, s); id != "first" || err != nil {
			t.Errorf("load = %s, %v", id, err)
		}
	}
}

// E13: a block is handed out once, whatever is known of how it was taken.
func TestProducerIDsAreHandedOutOnce(t *testing.T) {
	tree, s := newStore(t)
	n := 0
	tree.Fault = func(_ []Op, applied bool) error {
		if n++; n%5 == 0 {
			return errors.New("connection lost")
		}
		return nil
	}
	last := int64(-ProducerIDBlock)
	for i := range 30 {
		first, err := NextProducerIDs(t.Context(), s, 1)
		must(t, err)
		if first < last+ProducerIDBlock {
			t.Fatalf("block %d begins at %d after %d", i, first, last)
		}
		last = first
	}
	b, err := s.Get(t.Context(), producerIDs)
	if want := fmt.Sprintf(`{"version":1,"broker":1,"block_start":"%d","block_end":"%d"}`, last, last+999); err != nil || string(b.Value) != want {
		t.Errorf("%s, want %s", b.Value, want)
	}
}

func TestReservedProducerIDsAreSkipped(t *testing.T) {
	_, s := newStore(t)
	must(t, ReserveProducerIDs(5_000).Commit(t.Context(), s))
	first, err := NextProducerIDs(t.Context(), s, 1)
	must(t, err)
	if first != 5_000 {
		t.Errorf("the first block begins at %d, want 5000", first)
	}
	if err := ReserveProducerIDs(9_000).Commit(t.Context(), s); !errors.Is(err, ErrExists) {
		t.Errorf("a second reservation: %v, want ErrExists", err)
	}
}

// B1: a broker that has come again needn't wait for the end of the session in which
// it was controller, and what that session's controller writes is fenced.
func TestABrokerTakesOverFromItsFormerSelf(t *testing.T) {
	tree := NewMemory()
	old, s := tree.Begin(), tree.Begin()
	if err := Init(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	register := func(s Store, id int32) Registration {
		t.Helper()
		r, err := Register(t.Context(), s, Incarnation{Broker: Broker{ID: id, StorageID: "s" + itoa(id)}, Intend: func(int64) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, err := Campaign(t.Context(), old, register(old, 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Campaign(t.Context(), s, register(s, 2)); !errors.Is(err, ErrNotController) {
		t.Errorf("another broker: %v", err)
	}
	again, err := Campaign(t.Context(), s, register(s, 1))
	if err != nil || again.Epoch != first.Epoch+1 {
		t.Fatalf("%+v, %v", again, err)
	}
	if err := old.Commit(t.Context(), first.Fence()); !errors.Is(err, ErrVersion) {
		t.Errorf("the former controller's fence: %v", err)
	}
	old.End()
	if m, err := LoadController(t.Context(), s); err != nil || m.Epoch != 2 {
		t.Errorf("after the old session's end the controller is %+v, %v", m, err)
	}
}
