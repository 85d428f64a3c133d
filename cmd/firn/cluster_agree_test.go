package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// moves is v with a reassignment under way.
func moves(v *clusterView, topic string, p int32, replicas, adding, removing []int32) *clusterView {
	v.moving[topic] = map[int32]kadm.ListPartitionReassignmentsResponse{p: {Topic: topic, Partition: p, Replicas: replicas, AddingReplicas: adding, RemovingReplicas: removing}}
	return v
}

func epoch(p kadm.PartitionDetail, e int32) kadm.PartitionDetail {
	p.LeaderEpoch = e
	return p
}

// TestNoPlanIsMadeOfWhatOneBrokerShows: a partition counts once all show it alike,
// be it at different times for different ones.
func TestNoPlanIsMadeOfWhatOneBrokerShows(t *testing.T) {
	before := func() *clusterView {
		return viewOf(3, part("t", 0, 1, []int32{1, 3}, nil), epoch(part("t", 1, 1, []int32{1, 3}, nil), 4))
	}
	after := func() *clusterView {
		return viewOf(3, part("t", 0, 1, []int32{1, 3}, nil), epoch(part("t", 1, 1, []int32{1, 2, 3}, nil), 5), part("u", 0, 2, []int32{2}, nil))
	}
	g := agreement{}
	open := g.take([]*clusterView{after(), before(), after()})
	if len(open) != 2 || !strings.Contains(open[0], "t-1 is shown on 1, 2, 3 in epoch 5, on 1, 3 in epoch 4") || !strings.Contains(open[1], "u-0 is shown on 2 in epoch 0, not at all") {
		t.Errorf("open: %q", open)
	}
	if open = g.take([]*clusterView{after(), after(), after()}); len(open) != 0 {
		t.Errorf("all show the same, open: %q", open)
	}
	v := g.view(*viewOf(3))
	if len(v.parts) != 3 || !slices.Equal(v.parts[1].Replicas, []int32{1, 2, 3}) || v.topics != 2 {
		t.Errorf("agreed: %+v", v.parts)
	}

	// What has been agreed on stays so while it moves on; what is gone is gone.
	next := moves(after(), "t", 0, []int32{1, 3, 2}, []int32{2}, []int32{3})
	next.parts[0].Replicas = []int32{1, 3, 2}
	if open = g.take([]*clusterView{next, after(), after()}); len(open) != 0 || len(g) != 3 {
		t.Errorf("open: %q of %d", open, len(g))
	}
	if open = g.take([]*clusterView{before(), before()}); len(open) != 0 || len(g) != 2 {
		t.Errorf("u is gone: open %q of %d", open, len(g))
	}

	// Two answers of one broker from before and after a change are no picture.
	torn := moves(after(), "t", 0, []int32{1, 3, 2}, []int32{2}, []int32{3})
	if open = (agreement{}).take([]*clusterView{torn, torn}); len(open) != 1 || !strings.Contains(open[0], "t-0") {
		t.Errorf("torn: %q", open)
	}
	whole := moves(after(), "t", 0, []int32{1, 3, 2}, []int32{2}, []int32{3})
	whole.parts[0].Replicas = []int32{1, 3, 2}
	if open = (agreement{}).take([]*clusterView{whole, after()}); len(open) != 1 || !strings.Contains(open[0], "on its way to 1, 2") {
		t.Errorf("one shows a reassignment: %q", open)
	}
	g = agreement{}
	if open = g.take([]*clusterView{whole, whole}); len(open) != 0 || !slices.Equal(g.view(*viewOf(3)).now(whole.parts[0]), []int32{1, 2}) {
		t.Errorf("all show a reassignment: %q, %+v", open, g)
	}
}

