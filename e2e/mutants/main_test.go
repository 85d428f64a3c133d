package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"firn/e2e/harness"
)

// TestRowsApply: every old text occurs exactly once in its file, and names are
// unique. Whoever changes a line that a row names changes the row.
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
	}
	if len(seen) < 20 || archive < 4 {
		t.Errorf("%d rows, %d of them in tiering", len(seen), archive)
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
