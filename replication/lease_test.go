package replication

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"firn/replication/isr"
	"firn/replication/meta"
	"firn/segment"
)

var third = meta.Member{ID: 3, Epoch: 30}

// leased is a leader in epoch 5 on a lease of ten seconds that begins now.
func leased(t *testing.T, rules isr.Rules, in ...meta.Member) (*Partition, *Lease) {
	t.Helper()
	l := NewLease()
	l.Renewed(time.Now(), 10*time.Second)
	p := New(Config{Log: newFakeLog(), Rules: rules, Lease: l})
	if err := p.Become(context.Background(), led(me, 5, in...), me); err != nil {
		t.Fatal(err)
	}
	return p, l
}

// answer tells how everything that a leader answers is answered now.
func answer(t *testing.T, p *Partition, want bool) {
	t.Helper()
	v := View{Epoch: AnyEpoch}
	_, read := p.Read(segment.ReadRequest{}, v)
	_, latest := p.Latest(v, segment.UntilHighWatermark)
	_, lookup := p.Lookup(v)
	_, offsets := p.Offsets(v)
	_, one := p.Append(records(1), AppendOptions{Epoch: AnyEpoch})
	start := p.SetLogStart(context.Background(), 0, v)
	for what, err := range map[string]error{
		"Read": read, "Latest": latest, "Lookup": lookup, "Offsets": offsets, "Append with acks=1": one, "SetLogStart": start,
	} {
		if errors.Is(err, ErrOffsetNotAvailable) {
			err = nil // another matter
		}
		if want && err != nil || !want && !errors.Is(err, ErrNotLeader) {
			t.Errorf("%s: %v, want an answer: %v", what, err, want)
		}
	}
	if p.Answers() != want {
		t.Errorf("Answers() = %v", !want)
	}
}

func TestALeaseCountsFromTheSendingOfTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease()
		if l.Held() {
			t.Error("held before any write")
		}
		sent := time.Now()
		time.Sleep(4 * time.Second) // the write takes its time
		l.Renewed(sent, 10*time.Second)
		time.Sleep(6*time.Second - time.Nanosecond)
		if !l.Held() {
			t.Error("over too early")
		}
		time.Sleep(time.Nanosecond)
		if l.Held() {
			t.Error("held past its time")
		}
		l.Renewed(time.Now(), 10*time.Second)
		l.Renewed(sent, 10*time.Second) // an earlier write's answer comes late
		if !l.Held() {
			t.Error("an older renewal took a newer one's place")
		}
		l.End()
		if l.Held() {
			t.Error("held after the session's end")
		}
	})
}

func TestPastTheLeaseALeaderAnswersWhileEveryOtherMemberFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := leased(t, isr.Rules{MinInsync: 2, Replicas: 3}, me, other, third)
		answer(t, p, true)
		time.Sleep(9 * time.Second)
		p.Proven(other, 5, time.Now())
		p.Proven(third, 5, time.Now())
		time.Sleep(9 * time.Second) // the lease is over
		answer(t, p, true)
		p.Proven(other, 5, time.Now())
		time.Sleep(time.Second) // third's proof is too old
		answer(t, p, false)
		p.Proven(third, 5, time.Now())
		answer(t, p, true)
	})
}

func TestWhatProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := leased(t, isr.Rules{MinInsync: 2, Replicas: 3}, me, other)
		time.Sleep(time.Second)
		l.End()
		for what, prove := range map[string]func(){
			"the first fetch of an epoch": func() { p.Proven(other, 5, time.Time{}) },
			"a fetch of another epoch":    func() { p.Proven(other, 4, time.Now()) },
			"another registration's":      func() { p.Proven(meta.Member{ID: 2, Epoch: 19}, 5, time.Now()) },
			"one who is no member":        func() { p.Proven(third, 5, time.Now()) },
		} {
			prove()
			if p.Answers() {
				t.Errorf("%s proves something", what)
			}
		}
		p.Proven(other, 5, time.Now())
		answer(t, p, true)
		if err := p.Become(context.Background(), led(me, 6, me, other), me); err != nil {
			t.Fatal(err)
		}
		answer(t, p, false) // what was proven of epoch 5 says nothing of 6
	})
}

func TestWhoIsEligibleOrJoiningMustVouchToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := leased(t, isr.Rules{MinInsync: 2, Replicas: 3}, me, other)
		l.End()
		p.Proven(other, 5, time.Now())
		answer(t, p, true)
		s := led(me, 5, me, other)
		s.Eligible, s.Version = []meta.Member{third}, 1
		if err := p.Become(context.Background(), s, me); err != nil {
			t.Fatal(err)
		}
		answer(t, p, false)
		p.Proven(third, 5, time.Now())
		answer(t, p, true)
		p.update(func(tr *isr.Tracker) { tr.Join(meta.Member{ID: 4, Epoch: 40}) })
		answer(t, p, false)
	})
}

func TestASoleMemberAnswersWhileNobodyElseMayBeElected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := isr.Rules{MinInsync: 1, Replicas: 3}
		p, l := leased(t, rules, me)
		a := mustAppend(t, p, 1)
		l.End()
		answer(t, p, true)
		rules.Unclean = true
		p.SetRules(rules)
		answer(t, p, false)
		if _, err := p.Append(records(1), AppendOptions{Epoch: AnyEpoch, All: true}); !errors.Is(err, ErrNotLeader) {
			t.Errorf("acks=all: %v", err)
		}
		wantAcked(t, p, a, false, ErrNotLeader)
		l.Renewed(time.Now(), time.Second)
		wantAcked(t, p, a, true, nil)
	})
}

// B7: with the metadata store away acks=all goes on by what the followers fetch.
func TestAcksAllNeedsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := leased(t, isr.Rules{MinInsync: 2, Replicas: 2}, me, other)
		l.End()
		answer(t, p, false)
		a := mustAppend(t, p, 1)
		wantAcked(t, p, a, false, nil)
		p.update(func(tr *isr.Tracker) { tr.Fetched(other, a.Last+1) })
		wantAcked(t, p, a, true, nil)
		if _, err := p.Counted(a); !errors.Is(err, ErrNotLeader) {
			t.Errorf("acks=1: %v", err)
		}
	})
}