// TestMovesEndWhenAllShowIt, not when the first does.
func TestMovesEndWhenAllShowIt(t *testing.T) {
	on := func(replicas ...int32) *clusterView { return viewOf(3, part("t", 0, 1, replicas, nil)) }
	on3 := moves(on(1, 2, 3), "t", 0, []int32{1, 2, 3}, []int32{3}, nil)
	for name, c := range map[string]struct {
		views                     []*clusterView
		underWay, elsewhere, left int
	}{
		"nobody has begun":        {[]*clusterView{on(1, 2), on(1, 2)}, 0, 1, 1},
		"one has begun":           {[]*clusterView{on3, on(1, 2)}, 1, 0, 1},
		"all are at it":           {[]*clusterView{on3, on3}, 1, 0, 1},
		"one shows the end":       {[]*clusterView{on(1, 2, 3), on3}, 1, 0, 1},
		"one shows the beginning": {[]*clusterView{on(1, 2, 3), on(1, 2)}, 1, 0, 1},
		"all show the end":        {[]*clusterView{on(1, 2, 3), on(1, 2, 3)}, 0, 0, 0},
		"the topic is gone":       {[]*clusterView{viewOf(3), viewOf(3)}, 0, 0, 0},
	} {
		wished := map[at][]int32{{"t", 0}: {1, 2, 3}}
		underWay, elsewhere := settle(wished, c.views)
		if underWay != c.underWay || len(elsewhere) != c.elsewhere || len(wished) != c.left {
			t.Errorf("%s: %d under way, elsewhere %q, %d left", name, underWay, elsewhere, len(wished))
		}
	}
}

// TestWhoIsPresent is what most show: a broker that is cut off shows itself, and who
// is gone. One that doesn't answer is asked again as long as others show it.
func TestWhoIsPresent(t *testing.T) {
	without := func(v *clusterView, ids ...int32) *clusterView {
		for _, id := range ids {
			delete(v.live, id)
		}
		return v
	}
	for _, c := range []struct {
		shown            map[int32]*clusterView
		present, unheard []int32
	}{
		{map[int32]*clusterView{1: viewOf(3), 2: viewOf(3), 3: viewOf(3)}, []int32{1, 2, 3}, nil},
		{map[int32]*clusterView{1: viewOf(3), 3: viewOf(3)}, []int32{1, 2, 3}, []int32{2}},
		{map[int32]*clusterView{1: without(viewOf(3), 2), 2: viewOf(4), 3: without(viewOf(3), 2)}, []int32{1, 3}, nil},
		{map[int32]*clusterView{1: without(viewOf(2), 2), 2: viewOf(2)}, []int32{1}, nil},
	} {
		r := replies{c.shown, map[int32]error{2: errors.New("refused")}}
		if got := r.present(); !slices.Equal(got, c.present) {
			t.Errorf("present: %v, want %v", got, c.present)
		}
		if got := r.unheard(); !slices.Equal(got, c.unheard) {
			t.Errorf("unheard: %v, want %v", got, c.unheard)
		}
		if got := r.heard(); len(got) != len(c.present)-len(c.unheard) {
			t.Errorf("%d are heard", len(got))
		}
	}
}

// TestAwaitedIsWhatMovesAndWhatWasUnderWay to the same end.
func TestAwaitedIsWhatMovesAndWhatWasUnderWay(t *testing.T) {
	v := moves(viewOf(3, part("t", 0, 1, []int32{1, 2, 3}, nil), part("t", 1, 1, []int32{1, 2}, nil), part("t", 2, 1, []int32{1, 3}, nil)),
		"t", 0, []int32{1, 2, 3}, []int32{2}, []int32{3})
	got := v.wished(v.parts, []moveView{{Topic: "t", Partition: 1, To: []int32{2, 3}}})
	if len(got) != 2 || !slices.Equal(got[at{"t", 0}], []int32{1, 2}) || !slices.Equal(got[at{"t", 1}], []int32{2, 3}) {
		t.Errorf("%v", got)
	}
	if parts, err := v.named([]string{"t:0", "t"}); err != nil || len(parts) != 3 {
		t.Errorf("named twice: %+v, %v", parts, err)
	}
}
