package meta

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What no note has told is found within a hundred rounds, and what has not
// changed stays the very same.
func TestAuditFindsWhatNoNoteTold(t *testing.T) {
	ctx := t.Context()
	c := newCluster(t)
	big := Topic{Name: "big", ID: TopicID{8}, Replicas: make([][]int32, 300)}
	for p := range big.Replicas {
		big.Replicas[p] = []int32{1}
	}
	must(t, CreateTopic(big, nil).Commit(ctx, c.s))
	img, _, err := Begin(ctx, c.s)
	must(t, err)

	silently := func(w Write) {
		w.Note = Note{}
		must(t, w.Commit(ctx, c.s))
	}
	ch := c.change(1, c.t.States[1].Version)
	ch.State.LeaderEpoch = 77
	w, err := ChangeState(ch)
	must(t, err)
	silently(w)
	ch = c.change(299, Missing)
	ch.Topic, ch.ID = big.Name, big.ID
	w, err = ChangeState(ch)
	must(t, err)
	silently(w)
	silently(CreateTopic(Topic{Name: "new", ID: TopicID{9}, Replicas: [][]int32{{1}}}, nil))

	changed := 0
	untouched := img.Topics["big"]
	for range auditShare {
		n, err := img.Audit(ctx, c.s)
		must(t, err)
		if n == 0 && changed == 0 && img.Topics["big"] != untouched {
			t.Fatal("a topic was replaced though nothing of it had changed")
		}
		changed += n
	}
	if img.Topics["t"].States[1].LeaderEpoch != 77 || img.Topics["big"].States[299].Version != 0 || img.Topics["new"] == nil || changed != 3 {
		t.Errorf("%d changes found: %+v", changed, img.Topics["t"].States)
	}
	if n, err := img.Audit(ctx, c.s); n != 0 || err != nil {
		t.Errorf("again: %d, %v", n, err)
	}
}

// slow is a Store whose reads take a while.
type slow struct {
	Store
	now, most atomic.Int64
}

func (s *slow) Get(ctx context.Context, path string) (Node, error) {
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for {
		most := s.most.Load()
		if n <= most || s.most.CompareAndSwap(most, n) {
			break
		}
	}
	time.Sleep(time.Millisecond)
	return s.Store.Get(ctx, path)
}

func TestEverythingIsReadInParallelAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := newStore(t)
		big := Topic{Name: "big", ID: TopicID{8}, Replicas: make([][]int32, 6400)}
		for p := range big.Replicas {
			big.Replicas[p] = []int32{1}
		}
		must(t, CreateTopic(big, nil).Commit(t.Context(), s))
		reads := &slow{Store: s}
		begin := time.Now()
		img, _, err := Begin(t.Context(), reads)
		must(t, err)
		if len(img.Topics["big"].States) != 6400 || time.Since(begin) > 200*time.Millisecond || reads.most.Load() > inFlight {
			t.Errorf("%d states in %v, up to %d reads at once", len(img.Topics["big"].States), time.Since(begin), reads.most.Load())
		}
	})
}
