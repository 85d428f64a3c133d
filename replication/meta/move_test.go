package meta

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestReassignAndCancel(t *testing.T) {
	at := func(replicas, adding, removing []int32) Topic {
		t := Topic{Replicas: [][]int32{{9}, replicas}, Adding: map[int32][]int32{}, Removing: map[int32][]int32{0: {7}}}
		if adding != nil {
			t.Adding[1] = adding
		}
		if removing != nil {
			t.Removing[1] = removing
		}
		return t
	}
	ids := func(n ...int32) []int32 { return n }
	for _, c := range []struct {
		name string
		from Topic
		do   func(Topic) Topic
		want Topic
	}{
		{"all new", at(ids(1, 2), nil, nil), func(t Topic) Topic { return t.Reassign(1, ids(3, 4)) }, at(ids(3, 4, 1, 2), ids(3, 4), ids(1, 2))},
		{"one stays", at(ids(1, 2), nil, nil), func(t Topic) Topic { return t.Reassign(1, ids(3, 1)) }, at(ids(3, 1, 2), ids(3), ids(2))},
		{"fewer", at(ids(1, 2, 3), nil, nil), func(t Topic) Topic { return t.Reassign(1, ids(3)) }, at(ids(3, 1, 2), nil, ids(1, 2))},
		{"another order", at(ids(1, 2, 3), nil, nil), func(t Topic) Topic { return t.Reassign(1, ids(3, 1, 2)) }, at(ids(3, 1, 2), nil, nil)},
		{"a change of mind", at(ids(3, 1, 2), ids(3), ids(2)), func(t Topic) Topic { return t.Reassign(1, ids(4, 1)) }, at(ids(4, 1, 3, 2), ids(4), ids(3, 2))},
		{"what comes is still coming", at(ids(3, 1), ids(3), ids(1)), func(t Topic) Topic { return t.Reassign(1, ids(3, 4)) }, at(ids(3, 4, 1), ids(3, 4), ids(1))},
		{"taken back", at(ids(3, 4, 1, 2), ids(3, 4), ids(1, 2)), func(t Topic) Topic { return t.Cancel(1) }, at(ids(1, 2, 3, 4), nil, ids(3, 4))},
		{"ended", at(ids(3, 1, 2), ids(3), ids(2)), func(t Topic) Topic { return t.moved(1) }, at(ids(3, 1), nil, nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := fmt.Sprint(c.from)
			got := c.do(c.from)
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
			if fmt.Sprint(c.from) != before {
				t.Errorf("what it was made of has changed: %v, was %s", c.from, before)
			}
		})
	}
}

// A reassignment ends whole: state and replicas in one commit, over the versions
// that it rests on.
func TestFinishMoves(t *testing.T) {
	c := newCluster(t)
	moving := c.t.Reassign(0, []int32{2}).Reassign(1, []int32{1})
	moving.Removing = map[int32][]int32{0: {1}}
	must(t, SetTopic(moving).Commit(t.Context(), c.s))
	c.load()
	end := c.change(0, c.t.States[0].Version)
	w, n, err := FinishMoves(c.t.Topic, []StateChange{end})
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	// The leader changes its ISR first: what was decided is refused as a whole.
	other, err := ChangeState(end)
	must(t, err)
	must(t, other.Commit(t.Context(), c.s))
	if err := w.Commit(t.Context(), c.s); !errors.Is(err, ErrVersion) {
		t.Fatalf("over a state that has changed: %v", err)
	}
	end.State.Version++
	w, _, err = FinishMoves(c.t.Topic, []StateChange{end})
	must(t, err)
	must(t, w.Commit(t.Context(), c.s))
	c.load()
	if !reflect.DeepEqual(c.t.Replicas[0], []int32{2}) || c.t.Moving(0) || c.t.States[0].Version != end.State.Version+1 {
		t.Fatalf("%+v", c.t)
	}
	want := Note{Topics: []string{"t"}, Partitions: []TopicPartition{{"t", 0}}}
	if !reflect.DeepEqual(w.Note, want) {
		t.Errorf("note %+v", w.Note)
	}
}

// As many as fit end at once, even of the largest topic.
func TestFinishMovesFits(t *testing.T) {
	c := newCluster(t)
	big := Topic{Name: strings.Repeat("n", 249), ID: TopicID{9}}
	var ended []StateChange
	for p := range int32(5000) {
		big.Replicas = append(big.Replicas, []int32{1, 1000 + p, 20000 + p})
		ch := c.change(p, 0)
		ch.Topic, ch.ID = big.Name, big.ID
		ended = append(ended, ch)
	}
	w, n, err := FinishMoves(big, ended)
	if err != nil || n < 10 {
		t.Fatal(n, err)
	}
	b := newBatch()
	if !b.add(&w) {
		t.Fatalf("%d at once don't fit", n)
	}
	if _, err := Admit(b.commit()); err != nil {
		t.Fatal(err)
	}
}
