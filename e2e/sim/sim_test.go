package main

import (
	"flag"
	"runtime"
	"testing"
)

var (
	seedsFlag = flag.Int("seeds", 0, "how many seeds")
	fromFlag  = flag.Uint64("from", 1, "the first seed")
)

// TestSameSeedSameTrace: a failure can be seen again.
func TestSameSeedSameTrace(t *testing.T) {
	for seed := range uint64(4) {
		first, again := runSeed(newPlan(seed+1), nil, false), runSeed(newPlan(seed+1), nil, false)
		if first.sum != again.sum {
			t.Errorf("seed %d: trace %016x, then %016x", seed+1, first.sum, again.sum)
		}
	}
}

// TestSimulation is a taste; CI runs many more by `make sim`.
func TestSimulation(t *testing.T) {
	simulateSeeds(t, runs{from: *fromFlag, n: max(*seedsFlag, 16)})
}

// TestMutant is the layer that mutants are held against: seeds that are known to
// pass, by exit code, up to the first that fails.
func TestMutant(t *testing.T) {
	if *seedsFlag == 0 {
		t.Skip("say how many -seeds")
	}
	simulateSeeds(t, runs{from: *fromFlag, n: *seedsFlag, failFast: true})
}

func simulateSeeds(t *testing.T, w runs) {
	w.workers = runtime.GOMAXPROCS(0)
	r := runSeeds(w, func(one result) {
		if one.err != nil {
			t.Errorf("seed %d: %v", one.seed, one.err)
		}
	})
	t.Log(r)
	if r.failed == 0 && r.counted < w.n*9/10 {
		t.Errorf("only %d of %d seeds have seen enough to count", r.counted, w.n)
	}
}
