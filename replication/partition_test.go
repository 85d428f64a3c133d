package replication

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"firn/replication/isr"
	"firn/replication/meta"
	"firn/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	me    = meta.Member{ID: 1, Epoch: 10}
	other = meta.Member{ID: 2, Epoch: 20}
)

// led is a state in which leader leads in epoch, with the given ISR.
func led(leader meta.Member, epoch int32, in ...meta.Member) meta.PartitionState {
	return meta.PartitionState{Leader: leader, LeaderEpoch: epoch, ISR: in}
}

// newPartition is a replica that has become what s says.
func newPartition(t testing.TB, l Log, rules isr.Rules, s meta.PartitionState) *Partition {
	t.Helper()
	p := New(Config{Topic: "t", Log: l, Rules: rules})
	if err := p.Become(context.Background(), s, me); err != nil {
		t.Fatal(err)
	}
	return p
}

func mustAppend(t testing.TB, p *Partition, n int) Appended {
	t.Helper()
	a, err := p.Append(records(n), AppendOptions{Epoch: AnyEpoch, All: true})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wantAcked(t testing.TB, p *Partition, a Appended, done bool, err error) {
	t.Helper()
	d, e := p.Acked(a)
	if d != done || !errors.Is(e, err) {
		t.Fatalf("Acked = %v, %v, want %v, %v", d, e, done, err)
	}
}

func TestSoleReplicaCommitsWhatItCounts(t *testing.T) {
	l := newFakeLog()
	p := newPartition(t, l, isr.Rules{}, led(me, 0, me))
	a := mustAppend(t, p, 3)
	if a.First != 0 || a.Last != 2 || a.Epoch != 0 {
		t.Fatalf("appended %+v", a)
	}
	wantAcked(t, p, a, true, nil)

	l.hold = true // flush.messages reached (S6)
	b := mustAppend(t, p, 1)
	wantAcked(t, p, b, false, nil)
	l.flush()
	wantAcked(t, p, b, true, nil)
}

func TestOnlyTheLeaderOfTheEpochAppends(t *testing.T) {
	l := newFakeLog()
	p := New(Config{Log: l})
	try := func(epoch int32) error {
		_, err := p.Append(records(1), AppendOptions{Epoch: epoch})
		return err
	}
	become := func(s meta.PartitionState) {
		t.Helper()
		if err := p.Become(context.Background(), s, me); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name  string
		state meta.PartitionState
		epoch int32
		err   error
	}{
		{"follower", led(other, 4, me, other), AnyEpoch, ErrNotLeader},
		{"former registration (R6)", led(meta.Member{ID: 1, Epoch: 9}, 5, me), AnyEpoch, ErrNotLeader},
		{"leader", led(me, 6, me), AnyEpoch, nil},
		{"a coordinator of this epoch", led(me, 6, me), 6, nil},
		{"a coordinator of an older epoch", led(me, 6, me), 5, ErrNotLeader},
		{"leader none", led(meta.NoLeader, 7, me), AnyEpoch, ErrNotLeader},
		{"leader again", led(me, 8, me), AnyEpoch, nil},
	} {
		become(step.state)
		if err := try(step.epoch); !errors.Is(err, step.err) {
			t.Errorf("%s: Append = %v, want %v", step.name, err, step.err)
		}
	}
	if err := p.Become(context.Background(), led(me, 7, me), me); !errors.Is(err, ErrFencedEpoch) {
		t.Errorf("an older epoch: Become = %v", err) // R2
	}
	if err := try(8); err != nil {
		t.Errorf("after a refused Become: %v", err)
	}
	if err := p.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := try(AnyEpoch); !errors.Is(err, ErrNotLeader) {
		t.Errorf("after Stop: %v", err)
	}
	if err := p.Become(context.Background(), led(me, 9, me), me); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Become after Stop: %v", err)
	}
	if got, want := len(l.calls), 4; got != want { // lead, stop, lead, stop
		t.Errorf("the log was told %v", l.calls)
	}
}

func TestReadChecksTheEpoch(t *testing.T) {
	p := newPartition(t, newFakeLog(), isr.Rules{}, led(me, 5, me))
	f := newPartition(t, newFakeLog(), isr.Rules{}, led(other, 5, other))
	for _, c := range []struct {
		p   *Partition
		v   View
		err error
	}{
		{p, View{Epoch: AnyEpoch}, nil},
		{p, View{Epoch: 5}, nil},
		{p, View{Epoch: 4}, ErrFencedEpoch},
		{p, View{Epoch: 6}, ErrUnknownEpoch},
		{f, View{Epoch: 5}, ErrNotLeader},
		{f, View{Epoch: 4, Follower: true}, ErrFencedEpoch},
		{f, View{Epoch: 5, Follower: true}, nil},
	} {
		if _, err := c.p.Read(segment.ReadRequest{}, c.v); !errors.Is(err, c.err) {
			t.Errorf("Read with %+v = %v, want %v", c.v, err, c.err)
		}
		if _, err := c.p.Lookup(c.v); !errors.Is(err, c.err) {
			t.Errorf("Lookup with %+v = %v, want %v", c.v, err, c.err)
		}
	}
}

