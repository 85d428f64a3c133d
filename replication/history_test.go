package replication

import (
	"context"
	"errors"
	"testing"
	"time"

	"firn/segment"
)

// TestDivergingAnswerSaysNothingElse: the high watermark that comes with a
// diverging epoch is that of another history than ours (A3).
func TestDivergingAnswerSaysNothingElse(t *testing.T) {
	p := newPair(t, 1, segment.Options{})
	p.append(0)
	p.take(p.answer(p.fetch()))
	log := p.parts[0].log
	if o := log.Offsets(); o.End != 1 || o.HighWatermark != 0 {
		t.Fatalf("%+v", o)
	}
	r := p.fetch()
	p.take(&FetchAnswer{Partitions: []PartitionAnswer{{
		TopicID: r.Partitions[0].TopicID, Diverging: segment.EpochEnd{Epoch: 1, End: 1}, HighWatermark: 1,
	}}})
	if o := log.Offsets(); o.HighWatermark != 0 {
		t.Errorf("the high watermark is %d", o.HighWatermark)
	}
}

// TestWhatWasAskedInOneEpochIsNotDoneInAnother is R2 on the follower's side.
func TestWhatWasAskedInOneEpochIsNotDoneInAnother(t *testing.T) {
	p := newPair(t, 1, segment.Options{})
	p.append(0)
	p.take(p.answer(p.fetch()))
	b := p.parts[0]
	if err := b.Become(context.Background(), led(me, 2, me, other), other); err != nil {
		t.Fatal(err)
	}
	if err := b.Replicate(t.Context(), 1, Replicated{HighWatermark: 1}); !errors.Is(err, ErrNotFollowing) {
		t.Errorf("Replicate: %v", err)
	}
	if _, _, err := b.Truncate(1, segment.EpochEnd{Epoch: 1}); !errors.Is(err, ErrNotFollowing) {
		t.Errorf("Truncate: %v", err)
	}
	if err := b.BeginAt(1, 7); !errors.Is(err, ErrNotFollowing) {
		t.Errorf("BeginAt: %v", err)
	}
	if o := b.log.Offsets(); o.End != 1 || o.HighWatermark != 0 {
		t.Errorf("%+v", o)
	}
}

// TestReplicaOfAnotherHistoryDoesNotCount: a replica that has records which its
// leader has not is told where to cut, and moves nothing (R5).
func TestReplicaOfAnotherHistoryDoesNotCount(t *testing.T) {
	p := newPair(t, 1, segment.Options{})
	a := p.leaders[0]
	p.append(0)
	s := led(me, 2, me, other)
	s.Version = 1
	if err := a.Become(context.Background(), s, me); err != nil {
		t.Fatal(err)
	}
	p.append(0)
	p.append(0)
	diverging, due, err := a.Fetched(ReplicaFetch{Member: other, Epoch: 2, Offset: 2, LastEpoch: 1, Now: time.Unix(1000, 0)})
	if diverging != (segment.EpochEnd{Epoch: 1, End: 1}) || due || err != nil {
		t.Errorf("%+v, %t, %v", diverging, due, err)
	}
	if hw := a.log.Offsets().HighWatermark; hw != 0 {
		t.Errorf("the high watermark is %d", hw)
	}
}
