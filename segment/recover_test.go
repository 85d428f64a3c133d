package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"firn/segment/batch"
	"firn/segment/vfs"
)

// fileBytes reads a file of fsys whole.
func fileBytes(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	b, err := readFile(fsys, name, smallFile)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// setFile makes a file of fsys hold b.
func setFile(t testing.TB, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil && len(b) > 0 {
		t.Fatal(err)
	}
	f.Close()
}

const firstLog = "/logs/topic-0/00000000000000000000.log"

// crashedLog is a directory with a log of n batches of three records, as a
// killed process leaves it.
func crashedLog(t testing.TB, n int, o Options) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	d := openDir(t, quiet(fsys))
	l := openLog(t, d, o)
	for i := range n {
		mustAppend(t, l, records(3, 50, testNow+int64(i)))
	}
	return fsys.CrashClone(vfs.CrashOptions{Keep: 100})
}

// TestTornTail cuts the file of the active segment at every byte, and replaces
// what follows by zeros and by garbage: recovery ends the log with the last whole
// batch.
func TestTornTail(t *testing.T) {
	fsys := crashedLog(t, 4, Options{})
	whole := fileBytes(t, fsys, firstLog)
	size := len(whole) / 4
	rng := rand.New(rand.NewPCG(3, 4))
	garbage := make([]byte, len(whole))
	for i := range garbage {
		garbage[i] = byte(rng.Uint32())
	}
	for cut := range len(whole) {
		for name, tail := range map[string][]byte{"cut": nil, "zeros": make([]byte, len(whole)-cut), "garbage": garbage[cut:]} {
			bad := append(bytes.Clone(whole[:cut]), tail...)
			same := 0
			for same < len(bad) && bad[same] == whole[same] {
				same++ // a batch ends with a zero
			}
			setFile(t, fsys, firstLog, bad)
			d := openDir(t, quiet(fsys.CrashClone(vfs.CrashOptions{Keep: 100})))
			l := openLog(t, d, Options{})
			if err := l.Err(); err != nil {
				t.Fatalf("%s at %d: %v", name, cut, err)
			}
			if want := int64(same / size * 3); l.Offsets().End != want {
				t.Fatalf("%s at %d: log ends at %d, want %d", name, cut, l.Offsets().End, want)
			}
			a := mustAppend(t, l, records(1, 5, testNow))
			if got := readAll(t, l, 0); got[len(got)-1] != a.First {
				t.Fatalf("%s at %d: read %v", name, cut, got)
			}
			d.Close(CleanMark{})
		}
	}
}

// TestDamageBelowTheRecoveryPointQuarantines flips single bits: above the
// recovery point that ends the log there, below it nothing is cut, and nothing
// damaged is served (S5).
func TestDamageBelowTheRecoveryPointQuarantines(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, quiet(fsys))
	l := openLog(t, d, Options{SegmentBytes: 1 << 20})
	for i := range 10 {
		mustAppend(t, l, records(3, 50, testNow+int64(i)))
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := d.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		mustAppend(t, l, records(3, 50, testNow+int64(i)))
	}
	whole := fileBytes(t, fsys, firstLog)
	size := len(whole) / 15
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		at := rng.IntN(len(whole))
		if in := at % size; in < 8 || in >= 12 && in < 16 {
			continue // base offset and epoch lie outside the checksum; other tests have them
		}
		bad := bytes.Clone(whole)
		bad[at] ^= 1 << rng.IntN(8)
		c := fsys.CrashClone(vfs.CrashOptions{Keep: 100})
		setFile(t, c, firstLog, bad)
		d := openDir(t, quiet(c))
		l := openLog(t, d, Options{})
		_, err := l.Append(records(1, 1, testNow), AppendOptions{Now: testNow})
		if n := at / size; n < 10 {
			if !errors.Is(l.Err(), ErrQuarantined) || !errors.Is(err, ErrQuarantined) {
				t.Fatalf("flip in batch %d: %v, append %v", n, l.Err(), err)
			}
			if _, err := l.Read(ReadRequest{Offset: 0, MaxBytes: 100, Until: UntilCounted}); !errors.Is(err, ErrQuarantined) {
				t.Fatalf("flip in batch %d: read %v", n, err)
			}
			d.Close(CleanMark{})
			if !bytes.Equal(fileBytes(t, c, firstLog), bad) {
				t.Fatalf("flip in batch %d: the file was changed", n)
			}
			if _, err := c.Stat("/logs/" + cleanFile); err == nil {
				t.Fatalf("flip in batch %d: a clean-shutdown mark vouches for a damaged log", n)
			}
			continue
		} else if want := int64(3 * n); err != nil || l.Offsets().End != want+1 {
			t.Fatalf("flip in batch %d: log ends at %d after an append, want %d: %v", n, l.Offsets().End, want+1, err)
		}
		d.Close(CleanMark{})
	}
}

