package e2e

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// rows is the house: a package imports only packages of rows below its own. A
// package's test may also import its own row's contract test.
var rows = map[string]int{
	"e2e":      8,
	"cmd/firn": 7,
	"broker":   6, "broker/console": 6,
	"zkmeta": 5, "zkmeta/solo": 5, "zkmeta/metatest": 5, "zkmeta/zktest": 5,
	"replication/controller": 4, "broker/peer": 4,
	"tiering": 3, "replication": 3,
	"segment": 2, "tiering/cache": 2, "tiering/filestore": 2, "tiering/s3": 2, "tiering/minio": 2,
	"tiering/objstoretest": 2, "replication/isr": 2,
	"segment/vfs": 1, "segment/batch": 1, "tiering/objstore": 1, "replication/meta": 1, "replication/scenariotest": 1,
	"broker/wire": 1, "broker/group": 1, "broker/txn": 1, "broker/auth": 1, "broker/config": 1,
}

// owners tells which packages may import a third-party module. A prefix covers
// everything below it; "tests" stands for any _test.go.
var owners = map[string][]string{
	"github.com/go-zookeeper/zk":        {"zkmeta", "e2e"},
	"go.etcd.io/bbolt":                  {"zkmeta/solo"},
	"github.com/aws/":                   {"tiering/s3"},
	"github.com/minio/":                 {"tiering/minio", "e2e"},
	"github.com/twmb/franz-go/pkg/kmsg": {"broker", "broker/*", "cmd/firn", "e2e"}, // cmd/firn: requests that kadm lacks
	"github.com/twmb/franz-go/pkg/kerr": {"broker", "broker/*", "cmd/firn", "e2e"},
	"github.com/twmb/franz-go/pkg/kbin": {"broker", "broker/*", "e2e"},
	"github.com/twmb/franz-go/pkg/kgo":  {"cmd/firn", "e2e"},
	"github.com/twmb/franz-go/pkg/kadm": {"cmd/firn", "e2e"},
	"github.com/segmentio/kafka-go":     {"e2e"},
	"github.com/spf13/cobra":            {"cmd/firn"},
	"github.com/klauspost/compress":     {"segment/batch", "tests"},
	"github.com/pierrec/lz4":            {"segment/batch", "tests"},
	"github.com/prometheus/":            {"*"},
	"golang.org/x/":                     {"*"},
	"go.uber.org/goleak":                {"tests"},
	"github.com/google/go-cmp":          {"tests"},
	"pgregory.net/rapid":                {"tests"},
	"go.yaml.in/yaml":                   {"e2e"},
	"github.com/schollz/progressbar":    {"cmd/firn"},
	"github.com/dustin/go-humanize":     {"cmd/firn"},
	"github.com/maypok86/otter":         {"tiering/cache"},
	"github.com/cespare/xxhash":         {"*"},
}

// TestLayers reads every source file: the house holds.
func TestLayers(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || strings.HasPrefix(name, "firn-data")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		files++
		rel, _ := filepath.Rel(root, filepath.Dir(path))
		checkFile(t, filepath.ToSlash(rel), path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("only %d files seen: the walk is broken", files)
	}
}

func checkFile(t *testing.T, pkg, path string) {
	row, known := rowOf(pkg)
	if !known {
		t.Errorf("%s: package %s has no row in the house", path, pkg)
		return
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	test := strings.HasSuffix(path, "_test.go")
	for _, spec := range f.Imports {
		imp, _ := strconv.Unquote(spec.Path.Value)
		if inner, ok := strings.CutPrefix(imp, "firn/"); ok {
			r, known := rowOf(inner)
			forTests := strings.HasSuffix(inner, "test")
			contract := test && r == row && forTests
			if forTests && !test && row < 8 {
				t.Errorf("%s: %s is for tests", path, inner)
			}
			if !known || r >= row && !contract && inner != pkg && row < 8 {
				t.Errorf("%s: %s (row %d) may not import %s (row %d)", path, pkg, row, inner, r)
			}
			continue
		}
		if !strings.Contains(strings.Split(imp, "/")[0], ".") {
			continue // standard library
		}
		if !owned(pkg, imp, test) {
			t.Errorf("%s: %s may not import %s", path, pkg, imp)
		}
	}
}

func rowOf(pkg string) (int, bool) {
	if pkg == "e2e" || strings.HasPrefix(pkg, "e2e/") {
		return 8, true
	}
	r, ok := rows[pkg]
	return r, ok
}

func owned(pkg, imp string, test bool) bool {
	for prefix, who := range owners {
		if imp != prefix && !strings.HasPrefix(imp, strings.TrimSuffix(prefix, "/")+"/") {
			continue
		}
		for _, w := range who {
			switch {
			case w == "*", w == "tests" && test, w == pkg,
				w == "e2e" && strings.HasPrefix(pkg, "e2e/"),
				strings.HasSuffix(w, "/*") && strings.HasPrefix(pkg, strings.TrimSuffix(w, "*")):
				return true
			}
		}
	}
	return false
}
