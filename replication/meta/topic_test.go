package meta

import (
	"errors"
	"reflect"
	"slices"
	"testing"
)

// cluster is a store with broker 1 registered and topic t of two partitions led by it.
type cluster struct {
	*testing.T
	tree *Memory
	s    *counting
	self Registration
	t    *TopicImage
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t}
	c.tree, c.s = newStore(t)
	c.self = enrol(t, c.s, incarnation("disk", "1"))
	must(t, CreateTopic(Topic{Name: "t", ID: idA, Replicas: [][]int32{{1}, {1}}}, map[string]string{"a": "1"}).Commit(t.Context(), c.s))
	c.lead(0)
	c.lead(1)
	c.load()
	return c
}

func (c *cluster) load() {
	c.Helper()
	t, err := LoadTopic(c.Context(), c.s, "t")
	must(c.T, err)
	c.t = t
}

// change is partition p's next state, led by broker 1, over the version known.
func (c *cluster) change(p int32, version int32) StateChange {
	return StateChange{
		Topic: "t", ID: idA, Partition: p,
		State:         PartitionState{Leader: c.self.Member(), ISR: []Member{c.self.Member()}, Version: version},
		Registrations: map[int32]Registration{1: c.self},
	}
}

func (c *cluster) lead(p int32) {
	c.Helper()
	must(c.T, c.write(c.change(p, Missing)))
}

func (c *cluster) write(ch StateChange) error {
	c.Helper()
	w, err := ChangeState(ch)
	must(c.T, err)
	return w.With(c.self.Fence()...).Commit(c.Context(), c.s)
}

// grown adds a partition to the topic.
func (c *cluster) grown() Write {
	t := c.t.Topic
	t.Replicas = append(slices.Clone(t.Replicas), []int32{1})
	return SetTopic(t)
}

func TestTopicIsThereWhole(t *testing.T) {
	c := newCluster(t)
	if !reflect.DeepEqual(c.t.Replicas, [][]int32{{1}, {1}}) || c.t.Config.Values["a"] != "1" || c.t.ID != idA {
		t.Fatalf("%+v", c.t)
	}
	for p, s := range c.t.States {
		if s.Leader != c.self.Member() || s.Version != 0 {
			t.Errorf("partition %d: %+v", p, s)
		}
	}
	wantRefused(t, CreateTopic(c.t.Topic, nil).Commit(t.Context(), c.s), TopicPath("t"))
	must(t, c.grown().Commit(t.Context(), c.s))
	wantRefused(t, c.grown().Commit(t.Context(), c.s), TopicPath("t"))
	c.load()
	if len(c.t.Replicas) != 3 || c.t.States[2].Version != Missing {
		t.Fatalf("%+v", c.t)
	}
	config := c.t.Config
	config.Values = map[string]string{"b": "2"}
	must(t, SetConfig(TopicConfig, "t", config).Commit(t.Context(), c.s))
	wantRefused(t, SetConfig(TopicConfig, "t", config).Commit(t.Context(), c.s), ConfigPath(TopicConfig, "t"))
}

// R4: what a state rests on is checked in the commit that writes it.
func TestStateIsFenced(t *testing.T) {
	for _, c := range []struct {
		name    string
		before  func(*cluster)
		refused string
	}{
		{"nothing happened", func(*cluster) {}, ""},
		{"state written by another", func(c *cluster) { must(c.T, c.write(c.change(0, 0))) }, StatePath("t", 0)},
		{"registered anew", func(c *cluster) {
			in := incarnation("disk", "1")
			in.LastEpoch = c.self.Epoch
			enrol(c.T, c.s, in)
		}, RegistrationPath(1)},
		{"session gone", func(c *cluster) {
			c.s.Store.(*MemorySession).End()
			c.s.Store = c.tree.Begin()
		}, BrokerPath(1)},
		{"shut down", func(c *cluster) { must(c.T, ShutDown(c.self, "n").Commit(c.Context(), c.s)) }, RegistrationPath(1)},
		{"topic deleted", func(c *cluster) { must(c.T, DeleteTopic(c.t.Topic, 1).Commit(c.Context(), c.s)) }, TopicIDPath(idA)},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := newCluster(t)
			c.before(cl)
			pointer := MovePointer(PointerMove{
				Topic: "t", ID: idA, Pointer: Pointer{ArchivedEnd: 1, Version: Missing}, StateVersion: 0, Self: cl.self,
			}).Commit(t.Context(), cl.s)
			w, err := ChangeState(cl.change(0, 0)) // without the writer's fence: the member's own
			must(t, err)
			state := w.Commit(t.Context(), cl.s)
			if c.refused == "" {
				must(t, pointer)
				must(t, state)
				return
			}
			wantRefused(t, state, c.refused)
			wantRefused(t, pointer, c.refused)
		})
	}
}