// TestLogShorterThanItsRecoveryPoint is a file of flushed batches that lost its
// end, or is gone (hazard C3).
func TestLogShorterThanItsRecoveryPoint(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, quiet(fsys))
	l := openLog(t, d, Options{SegmentBytes: 1000})
	for i := range 20 {
		mustAppend(t, l, records(3, 50, testNow+int64(i)))
	}
	if err := errors.Join(l.Flush(), d.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	s := l.st.load()
	middle, active := s.sealed[2], s.active
	for name, damage := range map[string]func(c *vfs.Mem) error{
		"active cut": func(c *vfs.Mem) error {
			b := fileBytes(t, c, active.path(logSuffix))
			setFile(t, c, active.path(logSuffix), b[:len(b)/2])
			return nil
		},
		"active gone": func(c *vfs.Mem) error { return c.Remove(active.path(logSuffix)) },
	} {
		c := fsys.CrashClone(vfs.CrashOptions{Keep: 100})
		if err := damage(c); err != nil {
			t.Fatal(err)
		}
		l := openLog(t, openDir(t, quiet(c)), Options{})
		if !errors.Is(l.Err(), ErrQuarantined) {
			t.Errorf("%s: %v", name, l.Err())
		}
	}
	// A hole in what is sealed is found by who reads there: an error, not an
	// empty answer for ever (T7).
	for name, damage := range map[string]func(c *vfs.Mem) error{
		"segment gone": func(c *vfs.Mem) error { return c.Remove(middle.path(logSuffix)) },
		"segment cut": func(c *vfs.Mem) error {
			b := fileBytes(t, c, middle.path(logSuffix))
			setFile(t, c, middle.path(logSuffix), b[:len(b)/2])
			return nil
		},
	} {
		c := fsys.CrashClone(vfs.CrashOptions{Keep: 100})
		if err := damage(c); err != nil {
			t.Fatal(err)
		}
		l := openLog(t, openDir(t, quiet(c)), Options{})
		_, err := l.Read(ReadRequest{Offset: middle.end - 1, MaxBytes: 1000, Until: UntilCounted})
		if !errors.Is(err, ErrQuarantined) {
			t.Errorf("%s: read %v", name, err)
		}
	}
}

// TestIndexLossCostsNoData damages and removes the derived files in every way:
// the log is the same, and so are the files once they are made again (S2).
func TestIndexLossCostsNoData(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, quiet(fsys))
	opts := Options{SegmentBytes: 4000, IndexIntervalBytes: 300}
	l := openLog(t, d, opts)
	for i := range 60 {
		mustAppend(t, l, records(3, 50, testNow+int64(i*7%60)*1000))
	}
	want := readAll(t, l, 0)
	s := l.st.load().sealed[1]
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for _, suffix := range []string{offsetSuffix, timeSuffix} {
		good := fileBytes(t, fsys, s.path(suffix))
		if len(good) == 0 {
			t.Fatalf("%s is empty", suffix)
		}
		for i := range 200 {
			bad := bytes.Clone(good)
			switch {
			case i == 0:
				bad = nil
			case i < 50:
				bad = bad[:rng.IntN(len(bad))]
			case i < 60:
				clear(bad[rng.IntN(len(bad)):])
			default:
				bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
			}
			c := fsys.CrashClone(vfs.CrashOptions{Keep: 100})
			setFile(t, c, s.path(suffix), bad)
			l := openLog(t, openDir(t, quiet(c)), opts)
			if got := readAll(t, l, 0); !slices.Equal(got, want) {
				t.Fatalf("%s damaged (%d): read %v", suffix, i, got)
			}
			for o := s.base; o < s.end; o++ {
				if got, err := tryReadAll(l, o); err != nil || len(got) == 0 {
					t.Fatalf("%s damaged (%d): read at %d: %v, %v", suffix, i, o, got, err)
				}
			}
		}
		c := fsys.CrashClone(vfs.CrashOptions{Keep: 100})
		if err := c.Remove(s.path(suffix)); err != nil {
			t.Fatal(err)
		}
		l := openLog(t, openDir(t, quiet(c)), opts)
		readAll(t, l, 0)
		if got := fileBytes(t, c, s.path(suffix)); !bytes.Equal(got, good) {
			t.Errorf("%s made again differs: %x, want %x", suffix, got, good)
		}
	}
}

