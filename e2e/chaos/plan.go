package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// step is a fault of the plan: when it begins, how long it lasts.
type step struct {
	fault *fault
	at    time.Duration
	lasts time.Duration
	seed  uint64 // of its own choices
}

// plan draws faults from a seed, one after the other, for a whole run: all come
// up about equally often. The same seed gives the same plan.
func plan(seed uint64, of []fault, duration time.Duration) []step {
	rng := rand.New(rand.NewPCG(seed, 0xfa017))
	var steps []step
	var deck []int
	for at := firstFault; ; {
		if len(deck) == 0 {
			deck = rng.Perm(len(of))
		}
		f := &of[deck[0]]
		deck = deck[1:]
		s := step{fault: f, at: at, lasts: between(rng, f.shortest, f.longest), seed: rng.Uint64()}
		if s.at+s.lasts > duration-calmEnd {
			return steps
		}
		steps = append(steps, s)
		at += s.lasts + between(rng, shortestCalm, longestCalm)
	}
}

// Between two faults the stand heals, and clients work undisturbed.
const (
	firstFault   = 3 * time.Second
	shortestCalm = 1 * time.Second
	longestCalm  = 4 * time.Second
	calmEnd      = 2 * time.Second
)

// between draws a time, short ones as often as long ones (log-uniform).
func between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return time.Duration(float64(from) * math.Pow(float64(to)/float64(from), rng.Float64()))
}