func TestStateNamesOnlyRegisteredMembers(t *testing.T) {
	c := newCluster(t)
	ch := c.change(0, 0)
	ch.State.ISR = append(ch.State.ISR, Member{2, 1})
	if _, err := ChangeState(ch); err == nil {
		t.Error("a member that nobody knows")
	}
	ch.State.ISR[1] = Member{1, c.self.Epoch + 1}
	if _, err := ChangeState(ch); err == nil {
		t.Error("a member in another registration")
	}
	ch.State.Leader = NoLeader // leaves the ISR as it was
	must(t, c.write(ch))
}

func TestPointerMovesByCompareAndSet(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	if p, ok, err := LoadPointer(ctx, c.s, idA, 1); ok || err != nil || p.Version != Missing || p.LastEpoch != -1 {
		t.Fatalf("%+v, %v, %v", p, ok, err)
	}
	p := Pointer{ManifestKey: "k", Sequence: 1, ArchivedEnd: 10, Version: Missing}
	move := func() error {
		return MovePointer(PointerMove{Topic: "t", ID: idA, Partition: 1, Pointer: p, StateVersion: 0, Self: c.self}).Commit(ctx, c.s)
	}
	must(t, move())
	wantRefused(t, move(), PointerPath(idA, 1))
	var ok bool
	var err error
	if p, ok, err = LoadPointer(ctx, c.s, idA, 1); !ok || err != nil || p.Version != 0 {
		t.Fatalf("%+v, %v, %v", p, ok, err)
	}
	p.Sequence = 2
	must(t, move())
	wantRefused(t, move(), PointerPath(idA, 1))
}

// A name made again is another topic (B14, B15): nothing of the first is left
// but its tombstone.
func TestDeletedTopicGoesWhole(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	must(t, MovePointer(PointerMove{Topic: "t", ID: idA, Pointer: Pointer{ArchivedEnd: 1, Version: Missing}, Self: c.self}).Commit(ctx, c.s))
	must(t, DeleteTopic(c.t.Topic, 77).Commit(ctx, c.s))
	if err := DeleteTopic(c.t.Topic, 78).Commit(ctx, c.s); err == nil {
		t.Fatal("deleted twice")
	}
	c.load()
	if !c.t.Deleting {
		t.Fatal("not marked")
	}
	again := Topic{Name: "t", ID: TopicID{9}, Replicas: [][]int32{{1}}}
	wantRefused(t, CreateTopic(again, nil).Commit(ctx, c.s), TopicPath("t"))
	for round := range 2 { // the second finds all gone
		writes, err := FinishDelete(ctx, c.s, c.t.Topic)
		must(t, err)
		for _, err := range CommitAll(ctx, c.s, writes) {
			if err != nil && (round == 0 || !errors.Is(err, ErrNotFound)) {
				t.Fatal(err)
			}
		}
	}
	purges, err := LoadPurges(ctx, c.s)
	if want := []Purge{{ID: idA, Name: "t", Partitions: 2, At: 77, Waiting: []int32{1}}}; err != nil || !reflect.DeepEqual(purges, want) {
		t.Fatalf("%+v, %v, want %+v", purges, err, want)
	}
	must(t, CreateTopic(again, nil).Commit(ctx, c.s))
	must(t, LogsGone(purges[0], 1).Commit(ctx, c.s))
	if purges, err = LoadPurges(ctx, c.s); err != nil || len(purges[0].Waiting) != 0 {
		t.Fatalf("after broker 1 has none of its logs: %+v, %v", purges, err)
	}
	must(t, Purged(purges[0]).Commit(ctx, c.s))
	for path, want := range map[string]int{topics: 1, topicIDs: 1, tier: 1, purge: 0} {
		if names, err := c.s.Children(ctx, path); err != nil || len(names) != want {
			t.Errorf("%s has %q, %v", path, names, err)
		}
	}
}

