package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"time"

	"firn/e2e/checker"
)

// verdict checks the histories and says whether the run was valid and clean.
func (r *run) verdict(out io.Writer) (ok bool, err error) {
	var total checker.Report
	for p := range r.p.Options.Partitions {
		f, err := os.Open(r.h.Path(p))
		if err != nil {
			return false, err
		}
		rep, err := checker.Check(f)
		f.Close()
		if err != nil {
			return false, fmt.Errorf("%s: %w", r.h.Path(p), err)
		}
		total.Add(fmt.Sprintf("partition %d", p), rep)
	}
	ws, err := readWindows(r.path("windows.txt"))
	if err != nil {
		return false, err
	}
	a, err := measure(r.h, ws)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "\nchecker: %v\n\n", &total)
	valid := r.valid(out, &total, a)
	switch {
	case !total.Clean():
		fmt.Fprintln(out, "verdict: BROKEN PROMISES")
	case !valid && !r.p.Options.Brief:
		fmt.Fprintln(out, "verdict: INVALID: no anomaly, but too little has happened for that to mean something")
	default:
		fmt.Fprintln(out, "verdict: passed")
	}
	return total.Clean() && (valid || r.p.Options.Brief), nil
}

// valid prints what was done beside what must be.
func (r *run) valid(out io.Writer, rep *checker.Report, a availability) bool {
	o, c := &r.p.Options, &r.p.Counts
	part := o.Duration.Seconds() / (10 * time.Minute).Seconds()
	share := cmp.Or(o.Share, 1)
	part *= share
	ok := true
	row := func(name string, got, least float64) {
		mark := "ok"
		if got < least {
			mark, ok = "TOO FEW", false
		}
		fmt.Fprintf(out, "  %-46s %12.0f   at least %.0f: %s\n", name, got, least, mark)
	}
	if o.Kills > 0 {
		row("kills", float64(r.p.Steps), float64(o.Kills))
	} else {
		row("acknowledged writes", float64(rep.Acked), 300_000*part*o.tempo())
		row("acknowledged outside fault windows, %", 100*float64(a.outsideAcked)/float64(max(a.outside, 1)), 90)
		least := 1 << 30
		var worst *window
		promised := 0
		for _, w := range a.windows {
			if w.Promised {
				if promised++; w.acked < least {
					least, worst = w.acked, w
				}
			}
		}
		if worst != nil {
			row(fmt.Sprintf("acknowledged in each of %d promised windows", promised), float64(least), 100*share)
			fmt.Fprintf(out, "    the least in %s %s at %.1f s\n", worst.Name, worst.Hit, worst.From.Seconds())
		}
		if o.Brokers > 1 && len(o.Faults) == 0 { // chosen ones may move none
			row("leader changes", float64(c.LeaderChanges), 100*part)
		}
		row("segments archived", float64(c.Uploads), 500*part*o.tempo())
		row("cold reads", float64(c.ColdReads), 200*part)
		row("fault windows", float64(len(a.windows)), 1)
	}
	fmt.Fprintf(out, "  elections %d, commits of groups %d, starts of brokers %d, ends nobody asked for %d, retriable errors of reads %d, of them damage %d\n",
		c.Elections, c.Commits, c.Starts, c.Deaths, c.ReadErrors, c.Corrupt)
	return ok
}

// tempo is the share of the usual rate of writes that was asked for, 1 at most.
func (o *options) tempo() float64 { return min(o.Tempo, 1) }
