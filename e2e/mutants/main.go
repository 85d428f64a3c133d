// Command mutants breaks the product on purpose, a line at a time, and demands
// that the layer which answers for it notices, and says what is wrong.
//
//	go run ./e2e/mutants                 all; the unmutated layers must pass, too
//	go run ./e2e/mutants -run isr        those whose name matches
//	go run ./e2e/mutants -list           what there is
//	go run ./e2e/mutants -v -run isr     with what the layer printed
//
// A row (rows.go) names a file, a text in it and another in its place: the text
// must occur exactly once, or the row is out of date and the command fails. The
// changed file goes into the build by -overlay; the sources stay as they are.
//
// A row runs the tests that must notice and no others, and names what their
// failure says. One that hangs, panics or fails with other words is not caught:
// the layer has noticed something, but not this. Each layer runs once without a
// change, with all the tests that its rows run. Tests of packages go -parallel at
// a time, then the simulation and real processes by themselves, since they use
// both cores, or what they see hangs on how fast they are.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("mutants", flag.ContinueOnError)
	run := fs.String("run", "", "only rows whose name matches")
	list := fs.Bool("list", false, "list the rows")
	parallel := fs.Int("parallel", 2, "how many at a time")
	root := fs.String("root", ".", "the repository")
	bare := fs.Bool("mutated-only", false, "leave the unmutated runs out")
	verbose := fs.Bool("v", false, "print what the layers print")
	if err := fs.Parse(args); err != nil {
		return err
	}
	want, err := regexp.Compile(*run)
	if err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range mutants() {
		if want.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no row matches %q", *run)
	}
	if *list {
		for _, m := range chosen {
			fmt.Printf("%-36s %-4s %-34s %s: %q\n", m.name, m.invariant, m.file, m.layer, m.says)
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "firn-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	abs, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	b := &bench{root: abs, dir: dir, verbose: *verbose}
	return b.all(ctx, chosen, *parallel, !*bare)
}

// bench runs mutants.
type bench struct {
	root, dir string
	verbose   bool

	mu  sync.Mutex
	bad []string
}

// all applies every row before it runs any, so that one that is out of date shows
// at once.
func (b *bench) all(ctx context.Context, ms []mutant, parallel int, unmutated bool) error {
	trials, err := b.plan(ms, unmutated)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, alone := range []bool{false, true} {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(parallel)
		if alone {
			g.SetLimit(1)
		}
		phase, n := time.Now(), 0
		for _, t := range trials {
			if t.layer.alone() == alone {
				n++
				g.Go(func() error { return b.one(ctx, &t) })
			}
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if n > 0 {
			fmt.Printf("== %d runs of %s in %.0f s\n", n, map[bool]string{false: "packages' tests", true: "the simulation and of processes"}[alone], time.Since(phase).Seconds())
		}
	}
	fmt.Printf("%d mutants and %d unmutated runs: %d not as they should be, in %.0f s\n", len(ms), len(trials)-len(ms), len(b.bad), time.Since(began).Seconds())
	if len(b.bad) > 0 {
		return fmt.Errorf("not as they should be: %s", strings.Join(b.bad, ", "))
	}
	return nil
}

// trial is a layer with a change in the build, or without.
type trial struct {
	layer
	name, about, overlay string
	says                 string // "" without a change
}

// plan is all trials. Those of a layer follow each other, the one without a change
// first: it builds what the others share.
func (b *bench) plan(ms []mutant, unmutated bool) (all []trial, err error) {
	var layers []layer
	of := map[string][]trial{}
	var stale []error
	for i, m := range ms {
		overlay, err := b.overlay(i, m)
		if err != nil {
			stale = append(stale, err)
		}
		key := m.layer.key()
		if at := slices.IndexFunc(layers, func(l layer) bool { return l.key() == key }); at < 0 {
			layers = append(layers, m.layer)
		} else {
			layers[at] = layers[at].with(m.layer.tests)
		}
		of[key] = append(of[key], trial{m.layer, m.name, m.invariant, overlay, m.says})
	}
	for _, l := range layers {
		if unmutated {
			all = append(all, trial{layer: l, name: "unmutated " + l.key()})
		}
		all = append(all, of[l.key()]...)
	}
	return all, errors.Join(stale...)
}

// one makes a trial and says what came of it. An error ends everything.
func (b *bench) one(ctx context.Context, t *trial) error {
	began := time.Now()
	o, err := t.layer.run(ctx, b.root, t.overlay)
	if err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	verdict, good := o.verdict(t.says)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !good {
		b.bad = append(b.bad, t.name)
	}
	fmt.Printf("%-50s %-4s %5.1f s %5.1f s of CPU  %s\n", t.name, t.about, time.Since(began).Seconds(), o.cpu.Seconds(), verdict)
	if !good || b.verbose {
		fmt.Println(o.out)
	}
	return nil
}

// overlay writes the changed file and the map that puts it in the other's place.
func (b *bench) overlay(i int, m mutant) (string, error) {
	path := filepath.Join(b.root, filepath.FromSlash(m.file))
	src, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.name, err)
	}
	changed, err := m.apply(string(src))
	if err != nil {
		return "", err
	}
	to := filepath.Join(b.dir, fmt.Sprintf("%d.go", i))
	if err := os.WriteFile(to, []byte(changed), 0o644); err != nil {
		return "", err
	}
	j, err := json.Marshal(map[string]map[string]string{"Replace": {path: to}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(b.dir, fmt.Sprintf("%d.json", i))
	return overlay, os.WriteFile(overlay, j, 0o644)
}

// apply changes a source.
func (m *mutant) apply(src string) (string, error) {
	if n := strings.Count(src, m.old); n != 1 {
		return "", fmt.Errorf("%s: %s has the old text %d times: the row is out of date", m.name, m.file, n)
	}
	return strings.Replace(src, m.old, m.new, 1), nil
}