// The image that notes keep current is the one that is read anew.
func TestImageFollowsNotes(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	img, after, err := Begin(ctx, c.s)
	must(t, err)
	for i, do := range []func() error{
		func() error { return c.write(c.change(0, 0)) },
		func() error { return c.grown().Commit(ctx, c.s) },
		func() error { return c.write(c.change(2, Missing)) },
		func() error {
			return SetConfig(TopicConfig, "t", Config{Values: map[string]string{"x": "y"}, Version: 0}).Commit(ctx, c.s)
		},
		func() error {
			return SetConfig(BrokerConfig, "<default>", Config{Values: map[string]string{"x": "y"}, Version: Missing}).Commit(ctx, c.s)
		},
		func() error {
			return CreateTopic(Topic{Name: "u", ID: TopicID{7}, Replicas: [][]int32{{1}}}, nil).Commit(ctx, c.s)
		},
		func() error { _, err := Campaign(ctx, c.s, c.self); return err },
		func() error {
			o := Offline{Broker: 1, Version: Missing}
			o.Add(Lost{idA, 1})
			return SetOffline(o).Commit(ctx, c.s)
		},
		func() error { c.load(); return DeleteTopic(c.t.Topic, 1).Commit(ctx, c.s) },
		func() error {
			writes, err := FinishDelete(ctx, c.s, c.t.Topic)
			return errors.Join(append(CommitAll(ctx, c.s, writes), err)...)
		},
		func() error {
			return CreateTopic(Topic{Name: "t", ID: TopicID{8}, Replicas: [][]int32{{1}}}, nil).Commit(ctx, c.s)
		},
		func() error { return ShutDown(c.self, "n").Commit(ctx, c.s) },
	} {
		must(t, do())
		notes, err := c.s.Changes(ctx, after)
		must(t, err)
		after = notes[len(notes)-1].Number
		must(t, img.Update(ctx, c.s, notes))
		want, _, err := Begin(ctx, c.s)
		must(t, err)
		if !reflect.DeepEqual(img, want) {
			t.Fatalf("after step %d:\n got %+v\nwant %+v", i, img, want)
		}
	}
	if len(img.Registered()) != 0 || len(img.Registrations) != 1 {
		t.Errorf("registered %v", img.Registered())
	}
}

// Z1: within a session nothing known is replaced by something older.
func TestImageNeverGoesBack(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	img, _, err := Begin(ctx, c.s)
	must(t, err)
	stale := img.Topics["t"].States[0]
	must(t, c.write(c.change(0, 0)))
	note := []Note{{Topics: []string{"t"}, Partitions: []TopicPartition{{"t", 0}, {"t", 99}, {"none", 0}}}}
	must(t, img.Update(ctx, c.s, note))
	if s := img.Topics["t"].States[0]; s.Version != 1 {
		t.Fatalf("%+v", s)
	}
	img.Topics["t"].States[0].Rev += 100 // as if a newer one had been read
	img.Topics["t"].States[0].Version = 50
	must(t, img.Update(ctx, c.s, note))
	if s := img.Topics["t"].States[0]; s.Version != 50 {
		t.Fatalf("went back to %+v", s)
	}
	if stale.Version != 0 {
		t.Fatal("what was handed out has changed")
	}
}
