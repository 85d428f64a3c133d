package broker

import (
	"errors"
	"testing"

	"firn/replication/meta"
	"firn/tiering"
)

// D2, T3: only who leads now moves the pointer, and only in the epoch that it
// believes in: one that leads again after another may not finish what it began.
func TestALeaderOfThePastMovesNoPointer(t *testing.T) {
	ctx, s := t.Context(), meta.NewMemory().Begin()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(meta.Init(ctx, s))
	regs := map[int32]meta.Registration{}
	for id := int32(1); id <= 2; id++ {
		r, err := meta.Register(ctx, s, meta.Incarnation{Broker: meta.Broker{ID: id}, Intend: func(int64) error { return nil }})
		must(err)
		regs[id] = r
	}
	p := tiering.Partition{Topic: "t", ID: tiering.TopicID{1}}
	must(meta.CreateTopic(meta.Topic{Name: "t", ID: meta.TopicID(p.ID), Replicas: [][]int32{{1, 2}}}, nil).Commit(ctx, s))
	version := meta.Missing
	led := func(leader, epoch int32) {
		t.Helper()
		m := regs[leader].Member()
		w, err := meta.ChangeState(meta.StateChange{
			Topic: "t", ID: meta.TopicID(p.ID), Registrations: regs,
			State: meta.PartitionState{Leader: m, LeaderEpoch: epoch, ISR: []meta.Member{m}, Version: version},
		})
		must(err)
		must(w.Commit(ctx, s))
		version = max(version, -1) + 1
	}
	next := tiering.Pointer{ManifestKey: "k", Version: tiering.NoPointer}
	swap := func(by, epoch int32) error {
		self := regs[by]
		next.Sequence++
		moved, err := Pointers{Store: s, Self: func() *meta.Registration { return &self }}.SwapPointer(ctx, p, epoch, next)
		if err == nil {
			next = moved
		}
		return err
	}
	led(1, 5)
	must(swap(1, 5))
	led(1, 5) // the ISR has changed: the same leader goes on
	must(swap(1, 5))
	led(2, 6)
	if err := swap(1, 5); !errors.Is(err, tiering.ErrFenced) {
		t.Errorf("broker 1 moved the pointer in epoch 5, broker 2 leads in 6: %v", err)
	}
	must(swap(2, 6))
	led(1, 7)
	if err := swap(1, 5); !errors.Is(err, tiering.ErrFenced) {
		t.Errorf("broker 1 moved the pointer in epoch 5, it leads in 7: %v", err)
	}
	must(swap(1, 7))
}
