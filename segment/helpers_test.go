package segment

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"firn/segment/batch"
	"firn/segment/vfs"
)

const testNow = 1_700_000_000_000

var testTP = TopicPartition{"topic", 0}

// testConfig is a directory on fsys whose clock stands still and whose log goes
// to the test.
func testConfig(t testing.TB, fsys vfs.FS) DirConfig {
	return DirConfig{
		FS: fsys, Path: "/logs", MinFreeBytes: -1,
		Now: func() time.Time { return time.UnixMilli(testNow) },
		Log: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Helper()
	w.t.Log(string(bytes.TrimSpace(b)))
	return len(b), nil
}

func openDir(t testing.TB, c DirConfig) *Dir {
	t.Helper()
	d, err := OpenDir(c)
	if err != nil {
		t.Fatalf("OpenDir: %v", err)
	}
	t.Cleanup(func() { d.Close(CleanMark{}) })
	return d
}

func openLog(t testing.TB, d *Dir, o Options) *Log {
	t.Helper()
	l, err := d.Open(testTP, [16]byte{1, 2, 3}, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return l
}

// records makes a batch of n records with values of size bytes, the first with
// timestamp ts and each next one a millisecond later.
func records(n, size int, ts int64) []byte {
	return makeBatch(batch.Spec{}, n, size, ts)
}

func makeBatch(s batch.Spec, n, size int, ts int64) []byte {
	b := batch.NewBuilder(s)
	for i := range n {
		b.Add(ts+int64(i), fmt.Appendf(nil, "k%d", i), bytes.Repeat([]byte{'v'}, size))
	}
	out, err := b.Build()
	if err != nil {
		panic(err)
	}
	return out
}

func mustAppend(t testing.TB, l *Log, b []byte) Appended {
	t.Helper()
	a, err := l.Append(b, AppendOptions{Now: testNow})
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	return a
}

// readAll reads all batches from offset from on to the counted offset, checks
// them, and returns the offset that each begins at.
func readAll(t testing.TB, l *Log, from int64) []int64 {
	t.Helper()
	bases, err := tryReadAll(l, from)
	if err != nil {
		t.Fatal(err)
	}
	return bases
}

func tryReadAll(l *Log, from int64) ([]int64, error) {
	var bases []int64
	for {
		r, err := l.Read(ReadRequest{Offset: from, MaxBytes: 1 << 16, Until: UntilCounted, MinOne: true})
		if err != nil {
			return bases, fmt.Errorf("Read at %d: %w", from, err)
		}
		if r.Records.Len() == 0 {
			if from < r.Offsets.Counted {
				return bases, fmt.Errorf("Read at %d: nothing, but the log goes to %d", from, r.Offsets.Counted)
			}
			return bases, nil
		}
		b, err := bytesOf(&r.Records)
		if err != nil {
			return bases, err
		}
		for len(b) > 0 {
			bt, rest, err := batch.Next(b)
			if err != nil {
				if len(b) == 0 || err != batch.ErrShort {
					return bases, fmt.Errorf("Read at %d: %w", from, err)
				}
				break
			}
			if err := batch.Verify(bt); err != nil {
				return bases, fmt.Errorf("batch at %d: %w", bt.BaseOffset(), err)
			}
			if bt.LastOffset() >= from {
				if bt.BaseOffset() > from {
					return bases, fmt.Errorf("hole: asked for %d, got %d", from, bt.BaseOffset())
				}
				bases = append(bases, bt.BaseOffset())
				from = bt.NextOffset()
			}
			b = rest
		}
	}
}

func bytesOf(r *Records) ([]byte, error) {
	defer r.Release()
	return r.AppendTo(nil)
}

func wantOffsets(t testing.TB, l *Log, start, end int64) {
	t.Helper()
	o := l.Offsets()
	if o.LogStart != start || o.End != end {
		t.Fatalf("log is %d to %d, want %d to %d (%+v)", o.LogStart, o.End, start, end, o)
	}
}
