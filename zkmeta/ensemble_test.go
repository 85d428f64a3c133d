package zkmeta

import (
	"context"
	"errors"
	"testing"
	"time"

	"firn/replication/meta"
	"firn/zkmeta/zktest"
)

// TestEnsemble goes through what may happen to three servers, in one ensemble, with
// one session that must live through all of it. That it lives is how the servers
// themselves measure that the client came back in time: no clock here does. It has
// ten seconds for that when a server has held it for the receive timeout.
func TestEnsemble(t *testing.T) {
	t.Parallel()
	const session = 30 * time.Second
	// A stall of the machine is no reason for the servers to elect another leader.
	e := zktest.StartN(t, 3, zktest.Options{Config: []string{"initLimit=60", "syncLimit=20"}})
	w := &wire{}
	s := open(t, Config{Connect: e.Chroot(), Dial: w.dial, SessionTimeout: session})
	defer closeStore(t, s)
	mustCommit(t, s, create("/a"), ephemeral("/a/e"))
	id, lost := s.Session()
	last := gap(t, s)
	version := int32(0)
	// works writes, reads and is told, in the session that there was.
	works := func(t *testing.T) {
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
		works(t)
		n.Launch()
		whole(t)
	})
	// A stopped server whose kernel still takes connections holds a client for its
	// receive timeout, which is two thirds of the session, and no longer (B0): a
	// client that is held longer has no session when it looks elsewhere.
	t.Run("Paused", func(t *testing.T) {
		for ours() == e.Leader() { // whose going would cost an election
			w.Cut()
			w.Heal()
			works(t)
		}
		n := ours()
		n.Pause()
		works(t)
		if n == ours() {
			t.Error("still with the server that is stopped")
		}
		// A connection that breaks now may lead to the stopped one, which must not
		// cost the session either.
		w.Cut()
		w.Heal()
		works(t)
		n.Resume()
		whole(t)
	})
	t.Run("LeaderKilled", func(t *testing.T) {
		n := e.Leader()
		n.Kill()
		works(t)
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
		// It either waits in vain or has been sent to the server that is left, which
		// hangs up when it finds that it is alone. Neither is a refusal, nor done.
		err := s.Commit(bounded(t, 500*time.Millisecond), set("/a", "x", version))
		if !errors.Is(err, context.DeadlineExceeded) && !transient(err) {
			t.Errorf("Commit without a quorum = %v", err)
		}
		time.Sleep(time.Until(began.Add(session + time.Second))) // the outage itself
		for _, n := range down {
			n.Launch()
		}
		whole(t)
		var n meta.Node
		err = answered(t, func(ctx context.Context) (err error) { n, err = s.Get(ctx, "/a"); return err })
		if err != nil {
			t.Fatal(err)
		}
		version = n.Version // the write may have happened after all (Z3)
		works(t)
	})
}
