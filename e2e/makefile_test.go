package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"firn/e2e/harness"
)

// TestMakefile: make reads its file, and has every target that the pages name.
func TestMakefile(t *testing.T) {
	targets := map[string]bool{"help": true}
	for _, page := range []string{"README.md", "ARCHITECTURE.md", "deploy/cluster/README.md", "e2e/bench/README.md"} {
		b, err := os.ReadFile(filepath.Join(harness.Root(), page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?:`|(?m:^))make ([a-z]+)").FindAllStringSubmatch(string(b), -1) {
			targets[m[1]] = true
		}
	}
	for target := range targets {
		// MAKE: make -n would run lines that name $(MAKE).
		cmd := exec.Command("make", "-n", "MAKE=true", target)
		cmd.Dir = harness.Root()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("make -n %s: %v\n%s", target, err, out)
		}
	}
}
