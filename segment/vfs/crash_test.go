package vfs_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"firn/segment/vfs"
)

var (
	powerLoss    = vfs.CrashOptions{Keep: 0}
	processCrash = vfs.CrashOptions{Keep: 100}
)

// durable makes /d and, in it, the file f with content, all synced.
func durable(t *testing.T, content string) (*vfs.Mem, vfs.File) {
	t.Helper()
	m := vfs.NewMem()
	must(t, m.MkdirAll("/d", 0o755))
	must(t, m.SyncDir("/"))
	f := create(t, m, "/d/f")
	write(t, f, 0, content)
	must(t, f.Sync())
	must(t, m.SyncDir("/d"))
	return m, f
}

func TestCrashKeepsWhatIsSynced(t *testing.T) {
	m, f := durable(t, "synced")
	write(t, f, 6, " and not")
	must(t, f.Truncate(8))
	content(t, m.CrashClone(powerLoss), "/d/f", "synced")
	content(t, m.CrashClone(processCrash), "/d/f", "synced a")
	must(t, f.Sync())
	content(t, m.CrashClone(powerLoss), "/d/f", "synced a")
	content(t, m, "/d/f", "synced a")
}

func TestCrashLosesAFileWhoseDirectoryIsNotSynced(t *testing.T) {
	m, _ := durable(t, "")
	g := create(t, m, "/d/g")
	write(t, g, 0, "g")
	must(t, g.Sync())
	list(t, m.CrashClone(powerLoss), "/d", "f")
	list(t, m.CrashClone(processCrash), "/d", "f", "g")
	must(t, m.SyncDir("/d"))
	content(t, m.CrashClone(powerLoss), "/d/g", "g")

	must(t, m.MkdirAll("/d/e", 0o755))
	must(t, m.SyncDir("/d/e"))
	list(t, m.CrashClone(powerLoss), "/d", "f", "g")
}

func TestCrashUndoesARemovalAndARenameThatAreNotSynced(t *testing.T) {
	m, _ := durable(t, "f")
	g := create(t, m, "/d/g")
	write(t, g, 0, "g")
	must(t, g.Sync())
	must(t, m.SyncDir("/d"))

	must(t, m.Rename("/d/g", "/d/f"))
	content(t, m.CrashClone(powerLoss), "/d/f", "f")
	content(t, m.CrashClone(powerLoss), "/d/g", "g")
	must(t, m.SyncDir("/d"))
	content(t, m.CrashClone(powerLoss), "/d/f", "g")
	list(t, m.CrashClone(powerLoss), "/d", "f")

	must(t, m.Remove("/d/f"))
	content(t, m.CrashClone(powerLoss), "/d/f", "g")
	must(t, m.SyncDir("/d"))
	list(t, m.CrashClone(powerLoss), "/d")
}

// A rename between directories is durable once both are synced, in any order,
// and before that the file may be in both but never in neither.
func TestCrashNeverLosesARenamedFile(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m, _ := durable(t, "f")
		must(t, m.MkdirAll("/e", 0o755))
		must(t, m.SyncDir("/"))
		must(t, m.Rename("/d/f", "/e/f"))
		dirs := []string{"/d", "/e"}
		rng.Shuffle(2, func(i, j int) { dirs[i], dirs[j] = dirs[j], dirs[i] })
		for range rng.IntN(3) {
			must(t, m.SyncDir(dirs[0]))
			dirs = dirs[1:]
		}
		c := m.CrashClone(vfs.CrashOptions{Keep: 50, Rand: rng})
		_, old := c.Stat("/d/f")
		_, moved := c.Stat("/e/f")
		if old != nil && moved != nil {
			t.Fatalf("seed %d: in neither directory", seed)
		}
		if len(dirs) == 0 && (old == nil || moved != nil) {
			t.Fatalf("seed %d: both synced, yet old: %v, new: %v", seed, old, moved)
		}
	}
}

func TestCrashOfACreationBehindAHalfSyncedRename(t *testing.T) {
	m, _ := durable(t, "old")
	must(t, m.MkdirAll("/e", 0o755))
	must(t, m.SyncDir("/"))
	must(t, m.Rename("/d/f", "/e/f"))
	g := create(t, m, "/d/f")
	write(t, g, 0, "new")
	must(t, g.Sync())
	must(t, m.SyncDir("/d"))
	content(t, m.CrashClone(powerLoss), "/d/f", "new")
	must(t, m.SyncDir("/e"))
	c := m.CrashClone(powerLoss)
	content(t, c, "/d/f", "new")
	content(t, c, "/e/f", "old")
}