// TestRecoveryMakesTheSameIndexes compares the index files of a log that was
// sealed while it ran with those that recovery makes.
func TestRecoveryMakesTheSameIndexes(t *testing.T) {
	opts := Options{SegmentBytes: 4000, IndexIntervalBytes: 300}
	fsys := crashedLog(t, 60, opts)
	d := openDir(t, quiet(fsys))
	l := openLog(t, d, opts)
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	plain := vfs.NewMem()
	d2 := openDir(t, quiet(plain))
	l2 := openLog(t, d2, opts)
	for i := range 60 {
		mustAppend(t, l2, records(3, 50, testNow+int64(i)))
	}
	if err := d2.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range append(l.st.load().sealed, l.st.load().active) {
		for _, suffix := range []string{logSuffix, offsetSuffix, timeSuffix} {
			got, want := fileBytes(t, fsys, s.path(suffix)), fileBytes(t, plain, s.path(suffix))
			if !bytes.Equal(got, want) || suffix == offsetSuffix && len(want)%offsetEntrySize != 0 {
				t.Errorf("%s: %x, want %x", s.path(suffix), got, want)
			}
		}
	}
}

// TestLostEpochFileIsMadeAgain from the batches' headers (hazard C4).
func TestLostEpochFileIsMadeAgain(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, quiet(fsys))
	opts := Options{SegmentBytes: 1000}
	l := openLog(t, d, opts)
	for i := range 40 {
		if _, err := l.Append(records(3, 50, testNow), AppendOptions{Epoch: int32(i / 7), Now: testNow}); err != nil {
			t.Fatal(err)
		}
	}
	want := slices.Clone(l.Epochs())
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	name := "/logs/topic-0/" + epochFile
	for _, bad := range [][]byte{nil, []byte("0\n"), []byte("0\n7\n1 2\n"), []byte("1\n0\n"), make([]byte, 40), []byte("0\n2\n3 0\n2 9\n")} {
		c := fsys.CrashClone(vfs.CrashOptions{Keep: 100})
		setFile(t, c, name, bad)
		l := openLog(t, openDir(t, quiet(c)), opts)
		if !slices.Equal(l.Epochs(), want) {
			t.Errorf("with %q: epochs %v, want %v", bad, l.Epochs(), want)
		}
	}
}

// TestAReplicaKilledBeforeItsFirstCheckpointIsNoDamage: its epochs are only in its
// batches by then. Where a recovery point says that they were in a file, they are missed.
func TestAReplicaKilledBeforeItsFirstCheckpointIsNoDamage(t *testing.T) {
	fsys := vfs.NewMem()
	c := quiet(fsys)
	d := openDir(t, c)
	l := openLog(t, d, Options{SegmentBytes: 1000})
	b := records(1, 20, testNow)
	batch.Batch(b).SetLeaderEpoch(4)
	if _, err := l.AppendReplica(b); err != nil {
		t.Fatal(err)
	}
	reopen := func(fsys *vfs.Mem) (said string) {
		var b bytes.Buffer
		c := quiet(fsys)
		c.Log = slog.New(slog.NewTextHandler(&b, nil))
		if e := openLog(t, openDir(t, c), Options{SegmentBytes: 1000}).LatestEpoch(); e != 4 {
			t.Errorf("latest epoch %d", e)
		}
		return b.String()
	}
	if said := reopen(fsys.CrashClone(vfs.CrashOptions{Keep: 100})); said != "" {
		t.Errorf("after a kill: %s", said)
	}
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Remove("/logs/topic-0/" + epochFile); err != nil {
		t.Fatal(err)
	}
	if said := reopen(fsys); !strings.Contains(said, "level=WARN") || !strings.Contains(said, "missing") {
		t.Errorf("without the file: %q", said)
	}
}

func FuzzRecovery(f *testing.F) {
	b := records(3, 20, testNow)
	c := records(2, 20, testNow)
	batch.Batch(c).SetBaseOffset(3)
	f.Add(append(bytes.Clone(b), c...))
	f.Add(append(bytes.Clone(b), b...))
	f.Add(b[:len(b)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := vfs.NewMem()
		if err := fsys.MkdirAll("/logs/topic-0", 0o755); err != nil {
			t.Fatal(err)
		}
		setFile(t, fsys, firstLog, data)
		d := openDir(t, quiet(fsys))
		defer d.Close(CleanMark{})
		l := openLog(t, d, Options{SegmentBytes: 1000})
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		got, err := tryReadAll(l, 0)
		if err != nil && l.Offsets().End > 0 && !gapped(l) {
			t.Fatal(got, err)
		}
		if _, err := l.Append(records(1, 1, testNow), AppendOptions{Epoch: 1<<31 - 1, Now: testNow}); err != nil && !errors.Is(err, ErrInvalidRecord) {
			t.Fatal(err)
		}
	})
}

// gapped tells a log with offsets missing between batches, which compaction
// leaves and arbitrary bytes may have.
func gapped(l *Log) bool {
	s := l.st.load()
	h, err := l.dir.handles.pin(s.active)
	if err != nil {
		return false
	}
	defer h.unpin()
	next := s.active.base
	_, err = scan(h.file, 0, s.size, func(b batch.Batch, _ int64) error {
		if b.BaseOffset() != next {
			return io.EOF
		}
		next = b.NextOffset()
		return nil
	})
	return err != nil || fmt.Sprint(next) != fmt.Sprint(s.End)
}
