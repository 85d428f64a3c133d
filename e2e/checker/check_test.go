package checker

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestKinds has every kind of anomaly flagged in a history made for it, and by
// nothing but its own name; its twin, as like it as can be, is clean.
func TestKinds(t *testing.T) {
	for _, k := range Kinds() {
		t.Run(string(k), func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join("testdata", string(k)+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			head, rest, ok := strings.Cut(string(b), "-- flagged --\n")
			flagged, clean, ok2 := strings.Cut(rest, "-- clean --\n")
			if !ok || !ok2 {
				t.Fatal("a file has the sections flagged and clean")
			}
			want := []Kind{k}
			for line := range strings.Lines(head) {
				if also, ok := strings.CutPrefix(line, "also "); ok {
					want = append(want, Kind(strings.TrimSpace(also)))
				}
			}
			slices.Sort(want)
			got := run(t, flagged)
			if kinds := slices.Sorted(maps.Keys(got.Counts)); !slices.Equal(kinds, want) {
				t.Errorf("flagged: %v, want %v\n%v", kinds, want, got)
			}
			if got := run(t, clean); !got.Clean() {
				t.Errorf("the clean twin: %v", got)
			}
		})
	}
}

func run(t *testing.T, history string) *Report {
	t.Helper()
	r, err := Check(strings.NewReader(history))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAllowed has what looks like an anomaly and is none: repetitions without
// idempotence and losses at acks=1 are counted.
func TestAllowed(t *testing.T) {
	r := run(t, `
write 1-2 n1.0 @0
write 3-4 w1.0 @2
write 5-6 w1.1 @3
write 5-6 i1.0 @2
write 7-8 i1.1 unknown
dump log 0 3
has log 0=n1.0 1=n1.0 2=i1.0
`)
	if !r.Clean() || r.Repeated != 1 || r.LostWeak != 2 || r.Acked != 2 || r.AckedWeak != 2 || r.Unknown != 1 {
		t.Errorf("%+v", r)
	}
}

// TestWhoLacksItsZooKeeperMayLag, by as much as "past" says and no more.
func TestWhoLacksItsZooKeeperMayLag(t *testing.T) {
	for history, flagged := range map[string]int64{
		"write 1-2 i1.0 @7\nlatest 6-7 c1 7\npast 4-9 4":   0,
		"write 1-2 i1.0 @7\nlatest 7-8 c1 7\npast 4-9 4":   1, // four before it, it was so already
		"write 1-2 i1.0 @7\nlatest 3-8 c1 7\npast 4-9 4":   1, // asked before
		"write 1-2 i1.0 @7\nlatest 10-11 c1 7\npast 4-9 9": 1, // asked afterwards
		"latest 1-2 c1 7\nlatest 6-7 c2 6\npast 4-9 4":     0,
		"latest 1-2 c1 7\nlatest 7-8 c2 6\npast 4-9 4":     1,
		"commit 1-2 g 7\ncommitted 6-7 g 6\npast 4-9 4":    0,
		"commit 1-2 g 7\ncommitted 7-8 g 6\npast 4-9 4":    1,
		"write 1-2 i1.0 @7\nrange 6-7 c1 7\npast 4-9 4":    0,
		"write 1-2 i1.0 @7\nrange 7-8 c1 7\npast 4-9 4":    1,
	} {
		n := int64(0)
		for _, of := range run(t, history).Counts {
			n += of
		}
		if n != flagged {
			t.Errorf("%d flagged, want %d, in\n%s", n, flagged, history)
		}
	}
}

// TestHistoryRefuses what no workload of ours writes.
func TestHistoryRefuses(t *testing.T) {
	for _, bad := range []string{
		"jump 1 2", "write 1-2 i1.0", "write 1-2 i1.0 perhaps", "write 1-2 x1.0 @3", "write 1-2 i1 @3",
		"read 1-2 c1 17", "read 1-2 c1 x=i1.0", "seek 1 c1 0 7", "dump b1 0 x", "has b1 0=i1.0",
		"write 1-2 i1.0 @0\nwrite 3-4 i1.0 @1", "dump b1 0 0\ndump b1 0 0",
	} {
		if _, err := Check(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestWriterAndCheckAgree writes with a Writer what Check reads.
func TestWriterAndCheckAgree(t *testing.T) {
	var out closer
	w := NewWriter(&out)
	w.Acked(1e3, 2e3, "i1", 0, 0)
	w.Acked(1e3, 2e3, "i1", 1, 1)
	w.Failed(3e3, 4e3, "n2", 0)
	w.Unknown(3e3, 4e3, "n2", 1)
	w.Offset("seek", 4e3, 4e3, "c1", 0)
	var runs []Run
	for _, n := range []int64{0, 1} {
		runs = AppendRecord(runs, n, "i1", n)
	}
	runs = AppendRecord(runs, 2, "", 0)
	w.Read(5e3, 6e3, "c1", runs)
	w.Leader(7e3, "b1", "b2", 3)
	w.Trim(7e3, 8e3, 0)
	w.Past(7e3, 8e3, 5e3)
	w.Dump("b1", 0, 2)
	runs[0].Epoch, runs[0].CRC = 3, 0xabc
	w.Has("b1", runs[:1])
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const want = `write 1-2 i1.0 @0
write 1-2 i1.1 @1
write 3-4 n2.0 fail
write 3-4 n2.1 unknown
seek 4-4 c1 0
read 5-6 c1 0=i1.0*2 2=?
leader 7 b1 b2 3
trim 7-8 0
past 7-8 5
dump b1 0 2
has b1 0=i1.0*2/3/abc
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
	r := run(t, out.String())
	if r.Acked != 2 || r.Failed != 1 || r.Unknown != 1 || r.Read != 3 || r.Batches != 1 || r.Counts[Garbled] != 1 || len(r.Counts) != 1 {
		t.Errorf("%+v", r)
	}
}

type closer struct{ strings.Builder }

func (*closer) Close() error { return nil }

// FuzzCheck feeds the parser lines that nobody wrote.
func FuzzCheck(f *testing.F) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) == 0 {
		f.Fatal("no histories", err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, history string) {
		if strings.Contains(history, "*") || len(history) > 4<<10 || strings.Contains(history, ".1") {
			t.Skip("counts and numbers of our own making are trusted: they are memory")
		}
		_, _ = Check(strings.NewReader(history))
	})
}
