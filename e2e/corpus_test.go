package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The corpus is real text: the Go source tree, in pieces keyed by path.
const (
	pieceBytes = 6000
	// keySep and recordSep part keys and records where a client speaks text;
	// no Go source holds them.
	keySep, recordSep = 0x01, 0x02
)

// piece is a record of the corpus.
type piece struct {
	key   string
	value []byte
}

// corpus calls yield with the pieces of the Go source tree, rounds times over
// under different keys, until it returns false.
func corpus(t testing.TB, rounds int, yield func(piece) bool) {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("go env GOROOT: %v", err)
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "src")
	for round := range rounds {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if bytes.ContainsAny(b, "\x01\x02") {
				return nil
			}
			key := fmt.Sprintf("%d/%s", round, strings.TrimPrefix(path, root+"/"))
			for len(b) > 0 {
				n := min(len(b), pieceBytes)
				if !yield(piece{key, b[:n:n]}) {
					return fs.SkipAll
				}
				b = b[n:]
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// digests sums records by key, in order: two readers that agree on every key saw
// the same bytes, since a key's records share a partition.
type digests struct {
	sums   map[string]hash.Hash
	counts map[string]int
	bytes  int64
}

func newDigests() *digests { return &digests{sums: map[string]hash.Hash{}, counts: map[string]int{}} }

func (d *digests) add(key string, value []byte) {
	h := d.sums[key]
	if h == nil {
		h = sha256.New()
		d.sums[key] = h
	}
	var n [4]byte
	binary.BigEndian.PutUint32(n[:], uint32(len(value)))
	h.Write(n[:])
	h.Write(value)
	d.counts[key]++
	d.bytes += int64(len(value))
}

// lines prints a key, its count and its digest a line, sorted, as ReadAll.java does.
func (d *digests) lines() []string {
	var out []string
	for k, h := range d.sums {
		out = append(out, fmt.Sprintf("%s\t%d\t%s", k, d.counts[k], hex.EncodeToString(h.Sum(nil))))
	}
	slices.Sort(out)
	return out
}

// sameLines compares and shows the first difference.
func sameLines(t testing.TB, who string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("%s read something else, %d keys instead of %d; the first difference:\n got %s\nwant %s", who, len(got), len(want), got[i], want[i])
		}
	}
	t.Fatalf("%s read %d keys, want %d", who, len(got), len(want))
}
