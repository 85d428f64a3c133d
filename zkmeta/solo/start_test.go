package solo

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"firn/replication/controller"
	"firn/replication/meta"
)

// start is what a broker does with its metadata when it starts.
func start(t testing.TB, s *Store, bootID string, last int64) meta.Registration {
	t.Helper()
	ctx := context.Background()
	if err := meta.Init(ctx, s); err != nil {
		t.Fatal(err)
	}
	r, err := meta.Register(ctx, s, meta.Incarnation{
		Broker:    meta.Broker{ID: 1, StorageID: "disk"},
		BootID:    bootID,
		LastEpoch: last,
		Intend:    func(int64) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs a controller until done is true of the image.
func run(t testing.TB, s *Store, self meta.Registration, done func(*meta.Image) bool) *meta.Image {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	ended := make(chan error)
	running, stop := context.WithCancel(ctx)
	go func() { ended <- controller.New(controller.Config{Store: s, Self: self}).Run(running) }()
	defer func() {
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v", err)
		}
	}()
	img, after, err := meta.Begin(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	for !done(img) {
		notes, err := s.Changes(ctx, after)
		if err != nil {
			t.Fatal(err)
		}
		after = notes[len(notes)-1].Number
		if err := img.Update(ctx, s, notes); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// led: all partitions are led by a broker in its registration r.
func led(img *meta.Image, r meta.Registration) bool {
	for _, t := range img.Topics {
		for _, s := range t.States {
			if s.Leader != r.Member() {
				return false
			}
		}
	}
	return true
}

// A start raises the leader epoch of every partition (R6), soon.
func TestStartRaisesEveryEpoch(t *testing.T) {
	const parts = 10_000
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "meta.db")
	s := open(t, path)
	r := start(t, s, "boot", 0)
	topic := meta.Topic{Name: "t", ID: meta.TopicID{1}}
	for range parts {
		topic.Replicas = append(topic.Replicas, []int32{1})
	}
	if err := meta.CreateTopic(topic, nil).Commit(ctx, s); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	run(t, s, r, func(img *meta.Image) bool { return led(img, r) })
	t.Logf("%d states created in %v", parts, time.Since(begin))
	closeStore(t, s)

	for i, boot := range []string{"boot", "boot", "another boot"} {
		begin = time.Now()
		s = open(t, path)
		again := start(t, s, boot, r.Epoch)
		if again.Epoch != r.Epoch+1 || (again.ValidFrom == r.ValidFrom) != (boot == r.BootID) {
			t.Fatalf("registered as %+v after %+v", again, r)
		}
		r = again
		img := run(t, s, r, func(img *meta.Image) bool { return led(img, r) })
		t.Logf("start %d: %d epochs raised in %v", i, parts, time.Since(begin))
		for p, state := range img.Topics["t"].States {
			if state.LeaderEpoch != int32(i+1) || len(state.ISR) != 1 || state.ISR[0] != r.Member() {
				t.Fatalf("start %d: state of %d is %+v", i, p, state)
			}
		}
		closeStore(t, s)
	}
}
