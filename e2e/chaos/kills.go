package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// killInTurn kills the leader, a follower and the controller in turn, each with
// writes in flight and so many acknowledged since the last.
func (r *run) killInTurn(ctx context.Context, until time.Duration) (done bool, err error) {
	const acked = 100
	roles := []string{"leader", "follower", "controller"}
	if r.p.Options.Brokers == 1 {
		roles = []string{"any"}
	}
	for r.p.Steps < r.p.Options.Kills {
		if r.clock.Now() > until {
			return false, nil
		}
		began, want := time.Now(), r.load.Acked.Load()+acked
		for r.load.Acked.Load() < want || r.load.Flying.Load() == 0 {
			if time.Since(began) > healTime {
				return false, fmt.Errorf("after %d kills: only %d records acknowledged in %v", r.p.Steps, r.load.Acked.Load()-want+acked, healTime)
			}
			if err := r.wait(ctx, time.Millisecond); err != nil {
				return false, err
			}
		}
		took := time.Since(began)
		v := &victims{Stand: r.stand, load: r.load, rng: rand.New(rand.NewPCG(r.p.Options.Seed, uint64(r.p.Steps)))}
		role := roles[r.p.Steps%len(roles)]
		w := &window{From: r.clock.Now(), Name: "kill-" + role}
		b := v.broker(role)
		b.Kill()
		if err := r.wait(ctx, away(v.rng)); err != nil {
			return false, err
		}
		hctx, cancel := context.WithTimeout(ctx, healTime)
		err := again(b)(hctx)
		cancel()
		if err != nil {
			return false, err
		}
		r.p.Steps++
		w.To, w.Hit = r.clock.Now(), fmt.Sprint(v.hit)
		if err := appendWindow(r.path("windows.txt"), w); err != nil {
			return false, err
		}
		if r.p.Steps%10 == 0 {
			r.say("%d kills, %d acknowledged; the last 100 took %.1f s", r.p.Steps, r.load.Acked.Load(), took.Seconds())
		}
	}
	return true, nil
}

// away is how long a killed broker stays away: sometimes longer than a
// session, mostly shorter.
func away(rng *rand.Rand) time.Duration {
	return between(rng, 50*time.Millisecond, 3*time.Second)
}
