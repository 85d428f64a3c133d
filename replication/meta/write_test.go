package meta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// counting is a Store that keeps what was committed.
type counting struct {
	Store
	commits [][]Op
}

func (c *counting) Commit(ctx context.Context, ops ...Op) error {
	c.commits = append(c.commits, ops)
	return c.Store.Commit(ctx, ops...)
}

func newStore(t *testing.T) (*Memory, *counting) {
	t.Helper()
	tree := NewMemory()
	s := &counting{Store: tree.Begin()}
	if err := Init(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.commits = nil
	return tree, s
}

// nodes are n writes that create a node each, under a common check, with a note.
func nodes(n int) []Write {
	var ws []Write
	for i := range n {
		ws = append(ws, Write{
			Checks: []Op{{Kind: Check, Path: "/firn", Version: AnyVersion}},
			Ops:    []Op{{Kind: Create, Path: fmt.Sprintf("/firn/%04d", i), Value: []byte("x")}},
			Note:   Note{Partitions: []TopicPartition{{"t", int32(i)}}},
		})
	}
	return ws
}

func TestCommitAllFillsCommits(t *testing.T) {
	_, s := newStore(t)
	for i, err := range CommitAll(t.Context(), s, nodes(1200)) {
		if err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	if len(s.commits) != 3 {
		t.Errorf("%d commits of 1200 operations, want 3", len(s.commits))
	}
	if n := len(s.commits[0]); n != MaxOps {
		t.Errorf("the first has %d operations, want %d: the shared check once, the note once", n, MaxOps)
	}
}

func TestCommitAllKeepsBelowTheBytes(t *testing.T) {
	_, s := newStore(t)
	var ws []Write
	for i := range 40 {
		topic := strings.Repeat(string(rune('a'+i%26)), 200+i)
		ws = append(ws, Write{
			Ops:  []Op{{Kind: Create, Path: fmt.Sprintf("/firn/%04d", i), Value: make([]byte, 20_000)}},
			Note: Note{Topics: []string{topic}, Partitions: []TopicPartition{{topic, 1<<31 - 1}}, Configs: []string{topic}},
		})
	}
	ws[7].Ops[0].Value = make([]byte, MaxBytes)
	for i, err := range CommitAll(t.Context(), s, ws) {
		if want := i == 7; errors.Is(err, ErrTooLarge) != want || (err != nil) != want {
			t.Fatalf("write %d: %v", i, err)
		}
	}
}

// Z2: who is refused is set aside, the others are sent again.
func TestCommitAllSetsRefusedAside(t *testing.T) {
	_, s := newStore(t)
	before, err := s.Children(t.Context(), "/firn")
	must(t, err)
	ws := nodes(20)
	ws[3].Checks = append(ws[3].Checks, Op{Kind: Check, Path: "/none", Version: AnyVersion})
	ws[12].Checks = ws[3].Checks // refused by the same check
	ws[15] = ws[2]               // exists by then
	errs := CommitAll(t.Context(), s, ws)
	for i, err := range errs {
		var want error
		switch i {
		case 3, 12:
			want = ErrNotFound
		case 15:
			want = ErrExists
		}
		if !errors.Is(err, want) {
			t.Errorf("write %d: %v, want %v", i, err, want)
		}
	}
	if len(s.commits) != 3 {
		t.Errorf("%d commits, want 3", len(s.commits))
	}
	names, err := s.Children(t.Context(), "/firn")
	if got := len(names) - len(before); err != nil || got != 17 {
		t.Errorf("%d written, %v", got, err)
	}
}

func TestCommitAllStopsAtAnUnknownOutcome(t *testing.T) {
	tree, s := newStore(t)
	lost := errors.New("connection lost")
	n := 0
	tree.Fault = func(_ []Op, applied bool) error {
		if applied {
			if n++; n == 2 {
				return lost
			}
		}
		return nil
	}
	errs := CommitAll(t.Context(), s, nodes(1200))
	for i, err := range errs {
		if want := i >= 498; errors.Is(err, lost) != want {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	if len(s.commits) != 2 {
		t.Errorf("%d commits, want 2", len(s.commits))
	}
}
