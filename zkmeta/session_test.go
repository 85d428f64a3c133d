package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"firn/replication/meta"
	"firn/zkmeta/zktest"
)

// limit is how long anything in these tests may take, on a machine that is busy
// with others' virtual machines.
const limit = 3 * time.Minute

func bounded(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustCommit(t testing.TB, s *Store, ops ...meta.Op) {
	t.Helper()
	if err := s.Commit(bounded(t, limit), ops...); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

func create(path string) meta.Op    { return meta.Op{Kind: meta.Create, Path: path} }
func ephemeral(path string) meta.Op { return meta.Op{Kind: meta.CreateEphemeral, Path: path} }
func check(path string, version int32) meta.Op {
	return meta.Op{Kind: meta.Check, Path: path, Version: version}
}
func set(path, value string, version int32) meta.Op {
	return meta.Op{Kind: meta.Set, Path: path, Value: []byte(value), Version: version}
}
func announce(topic string) meta.Op {
	return meta.Op{Kind: meta.Announce, Value: meta.Note{Topics: []string{topic}}.Encode()}
}

// answered makes a request until a server answers it: again if it was given up, or
// its connection or its session has ended.
func answered(t testing.TB, request func(context.Context) error) error {
	t.Helper()
	ctx := bounded(t, limit)
	for {
		err := request(ctx)
		if err == nil || ctx.Err() != nil || !errors.Is(err, ErrUnreachable) && !transient(err) {
			return err
		}
	}
}

// settleCreate creates a node, also where the connection is bad: that it is there
// already is what an unknown outcome was (Z3).
func settleCreate(t testing.TB, s *Store, path string) {
	t.Helper()
	err := answered(t, func(ctx context.Context) error { return s.Commit(ctx, create(path), announce("t")) })
	if err != nil && !errors.Is(err, meta.ErrExists) {
		t.Fatalf("Commit: %v", err)
	}
}

// gap begins to read notes.
func gap(t testing.TB, s *Store) int64 {
	t.Helper()
	_, err := s.Changes(bounded(t, limit), -1)
	g := (*meta.ErrGap)(nil)
	if !errors.As(err, &g) {
		t.Fatalf("Changes = %v, want a gap", err)
	}
	return g.Last
}

func wantLost(t testing.TB, lost <-chan struct{}) {
	t.Helper()
	select {
	case <-lost:
	case <-time.After(limit):
		t.Fatal("nobody was told that the session has ended")
	}
}

func wantAlive(t testing.TB, s *Store, id int64, lost <-chan struct{}) {
	t.Helper()
	select {
	case <-lost:
		t.Fatal("the session was lost")
	default:
	}
	if now, _ := s.Session(); now != id {
		t.Fatalf("session 0x%x became 0x%x", id, now)
	}
}

// TestExpiry: a session that the servers have ended is followed by another, with
// nothing of it left behind.
func TestExpiry(t *testing.T) {
	t.Parallel()
	e := zktest.Start(t)
	connect, w := e.Chroot(), &wire{}
	s := open(t, Config{Connect: connect, Dial: w.dial, SessionTimeout: time.Minute})
	defer closeStore(t, s)
	mustCommit(t, s, create("/a"), ephemeral("/a/e"))
	id, lost := s.Session()
	last := gap(t, s)
	began := time.Now()
	waiting := make(chan error)
	go func() {
		_, err := s.Changes(t.Context(), last)
		waiting <- err
	}()

	w.expire(t)
	if _, err := s.Get(bounded(t, limit), "/a"); err != nil { // which the connection of the session that ended refuses
		t.Errorf("Get = %v", err)
	}
	wantLost(t, lost)
	if took := time.Since(began); took > 38*time.Second { // it takes a second or so; a connection that nobody answers lasts 40
		t.Errorf("told after %v", took)
	}
	if err := <-waiting; !errors.Is(err, meta.ErrClosed) {
		t.Errorf("a Changes that waited in the session that ended = %v", err)
	}
	if _, err := s.Get(bounded(t, limit), "/a/e"); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("the ephemeral node is still there: %v", err)
	}
	next, lost := s.Session()
	if next == id {
		t.Errorf("two sessions have id 0x%x", id)
	}
	wantAlive(t, s, next, lost)
	if again := gap(t, s); again <= last {
		t.Errorf("numbers of the next session begin at %d, after %d", again, last)
	}
	// Whoever else reads notes, with a number of the session before, reads all.
	if _, err := s.Changes(bounded(t, limit), last); !errors.As(err, new(*meta.ErrGap)) {
		t.Errorf("Changes after a number of the last session = %v", err)
	}
	mustCommit(t, s, ephemeral("/a/e"))
}

// TestRequestsAcrossSessions: what a broker wanted to write in one session does no
// harm in the next, and no request is delivered in another session than its own (Z2).
func TestRequestsAcrossSessions(t *testing.T) {
	t.Parallel()
	e := zktest.Start(t)
	connect, w := e.Chroot(), &wire{}
	s := open(t, Config{Connect: connect, Dial: w.dial, SessionTimeout: time.Minute})
	defer closeStore(t, s)
	other := open(t, Config{Connect: connect})
	defer closeStore(t, other)
	if err := meta.Init(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	register := func(s *Store) meta.Registration {
		t.Helper()
		r, err := meta.Register(bounded(t, limit), s, meta.Incarnation{
			Broker: meta.Broker{ID: 1, StorageID: "x"}, Intend: func(int64) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	self := register(s)
	mustCommit(t, other, create("/state"), create("/log"))
	_, lost := s.Session()

	w.Cut()
	ctx := bounded(t, limit)
	var writers sync.WaitGroup
	errs := make([]error, 40)
	for i := range errs {
		writers.Go(func() {
			errs[i] = s.Commit(ctx, append(self.Fence(), set("/state", "zombie", meta.AnyVersion), create(fmt.Sprintf("/log/%d", i)))...)
		})
	}
	// The servers end the session; another broker process takes the id.
	w.end(t)
	register(other)
	mustCommit(t, other, set("/state", "new", meta.AnyVersion))
	w.Heal()
	writers.Wait()
	wantLost(t, lost)
	for i, err := range errs {
		if conflict := (*meta.Conflict)(nil); err == nil || errors.As(err, &conflict) && conflict.Op.Path != meta.RegistrationPath(1) {
			t.Errorf("write %d = %v, want a conflict with the registration, or an unknown outcome", i, err)
		}
	}
	if n, err := other.Get(t.Context(), "/state"); err != nil || string(n.Value) != "new" {
		t.Errorf("state = %q, %v", n.Value, err)
	}
	if names, err := other.Children(t.Context(), "/log"); err != nil || len(names) != 0 {
		t.Errorf("the broker whose session had ended wrote %q, %v", names, err)
	}
}

func (s *Store) exists(t testing.TB, path string) bool {
	t.Helper()
	_, err := s.Get(bounded(t, limit), path)
	if err != nil && !errors.Is(err, meta.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// TestDeadlines: a caller waits no longer than it wants to, whatever ZooKeeper does.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	e, w := zktest.Start(t), &wire{}
	s := open(t, Config{Connect: e.Chroot(), Dial: w.dial, SessionTimeout: time.Minute})
	defer closeStore(t, s)
	mustCommit(t, s, create("/a"))
	e.Nodes[0].Pause()
	began := time.Now()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	w.onSend(multi, giveUp)
	err := s.Commit(ctx, set("/a", "x", 0))
	if conflict := (*meta.Conflict)(nil); !errors.Is(err, context.Canceled) || errors.As(err, &conflict) {
		t.Errorf("Commit = %v", err)
	}
	if _, err := s.Get(bounded(t, time.Second), "/a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get = %v", err)
	}
	if took := time.Since(began); took > 38*time.Second { // the connection lasts 40
		t.Errorf("two requests, the second for a second, took %v", took)
	}
	e.Nodes[0].Resume()
	// The write was sent, and has happened by now: reads of this session come after it.
	n, err := s.Get(bounded(t, limit), "/a")
	if err != nil || string(n.Value) != "x" {
		t.Errorf("after the pause: %q, %v", n.Value, err)
	}
}

// TestOutOfReachInWords: a request without a deadline is given up after a session
// timeout, and says what was waited for.
func TestOutOfReachInWords(t *testing.T) {
	t.Parallel()
	e := zktest.Start(t)
	s := open(t, Config{Connect: e.Chroot(), SessionTimeout: 3 * time.Second})
	defer closeStore(t, s)
	x, err := s.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e.Nodes[0].Kill()
	for { // a commit on its way when the connection breaks is another matter
		up, _, _, changed := x.link.status()
		if !up {
			break
		}
		<-changed
	}
	if _, err := s.Get(context.Background(), "/a"); !errors.Is(err, ErrUnreachable) {
		t.Errorf("Get = %v", err)
	}
	if err := s.Commit(context.Background(), create("/a")); !errors.Is(err, ErrUnreachable) {
		t.Errorf("Commit = %v", err)
	}
	e.Nodes[0].Start()
	settleCreate(t, s, "/b")
}

// TestServersThatWentBack: servers that know less than the client has seen refuse
// it for ever; a fresh client begins a new session (Z1).
func TestServersThatWentBack(t *testing.T) {
	t.Parallel()
	e := zktest.Start(t)
	node := e.Nodes[0]
	connect := e.Chroot()
	s := open(t, Config{Connect: connect, SessionTimeout: 3 * time.Second})
	defer closeStore(t, s)
	settleCreate(t, s, "/a")
	node.Kill()
	node.SaveData()
	node.Start()
	for i := range 20 {
		settleCreate(t, s, fmt.Sprintf("/a/%d", i))
	}
	_, lost := s.Session()
	node.Kill()
	node.RestoreData()
	node.Start()
	wantLost(t, lost)
	var names []string
	err := answered(t, func(ctx context.Context) (err error) { names, err = s.Children(ctx, "/a"); return err })
	if err != nil || len(names) != 0 {
		t.Errorf("children = %q, %v", names, err)
	}
	gap(t, s)
}
