package replication

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestThrottleHoldsTheRate(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var th Throttle
		const rate = 1_000_000
		th.SetRate(rate)
		begin := time.Unix(1000, 0)
		now, moved := begin, 0
		for now.Sub(begin) < time.Minute {
			if !th.Open(now) {
				wait := th.Wait(now)
				if wait <= 0 {
					t.Fatal("closed, but nothing to wait for")
				}
				if now = now.Add(wait); !th.Open(now) {
					t.Fatalf("still closed after %v", wait)
				}
			}
			n := r.IntN(3 * rate / 2)
			th.Moved(now, n)
			moved += n
			now = now.Add(time.Duration(r.IntN(20)) * time.Millisecond)
		}
		most := int(now.Sub(begin).Seconds()*rate) + rate + 3*rate/2 // a full bucket, and one too much
		if moved > most || moved < most*9/10 {
			t.Errorf("seed %d: %d bytes in %v at %d bytes/s", seed, moved, now.Sub(begin), rate)
		}
	}
}

func TestThrottleRates(t *testing.T) {
	now := time.Unix(1000, 0)
	var th Throttle
	th.Moved(now, 1<<40)
	if !th.Open(now) || th.Wait(now) != 0 {
		t.Error("closed without a rate")
	}
	th.SetRate(0)
	if now = now.Add(time.Hour); th.Open(now) || th.Wait(now) <= 0 {
		t.Error("open at rate 0")
	}
	th.SetRate(10)
	if !th.Open(now) {
		t.Error("a new rate begins with a full bucket")
	}
	th.Moved(now, 100)
	if th.Open(now.Add(8*time.Second)) || !th.Open(now.Add(10*time.Second)) {
		t.Error("100 bytes at 10 a second with a bucket of 10")
	}
	th.SetRate(Unthrottled)
	if !th.Open(now) {
		t.Error("closed when unthrottled again")
	}
}