func TestCrashTearsBySectors(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(400) {
		m, f := durable(t, strings.Repeat("0", 1536))
		write(t, f, 100, strings.Repeat("1", 1300)) // sectors 0, 1 and 2, the outer ones in part
		got := slurp(t, m.CrashClone(vfs.CrashOptions{Keep: 50, Rand: rand.New(rand.NewPCG(seed, 2))}), "/d/f")
		shape := ""
		for _, part := range []string{got[:100], got[100:512], got[512:1024], got[1024:1400], got[1400:]} {
			if strings.Trim(part, part[:1]) != "" {
				t.Fatalf("seed %d: torn inside a sector: %q", seed, part)
			}
			shape += part[:1]
		}
		seen[shape]++
	}
	for _, shape := range []string{"00000", "01110", "01000", "00010", "01010"} {
		if seen[shape] == 0 {
			t.Errorf("never seen: %s in %v", shape, seen)
		}
	}
	if len(seen) != 8 {
		t.Errorf("got %d outcomes, want 8: %v", len(seen), seen)
	}
}

func TestCrashIsRepeatable(t *testing.T) {
	run := func() string {
		m, f := durable(t, "base")
		for i := range 20 {
			write(t, f, int64(i*700), strings.Repeat(fmt.Sprint(i%10), 900))
			create(t, m, fmt.Sprintf("/d/%d", i))
		}
		c := m.CrashClone(vfs.CrashOptions{Keep: 50, Rand: rand.New(rand.NewPCG(7, 7))})
		entries, err := c.ReadDir("/d")
		must(t, err)
		return fmt.Sprint(len(entries)) + slurp(t, c, "/d/f")
	}
	if a, b := run(), run(); a != b {
		t.Error("the same draws left two different disks")
	}
}

func TestCrashCloneIsSeparateAndUnlocked(t *testing.T) {
	m, f := durable(t, "f")
	_, err := m.Lock("/d/.lock")
	must(t, err)
	c := m.CrashClone(processCrash)
	write(t, f, 0, "F")
	content(t, c, "/d/f", "f")
	l, err := c.Lock("/d/.lock")
	must(t, err)
	must(t, l.Close())
}

// TestOnOpTellsEveryChange is also how a test crashes after each operation.
func TestOnOpTellsEveryChange(t *testing.T) {
	m := vfs.NewMem()
	var trace []string
	var survives []string
	m.OnOp(func(op vfs.Op) {
		trace = append(trace, op.String())
		_, err := m.CrashClone(powerLoss).Stat("/d/g")
		survives = append(survives, fmt.Sprint(err == nil))
	})
	must(t, m.MkdirAll("/d", 0o755))
	must(t, m.MkdirAll("/d", 0o755))
	must(t, m.SyncDir("/"))
	f := create(t, m, "/d/f")
	create(t, m, "/d/f")
	write(t, f, 2, "xyz")
	must(t, f.Truncate(4))
	must(t, f.Sync())
	must(t, m.Rename("/d/f", "/d/g"))
	must(t, m.SyncDir("/d"))
	must(t, m.Remove("/d/g"))
	want := []string{
		"mkdir /d", "syncdir /", "create /d/f", "write /d/f [2,5)", "truncate /d/f 4", "sync /d/f",
		"rename /d/f /d/g", "syncdir /d", "remove /d/g",
	}
	if !slices.Equal(trace, want) {
		t.Errorf("got  %q\nwant %q", trace, want)
	}
	if got := strings.Join(survives[len(survives)-3:], " "); got != "false true true" {
		t.Errorf("/d/g after a crash at rename, syncdir, remove: got %s", got)
	}
}

func TestMemTellsPathErrors(t *testing.T) {
	_, err := vfs.NewMem().OpenFile("/no", 0, 0)
	var pe *fs.PathError
	if is(t, err, fs.ErrNotExist); err == nil || err.Error() != "open /no: file does not exist" {
		t.Errorf("got %v (%T)", err, pe)
	}
}
