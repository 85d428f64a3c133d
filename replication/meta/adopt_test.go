package meta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// single is a store as a single broker leaves it, with many topics.
func single(t *testing.T) *MemorySession {
	t.Helper()
	ctx := t.Context()
	s := NewMemory().Begin()
	if err := Init(ctx, s); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeClusterID(ctx, s, "cluster"); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeArchiveID(ctx, s, "old"); err != nil {
		t.Fatal(err)
	}
	var writes []Write
	for i := range 300 {
		topic := Topic{Name: fmt.Sprintf("t%d", i), ID: TopicID{byte(i), byte(i >> 8), 1}, Replicas: [][]int32{{1}}}
		w := CreateTopic(topic, map[string]string{"retention.ms": fmt.Sprint(i)})
		state, err := ChangeState(StateChange{Topic: topic.Name, ID: topic.ID, State: PartitionState{Leader: NoLeader, LeaderEpoch: int32(i), ISR: []Member{{1, 1}}, Version: Missing}})
		if err != nil {
			t.Fatal(err)
		}
		w.Ops = append(w.Ops, state.Ops...)
		writes = append(writes, w)
	}
	if err := errors.Join(CommitAll(ctx, s, writes)...); err != nil {
		t.Fatal(err)
	}
	return s
}

// tree is all nodes of a store with their values.
func tree(t *testing.T, s Store) map[string]string {
	t.Helper()
	nodes := map[string]string{}
	var walk func(path string)
	walk = func(path string) {
		names, err := s.Children(t.Context(), path+"/")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			n, err := s.Get(t.Context(), path+"/"+name)
			if err != nil {
				t.Fatal(err)
			}
			nodes[path+"/"+name] = string(n.Value)
			walk(path + "/" + name)
		}
	}
	walk("")
	return nodes
}

func TestAdoptionCopiesAllOrNothing(t *testing.T) {
	from := single(t)
	want := tree(t, from)
	mem := NewMemory()
	to := mem.Begin()
	broken := errors.New("cut off")
	adopt := func(id string) error {
		a, err := Adoption{ClusterID: "cluster", ArchiveID: id}.Begin(t.Context(), to)
		if err != nil {
			return err
		}
		if a.ArchiveID != "new" {
			t.Errorf("archive id %q, want that of the first try", a.ArchiveID)
		}
		if _, err := a.Copy(t.Context(), from, to); err != nil {
			return err
		}
		return a.End(t.Context(), to)
	}
	if err := Init(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	id := "new"
	for commits := 2; ; commits++ { // the first creates what all the others go by
		left := commits
		mem.Fault = func([]Op, bool) error {
			if left--; left < 0 {
				return broken
			}
			return nil
		}
		err := adopt(id)
		mem.Fault = nil
		if err == nil {
			break
		}
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
		if err := CheckAdopted(t.Context(), to); !errors.Is(err, ErrAdopting) {
			if archiveOf(t, to) == "new" {
				break // it was the last answer that was lost
			}
			t.Fatalf("after %d commits brokers could start: %v", commits, err)
		}
		id = fmt.Sprint("another ", commits)
		if commits > 100 {
			t.Fatal("never done")
		}
	}
	if err := CheckAdopted(t.Context(), to); err != nil {
		t.Error(err)
	}
	want[archiveID] = string(encode(idJSON{"1", "new"}))
	if got := tree(t, to); !maps.Equal(got, want) {
		t.Errorf("%d nodes, want %d", len(got), len(want))
	}
	if err := adopt("new"); !errors.Is(err, ErrOccupied) {
		t.Errorf("once more: %v", err)
	}
}

// archiveOf is the archive id, empty if there is none.
func archiveOf(t *testing.T, s Store) string {
	t.Helper()
	id, err := LoadArchiveID(context.Background(), s)
	if err != nil && !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	return id
}

func TestAdoptionIntoAnotherClusterIsRefused(t *testing.T) {
	to := single(t)
	before := tree(t, to)
	if _, err := (Adoption{ClusterID: "mine"}).Begin(t.Context(), to); !errors.Is(err, ErrOccupied) {
		t.Errorf("Begin = %v", err)
	}
	if got := tree(t, to); !maps.Equal(got, before) {
		t.Error("the other cluster was changed")
	}
}

// Half an adoption and half a restore don't become one cluster.
func TestAdoptionIsFinishedByWhatBeganIt(t *testing.T) {
	s := NewMemory().Begin()
	restore := Adoption{ClusterID: "mine", ArchiveID: "first", By: ByRestore}
	if _, err := restore.Begin(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := CheckAdopted(t.Context(), s); !errors.Is(err, ErrAdopting) || !strings.Contains(err.Error(), ByRestore) {
		t.Errorf("CheckAdopted = %v", err)
	}
	if _, err := (Adoption{ClusterID: "mine", ArchiveID: "other"}).Begin(t.Context(), s); !errors.Is(err, ErrOccupied) || !strings.Contains(err.Error(), ByRestore) {
		t.Errorf("by another command: %v", err)
	}
	w := CreateTopic(Topic{Name: "t", ID: TopicID{1}, Replicas: [][]int32{{1}}}, nil)
	if err := restore.Fenced(w).Commit(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	restore.ArchiveID = "second"
	again, err := restore.Begin(t.Context(), s)
	if err != nil || again.ArchiveID != "first" {
		t.Fatalf("again: %+v, %v", again, err)
	}
	if _, err := s.Get(t.Context(), TopicPath("t")); !errors.Is(err, ErrNotFound) {
		t.Errorf("what the first try wrote is still there: %v", err)
	}
	if err := again.End(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	// A writer that was left behind writes nothing any more.
	if err := restore.Fenced(w).Commit(t.Context(), s); err == nil {
		t.Error("a write after the end")
	}
}