func TestMinInsync(t *testing.T) {
	l := newFakeLog()
	rules := isr.Rules{MinInsync: 2, Replicas: 2}
	p := newPartition(t, l, rules, led(me, 1, me))
	if _, err := p.Append(records(1), AppendOptions{Epoch: AnyEpoch, All: true}); !errors.Is(err, ErrNotEnoughReplicas) {
		t.Fatalf("acks=all with an ISR of 1: %v", err)
	}
	if _, err := p.Append(records(1), AppendOptions{Epoch: AnyEpoch}); err != nil {
		t.Fatalf("acks=1 with an ISR of 1: %v", err)
	}
	if p.Committed(0) {
		t.Fatal("committed below min.insync (R1)")
	}
	p.SetRules(isr.Rules{MinInsync: 1, Replicas: 2})
	if !p.Committed(0) {
		t.Fatal("not committed with min.insync lowered")
	}
	// A9: enough at the append, not at the ack.
	a := mustAppend(t, p, 1)
	p.SetRules(rules)
	wantAcked(t, p, a, false, ErrNotEnoughReplicasAfterAppend)
	// One replica can't be asked for two.
	p.SetRules(isr.Rules{MinInsync: 2, Replicas: 1})
	wantAcked(t, p, a, true, nil)
}

func TestAckEndsWithTheLeadership(t *testing.T) {
	l := newFakeLog()
	l.hold = true
	p := newPartition(t, l, isr.Rules{}, led(me, 1, me))
	a := mustAppend(t, p, 1)
	w := NewWaiter()
	w.Add(p, a.Last, segment.UntilHighWatermark)
	if err := p.Become(context.Background(), led(me, 2, me), me); err != nil {
		t.Fatal(err)
	}
	<-w.C()
	l.flush()
	wantAcked(t, p, a, false, ErrNotLeader)
}

// Whose ack is refused may ask at once who leads (KIP-951).
func TestTheNextLeaderIsKnownBeforeAnAckIsRefused(t *testing.T) {
	l := newFakeLog()
	p := newPartition(t, l, isr.Rules{}, led(me, 1, me))
	var then meta.PartitionState
	l.onLead = func(int32) { then = p.State() } // the leadership is over, the following has not begun
	if err := p.Become(context.Background(), led(other, 2, other), me); err != nil {
		t.Fatal(err)
	}
	if then.Leader != other || then.LeaderEpoch != 2 {
		t.Errorf("state %+v", then)
	}
}

func TestAckEndsWithTheLog(t *testing.T) {
	l := newFakeLog()
	l.hold = true
	p := newPartition(t, l, isr.Rules{}, led(me, 1, me))
	a := mustAppend(t, p, 1)
	w := NewWaiter()
	w.Add(p, a.Last, segment.UntilHighWatermark)
	l.fail(segment.ErrFailed)
	if !woken(w) {
		t.Fatal("not woken")
	}
	wantAcked(t, p, a, false, segment.ErrFailed)
	if done, err := p.Counted(a); done || !errors.Is(err, segment.ErrFailed) {
		t.Fatalf("Counted = %v, %v", done, err)
	}
}

func TestCountedWaitsForTheFlush(t *testing.T) {
	l := newFakeLog()
	l.hold = true
	p := newPartition(t, l, isr.Rules{MinInsync: 2, Replicas: 2}, led(me, 1, me))
	a, err := p.Append(records(1), AppendOptions{Epoch: AnyEpoch})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{false, true} {
		if done, err := p.Counted(a); done != want || err != nil {
			t.Fatalf("Counted = %v, %v, want %v", done, err, want)
		}
		l.flush()
	}
	if p.Committed(a.Last) {
		t.Fatal("committed by the leader alone")
	}
	a.Epoch--
	if done, err := p.Counted(a); done || !errors.Is(err, ErrNotLeader) {
		t.Fatalf("Counted in another epoch = %v, %v", done, err)
	}
}

