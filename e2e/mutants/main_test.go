package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"firn/e2e/harness"
)

// TestRowsApply: every old text occurs exactly once in its file, names are unique,
// and the tests that must notice are there. Whoever changes a line or a test that
// a row names changes the row.
func TestRowsApply(t *testing.T) {
	seen := map[string]bool{}
	archive := 0
	for _, m := range mutants() {
		if seen[m.name] {
			t.Errorf("two rows are called %s", m.name)
		}
		seen[m.name] = true
		src, err := os.ReadFile(filepath.Join(harness.Root(), m.file))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if _, err := m.apply(string(src)); err != nil {
			t.Error(err)
		}
		if strings.HasPrefix(m.file, "tiering/") {
			archive++
		}
		if m.says == "" {
			t.Errorf("%s: it doesn't matter what its failure says", m.name)
		}
		for _, name := range m.layer.tests {
			if !strings.Contains(sourcesOfTests(t, m.layer.pkg), "\nfunc "+name+"(") {
				t.Errorf("%s: %s has no %s", m.name, m.layer.pkg, name)
			}
		}
	}
	if len(seen) < 20 || archive < 4 {
		t.Errorf("%d rows, %d of them in tiering", len(seen), archive)
	}
}

func sourcesOfTests(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(harness.Root(), pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// TestVerdict: only a failure that says what the row says is a catch.
func TestVerdict(t *testing.T) {
	const says = "got:\nhw=20"
	told := "--- FAIL: TestFiles (0.00s)\n    --- FAIL: TestFiles/a.txt (0.00s)\n        a_test.go:5: fetched 3\n            got:\n            hw=20\n"
	for _, c := range []struct {
		name string
		o    outcome
		says string
		good bool
	}{
		{"says so", outcome{failed: true, out: told}, says, true},
		{"passes", outcome{out: "ok"}, says, false},
		{"says something else", outcome{failed: true, out: "--- FAIL: TestFiles\n    a_test.go:5: hw=21"}, says, false},
		{"says so, and panics", outcome{failed: true, out: told + "panic: runtime error"}, says, false},
		{"says so, and hangs", outcome{failed: true, hung: true, out: told}, says, false},
		{"does not build", outcome{failed: true, broken: true, out: told}, says, false},
		{"unmutated passes", outcome{out: "ok"}, "", true},
		{"unmutated fails", outcome{failed: true, out: told}, "", false},
	} {
		if words, good := c.o.verdict(c.says); good != c.good {
			t.Errorf("%s: %s", c.name, words)
		}
	}
	o := outcome{out: told}
	if got, want := o.tells("fetched 3\ngot:"), "TestFiles/a.txt a_test.go:5: fetched 3"; got != want {
		t.Errorf("tells %q, want %q", got, want)
	}
}

// TestPlan: a layer's run without a change comes before those with one, and runs
// all their tests.
func TestPlan(t *testing.T) {
	b := &bench{root: harness.Root(), dir: t.TempDir()}
	ms := mutants()
	all, err := b.plan(ms, true)
	if err != nil {
		t.Fatal(err)
	}
	clean := map[string]layer{}
	for _, r := range all {
		l, seen := clean[r.key()]
		switch {
		case r.says == "" && (seen || r.overlay != ""):
			t.Errorf("%s: run twice without a change, or with one", r.name)
		case r.says == "":
			clean[r.key()] = r.layer
		case !seen || r.overlay == "" || len(l.with(r.tests).tests) > len(l.tests):
			t.Errorf("%s: its tests were not run without a change before, or it has none", r.name)
		}
	}
	if len(all) != len(ms)+len(clean) {
		t.Errorf("%d runs of %d rows in %d layers", len(all), len(ms), len(clean))
	}
}

// TestApplyRefuses a text that isn't there, or is there twice.
func TestApplyRefuses(t *testing.T) {
	m := mutant{name: "m", file: "f", old: "x", new: "y"}
	for src, ok := range map[string]bool{"a x b": true, "a b": false, "x x": false} {
		if _, err := m.apply(src); (err == nil) != ok {
			t.Errorf("apply to %q: %v", src, err)
		}
	}
}
