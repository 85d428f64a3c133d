package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func main() {
	testing.Init()
	seeds := flag.Int("seeds", 100, "how many seeds")
	count := flag.Int("count", 0, "run until so many seeds count, in place of -seeds")
	from := flag.Uint64("from", 1, "the first seed")
	seed := flag.Uint64("seed", 0, "run this seed alone")
	show := flag.Bool("trace", false, "print what happens")
	first := flag.Bool("failfast", false, "stop at the first seed that fails")
	shrinks := flag.Bool("shrink", false, "with -seed: leave out the faults that its failure doesn't take")
	disks := flag.Bool("disk", false, "with -trace: print what changes on disks, too")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "how many seeds at a time")
	flag.Parse()
	if *count > 0 {
		*seeds = *count * 2
	}
	if *seed > 0 {
		*from, *seeds, *workers = *seed, 1, 1
	}
	var out io.Writer
	if *show {
		out = os.Stdout
	}
	if *shrinks {
		shrink(*seed)
		return
	}
	r := runSeeds(runs{from: *from, n: *seeds, enough: *count, workers: *workers, failFast: *first, out: out, disks: *disks}, func(one result) {
		if one.err != nil {
			fmt.Printf("seed %d: %v\n", one.seed, one.err)
		} else if *seed > 0 {
			fmt.Printf("seed %d: trace %016x, counts %t: %v\n", one.seed, one.sum, one.counts.enough(), one.counts)
		}
	})
	fmt.Println(r)
	if r.failed > 0 || r.counted < *count {
		os.Exit(1)
	}
}

// result is what came of a seed.
type result struct {
	seed   uint64
	sum    uint64
	counts *counts
	err    error
}

// report sums up many.
type report struct {
	ran, counted, failed int
	counts               *counts
	took                 time.Duration
}

func (r report) String() string {
	return fmt.Sprintf("%d seeds, %d of them count, %d failed, in %v: %.1f seeds/s\n%v",
		r.ran, r.counted, r.failed, r.took.Round(time.Millisecond), float64(r.ran)/r.took.Seconds(), r.counts)
}

// runs are the seeds to run.
type runs struct {
	from uint64
	n    int
	// enough, if not 0, is how many seeds that count are enough.
	enough, workers int
	failFast        bool
	out             io.Writer // of the trace
	disks           bool
}

// runSeeds runs seeds, some at a time, and tells of each.
func runSeeds(w runs, tell func(result)) report {
	r := report{counts: newCounts()}
	began := time.Now()
	var mu sync.Mutex
	var next atomic.Int64
	var wg sync.WaitGroup
	for range max(w.workers, 1) {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				mu.Lock()
				done := i >= int64(w.n) || w.enough > 0 && r.counted >= w.enough || w.failFast && r.failed > 0
				mu.Unlock()
				if done {
					return
				}
				one := runSeed(newPlan(w.from+uint64(i)), w.out, w.disks)
				mu.Lock()
				r.ran++
				if one.err != nil {
					r.failed++
					one.err = fmt.Errorf("%w\n  again: go run ./e2e/sim -seed %d -trace; with -shrink in its place, the faults that it takes", one.err, one.seed)
				} else if one.counts.enough() {
					r.counted++
				}
				if one.counts != nil {
					r.counts.merge(one.counts)
				}
				tell(one)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	r.took = time.Since(began)
	return r
}

// runSeed runs one seed in a bubble of its own. synctest asks for a test to report
// to; outside of go test one that nobody looks at will do.
func runSeed(p plan, out io.Writer, disks bool) result {
	one := result{seed: p.seed, counts: newCounts()}
	t := newTrace(out)
	synctest.Test(new(testing.T), func(*testing.T) {
		one.counts, one.err = simulate(p, t, disks)
	})
	one.sum = t.sum()
	return one
}

// shrink leaves out one fault after the other, the last first, as long as the seed
// still fails, and prints what is left.
func shrink(seed uint64) {
	p := newPlan(seed)
	p.skip = map[int]bool{}
	one := runSeed(p, nil, false)
	if one.err == nil {
		fmt.Printf("seed %d passes\n", seed)
		return
	}
	for n := one.counts.of("fault numbers") - 1; n >= 0; n-- {
		p.skip[n] = true
		if again := runSeed(p, nil, false); again.err != nil {
			one = again
		} else {
			delete(p.skip, n)
		}
	}
	runSeed(p, os.Stdout, false)
	fmt.Printf("seed %d with %d faults: %v\n", seed, one.counts.of("faults"), one.err)
}