// A14: a change of role that fails leaves a replica that serves nothing, and can
// be made again.
func TestLeadMayFailAndBeRepeated(t *testing.T) {
	l := newFakeLog()
	p := newPartition(t, l, isr.Rules{}, led(me, 1, me))
	l.leadErr = errors.New("no store")
	ctx := context.Background()
	if err := p.Become(ctx, led(me, 2, me), me); !errors.Is(err, l.leadErr) {
		t.Fatalf("Become = %v", err)
	}
	if _, err := p.Append(records(1), AppendOptions{Epoch: AnyEpoch}); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("Append = %v", err)
	}
	l.leadErr = nil
	if err := p.Become(ctx, led(me, 2, me), me); err != nil {
		t.Fatal(err)
	}
	if a := mustAppend(t, p, 1); a.Epoch != 2 {
		t.Fatalf("appended in epoch %d", a.Epoch)
	}
}

func TestReadsAndRefusalsGoOnWhileMakingReady(t *testing.T) {
	l := newFakeLog()
	p := New(Config{Log: l})
	l.ready = make(chan struct{})
	done := make(chan error)
	go func() { done <- p.Become(context.Background(), led(me, 1, me), me) }()
	<-l.ready
	short, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Become(short, led(other, 2, me), me); err == nil {
		t.Fatal("a second change of role did not wait")
	}
	if _, err := p.Read(segment.ReadRequest{}, View{Epoch: AnyEpoch}); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("Read = %v", err)
	}
	close(l.ready)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	mustAppend(t, p, 1)
}

func TestLatestWaitsForTheEpochStart(t *testing.T) {
	l := newFakeLog()
	l.o = segment.Offsets{Counted: 10, End: 10, HighWatermark: 4, Stable: 4, ArchivedEnd: -1}
	p := newPartition(t, l, isr.Rules{MinInsync: 1, Replicas: 2}, led(me, 3, me, other))
	v := View{Epoch: AnyEpoch}
	if _, err := p.Latest(v, segment.UntilHighWatermark); !errors.Is(err, ErrOffsetNotAvailable) {
		t.Fatalf("Latest = %v", err)
	}
	s := led(me, 3, me)
	s.Version = 1
	if err := p.Become(context.Background(), s, me); err != nil { // the other left the ISR
		t.Fatal(err)
	}
	if n, err := p.Latest(v, segment.UntilHighWatermark); n != 10 || err != nil {
		t.Fatalf("Latest = %d, %v", n, err)
	}
}

// A change of role, or of the ISR, waits for the append that has already looked.
func TestChangesWaitForTheAppendUnderWay(t *testing.T) {
	for name, change := range map[string]func(*Partition) error{
		"follow": func(p *Partition) error { return p.Become(context.Background(), led(other, 2, other), me) },
		"ISR": func(p *Partition) error {
			s := led(me, 1, me, other)
			s.Version = 1
			return p.Become(context.Background(), s, me)
		},
	} {
		l := newFakeLog()
		p := newPartition(t, l, isr.Rules{}, led(me, 1, me))
		entered, goOn := make(chan struct{}), make(chan struct{})
		l.enter = func() { close(entered); <-goOn }
		appended, changed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := p.Append(records(1), AppendOptions{Epoch: AnyEpoch})
			appended <- err
		}()
		<-entered
		go func() { changed <- change(p) }()
		for range 10_000 {
			runtime.Gosched()
			select {
			case <-changed:
				t.Fatalf("%s: done in the middle of an append", name)
			default:
			}
		}
		close(goOn)
		if err := errors.Join(<-appended, <-changed); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !p.Committed(0) { // it was alone when it was appended
			t.Errorf("%s: not committed", name)
		}
	}
}

// Whatever roles come and go, nothing is appended to a log that doesn't lead,
// nor stamped with another epoch than the one it leads in.
func TestNoAppendOutsideALeadership(t *testing.T) {
	const roles, appenders = 400, 3
	l := newFakeLog()
	epoch := int32(-1) // by l.mu, inside the log: -1 while it doesn't lead
	l.onLead = func(e int32) { epoch = e }
	l.onAppend = func(e int32) {
		if e != epoch {
			t.Errorf("append in epoch %d, the log leads in %d", e, epoch)
		}
	}
	p := New(Config{Log: l})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range appenders {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := p.Append(records(1), AppendOptions{Epoch: AnyEpoch, All: true}); err != nil && !errors.Is(err, ErrNotLeader) {
					t.Error(err)
					return
				}
			}
		})
	}
	for e := range int32(roles) {
		s := led(me, e, me)
		if e%3 == 2 {
			s = led(other, e, me, other)
		}
		if err := p.Become(ctx, s, me); err != nil {
			t.Error(err)
		}
	}
	cancel()
	wg.Wait()
	if l.o.HighWatermark != l.o.Counted { // the last role leads, alone
		t.Errorf("%+v", l.o)
	}
}
