package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"firn/e2e/harness"
)

// TestMakefile: make reads its file, and has every target that the pages name.
func TestMakefile(t *testing.T) {
	cmd := exec.Command("make", "help")
	cmd.Dir = harness.Root()
	help, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make help: %v\n%s", err, help)
	}
	for _, page := range []string{"README.md", "ARCHITECTURE.md", "deploy/cluster/README.md", "e2e/bench/README.md"} {
		b, err := os.ReadFile(filepath.Join(harness.Root(), page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?:`|(?m:^))make ([a-z]+)").FindAllStringSubmatch(string(b), -1) {
			if !strings.Contains(string(help), "make "+m[1]+" ") {
				t.Errorf("%s names make %s, which make help does not know", page, m[1])
			}
		}
	}
}
