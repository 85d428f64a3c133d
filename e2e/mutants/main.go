// Command mutants breaks the product on purpose, a line at a time, and demands
// that the layer which answers for it notices.
//
//	go run ./e2e/mutants                 all; the unmutated layers must pass first
//	go run ./e2e/mutants -run isr        those whose name matches
//	go run ./e2e/mutants -list           what there is
//
// A row (rows.go) names a file, a text in it and another in its place: the text
// must occur exactly once, or the row is out of date and the command fails. The
// changed file goes into the build by -overlay; the sources stay as they are.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
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
			fmt.Printf("%-34s %-4s %-34s %s\n", m.name, m.invariant, m.file, m.layer)
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
	b := &bench{root: abs, dir: dir, began: time.Now()}
	return b.all(ctx, chosen, *parallel, !*bare)
}

// bench runs mutants.
type bench struct {
	root, dir string
	began     time.Time

	mu       sync.Mutex
	survived []string
}

// all applies every row before it runs any, so that one that is out of date shows
// at once.
func (b *bench) all(ctx context.Context, ms []mutant, parallel int, unmutated bool) error {
	overlays := make([]string, len(ms))
	var stale []error
	for i, m := range ms {
		var err error
		if overlays[i], err = b.overlay(i, m); err != nil {
			stale = append(stale, err)
		}
	}
	if len(stale) > 0 {
		return errors.Join(stale...)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	if unmutated {
		var seen []string
		for _, m := range ms {
			if slices.Contains(seen, m.layer.String()) {
				continue
			}
			seen = append(seen, m.layer.String())
			g.Go(func() error {
				began := time.Now()
				caught, out, err := m.layer.run(ctx, b.root, "")
				switch {
				case err != nil:
					return err
				case caught:
					b.say("unmutated", "", "FAILS "+m.layer.String()+"\n"+out, began)
					b.fail("unmutated " + m.layer.String())
				default:
					b.say("unmutated", "", "passes "+m.layer.String(), began)
				}
				return nil
			})
		}
	}
	for i, m := range ms {
		g.Go(func() error {
			began := time.Now()
			caught, out, err := m.layer.run(ctx, b.root, overlays[i])
			if err != nil && ctx.Err() != nil {
				return err
			}
			if err != nil {
				b.say(m.name, m.invariant, err.Error(), began)
				b.fail(m.name)
				return nil
			}
			if caught {
				b.say(m.name, m.invariant, "caught by "+first(out), began)
				return nil
			}
			b.say(m.name, m.invariant, "SURVIVES "+m.layer.String(), began)
			b.fail(m.name)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Printf("%d mutants and what is unmutated: %d not as they should be, in %.0f s\n", len(ms), len(b.survived), time.Since(b.began).Seconds())
	if len(b.survived) > 0 {
		return fmt.Errorf("not as they should be: %s", strings.Join(b.survived, ", "))
	}
	return nil
}

func (b *bench) fail(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.survived = append(b.survived, name)
}

func (b *bench) say(name, about, result string, began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Printf("%-34s %-6s %5.1f s  %s\n", name, about, time.Since(began).Seconds(), result)
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

// layer is what must notice.
type layer struct {
	// packages are tested, by the tests that match; or command is run, with
	// the overlay in place of OVERLAY.
	packages, match string
	command         []string
}

func (l layer) String() string {
	switch {
	case l.command != nil:
		return strings.Join(l.command, " ")
	case l.match != "":
		return "go test -run '" + l.match + "' " + l.packages
	}
	return "go test " + l.packages
}

// longest is how long one run may take; a mutant that hangs is caught.
const longest = 4 * time.Minute

// run tells whether the layer has noticed. A build that fails notices nothing.
func (l layer) run(ctx context.Context, root, overlay string) (caught bool, out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	args := slices.Clone(l.command)
	if args == nil {
		args = []string{"go", "test", "-count=1", "-vet=off", "-failfast", "-timeout", "100s"}
		if overlay != "" {
			args = append(args, "-overlay", overlay)
		}
		if l.match != "" {
			args = append(args, "-run", l.match)
		}
		args = append(args, strings.Fields(l.packages)...)
	} else if overlay != "" {
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "OVERLAY", "-overlay="+overlay)
		}
	} else {
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "OVERLAY", "")
		}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.WaitDelay = root, 5*time.Second
	b, err := cmd.CombinedOutput()
	out = string(b)
	if err == nil {
		return false, out, nil
	}
	var exit *exec.ExitError
	if ctx.Err() == nil && (!errors.As(err, &exit) || strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]") || strings.Contains(out, "build firn:")) {
		return false, out, fmt.Errorf("it does not build: %w\n%s", err, out)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return false, out, ctx.Err()
	}
	return true, out, nil
}

// first is the first line that tells what failed.
func first(out string) string {
	for _, sign := range []string{"--- FAIL: ", "verdict: ", "panic: ", "fatal error: ", "chaos: seed "} {
		for line := range strings.Lines(out) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), sign); ok && (sign != "chaos: seed " || strings.Contains(rest, " in ")) {
				name, _, _ := strings.Cut(rest, " (")
				return strings.TrimSpace(strings.TrimSuffix(sign, "--- FAIL: ") + name)
			}
		}
	}
	return "a failure"
}
