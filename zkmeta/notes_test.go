package zkmeta

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"firn/replication/meta"
	"firn/zkmeta/zktest"
)

// TestTrimmedNotes: notes that are trimmed before a reader comes to them are a gap;
// one that has read them doesn't notice.
func TestTrimmedNotes(t *testing.T) {
	t.Parallel()
	e := zktest.Start(t)
	connect, w := e.Chroot(), &wire{}
	writer := open(t, Config{Connect: connect})
	defer closeStore(t, writer)
	late := open(t, Config{Connect: connect, Dial: w.dial, SessionTimeout: time.Minute})
	defer closeStore(t, late)
	mustCommit(t, writer, create("/fence"))
	last, lastLate := gap(t, writer), gap(t, late)
	take := func(n int) {
		t.Helper()
		for n > 0 {
			notes, err := writer.Changes(bounded(t, limit), last)
			if err != nil {
				t.Fatal(err)
			}
			n -= len(notes)
			last = notes[len(notes)-1].Number
		}
	}

	w.Cut()
	for i := range 25 {
		mustCommit(t, writer, announce(fmt.Sprint(i)))
	}
	take(25)
	if err := writer.TrimNotes(t.Context(), check("/fence", 7), 10); !errors.As(err, new(*meta.Conflict)) {
		t.Fatalf("a trim under a fence that has fallen = %v", err)
	}
	if err := writer.TrimNotes(t.Context(), check("/fence", 0), 10); err != nil {
		t.Fatal(err)
	}
	if names, err := writer.Children(t.Context(), generationPath(0)); err != nil || len(names) != 10 || names[9] != "0000000024" {
		t.Fatalf("notes left: %q, %v", names, err)
	}
	mustCommit(t, writer, announce("25"))
	take(1)
	w.Heal()
	g := (*meta.ErrGap)(nil)
	if notes, err := late.Changes(bounded(t, limit), lastLate); !errors.As(err, &g) {
		t.Fatalf("Changes = %v, %v, want a gap", notes, err)
	}
	mustCommit(t, writer, announce("26"))
	if notes, err := late.Changes(bounded(t, limit), g.Last); err != nil || notes[0].Topics[0] != "26" {
		t.Fatalf("after the gap: %v, %v", notes, err)
	}
}

// TestNextGeneration: note numbers begin anew before they run out. For readers that
// is a gap, and writers that had the last generation in mind go by the new one.
func TestNextGeneration(t *testing.T) {
	t.Parallel()
	e := zktest.Start(t)
	connect := e.Chroot()
	a := open(t, Config{Connect: connect})
	defer closeStore(t, a)
	b := open(t, Config{Connect: connect})
	defer closeStore(t, b)
	mustCommit(t, a, create("/fence"))
	fence := []meta.Op{check("/fence", 0)}
	for number := int64(1); number <= 3; number++ {
		last := gap(t, b)
		for i := range 5 {
			mustCommit(t, a, announce(fmt.Sprint(i)))
		}
		if err := a.trim(t.Context(), fence, 10, 4); err != nil {
			t.Fatal(err)
		}
		mustCommit(t, b, announce("new"))
		for { // notes of the old generation, then the gap, then those of the new one
			notes, err := b.Changes(bounded(t, limit), last)
			if g := (*meta.ErrGap)(nil); errors.As(err, &g) {
				last = g.Last
				break
			}
			if err != nil || len(notes) == 0 {
				t.Fatalf("Changes = %v, %v", notes, err)
			}
			last = notes[len(notes)-1].Number
			if notes[len(notes)-1].Topics[0] == "new" {
				t.Fatal("the new generation came without a gap")
			}
		}
		mustCommit(t, a, announce("newer"))
		for {
			notes, err := b.Changes(bounded(t, limit), last)
			if err != nil {
				t.Fatal(err)
			}
			last = notes[len(notes)-1].Number
			if notes[len(notes)-1].Topics[0] == "newer" {
				break
			}
		}
		if n, err := a.Get(t.Context(), changesPath); err != nil || string(n.Value) != fmt.Sprint(number) {
			t.Fatalf("generation %q, %v, want %d", n.Value, err, number)
		}
		if err := b.trim(t.Context(), fence, 10, lastSequence); err != nil {
			t.Fatal(err)
		}
		if names, err := a.Children(t.Context(), changesPath); err != nil || len(names) != 1 {
			t.Fatalf("generations left: %q, %v", names, err)
		}
	}
}
