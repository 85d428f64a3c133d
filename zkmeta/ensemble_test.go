package zkmeta

import (
	"errors"
	"testing"
	"time"

	"firn/replication/meta"
	"firn/zkmeta/zktest"
)

// TestEnsemble goes through what may happen to three servers, in one ensemble, with
// one session that must live through all of it.
func TestEnsemble(t *testing.T) {
	t.Parallel()
	e := zktest.StartN(t, 3, zktest.Options{})
	w := &wire{}
	s := open(t, Config{Connect: e.Chroot(), Dial: w.dial, SessionTimeout: 6 * time.Second})
	defer closeStore(t, s)
	mustCommit(t, s, create("/a"), ephemeral("/a/e"))
	id, lost := s.Session()
	last := gap(t, s)
	version := int32(0)
	// works writes, reads and is told, within limit.
	works := func(t *testing.T, within time.Duration) {
		t.Helper()
		began := time.Now()
		for { // an outcome that is unknown is settled by reading (Z3)
			err := s.Commit(bounded(t, limit), set("/a", "x", version), announce("t"))
			if err == nil || errors.As(err, new(*meta.Conflict)) && errors.Is(err, meta.ErrVersion) {
				break
			}
			if errors.As(err, new(*meta.Conflict)) || time.Since(began) > limit {
				t.Fatalf("Commit = %v", err)
			}
		}
		version++
		if n, err := s.Get(bounded(t, limit), "/a"); err != nil || n.Version != version {
			t.Fatalf("Get = version %d, %v, want %d", n.Version, err, version)
		}
		notes, err := s.Changes(bounded(t, limit), last)
		if err != nil || len(notes) == 0 {
			t.Fatalf("Changes = %v, %v", notes, err)
		}
		last = notes[len(notes)-1].Number
		if took := time.Since(began); took > within {
			t.Errorf("took %v, want at most %v", took, within)
		}
		wantAlive(t, s, id, lost)
		if !s.exists(t, "/a/e") {
			t.Error("the ephemeral node is gone")
		}
	}
	ours := func() *zktest.Node {
		for _, n := range e.Nodes {
			if n.Addr == w.server() {
				return n
			}
		}
		t.Fatal("no server is ours")
		return nil
	}
	whole := func(t *testing.T) {
		t.Helper()
		if !e.WaitServing(limit) {
			t.Fatal("the ensemble does not serve")
		}
	}

	t.Run("Killed", func(t *testing.T) {
		n := ours()
		n.Kill()
		works(t, 5*time.Second)
		n.Launch()
		whole(t)
	})
	// A stopped server whose kernel still takes connections holds a client for its
	// receive timeout, which is two thirds of the session, and no longer (B0).
	t.Run("Paused", func(t *testing.T) {
		for ours() == e.Leader() { // whose going would cost an election
			w.Cut()
			w.Heal()
			works(t, limit)
		}
		n := ours()
		n.Pause()
		works(t, 5800*time.Millisecond)
		if n == ours() {
			t.Error("still with the server that is stopped")
		}
		// A connection that breaks now may lead to the stopped one: that costs a
		// second.
		w.Cut()
		w.Heal()
		works(t, 4*time.Second)
		n.Resume()
		whole(t)
	})
	t.Run("LeaderKilled", func(t *testing.T) {
		n := e.Leader()
		if n == nil {
			t.Fatal("no leader")
		}
		n.Kill()
		works(t, 10*time.Second)
		n.Launch()
		whole(t)
	})
	// Without a quorum nobody expires: sessions are given their time again by the
	// next leader.
	t.Run("QuorumLost", func(t *testing.T) {
		down := e.Nodes[:2]
		for _, n := range down {
			n.Kill()
		}
		began := time.Now()
		err := s.Commit(bounded(t, 500*time.Millisecond), set("/a", "x", version))
		if err == nil || errors.As(err, new(*meta.Conflict)) || time.Since(began) > 2*time.Second {
			t.Errorf("Commit without a quorum = %v after %v", err, time.Since(began))
		}
		time.Sleep(2 * time.Second) // the outage itself
		for _, n := range down {
			n.Launch()
		}
		whole(t)
		n, err := s.Get(bounded(t, limit), "/a")
		if err != nil {
			t.Fatal(err)
		}
		version = n.Version // the write may have happened after all (Z3)
		works(t, 5*time.Second)
	})
}
