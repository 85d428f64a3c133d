package segment

import (
	"errors"
	"slices"
	"testing"

	"firn/segment/vfs"
)

func TestAppendReadReopen(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	l := openLog(t, d, Options{SegmentBytes: 4096})
	var want []int64
	for i := range 100 {
		a := mustAppend(t, l, records(3, 100, testNow+int64(i)))
		if a.First != int64(3*i) || a.Last != int64(3*i+2) {
			t.Fatalf("append %d went to %d–%d", i, a.First, a.Last)
		}
		want = append(want, a.First)
	}
	if got := readAll(t, l, 0); !slices.Equal(got, want) {
		t.Fatalf("read %v", got)
	}
	if n := len(l.st.load().sealed); n < 5 {
		t.Fatalf("%d sealed segments", n)
	}
	if err := d.Close(CleanMark{BrokerEpoch: 7}); err != nil {
		t.Fatal(err)
	}

	d = openDir(t, testConfig(t, fsys))
	if m, clean := d.Clean(); !clean || m.BrokerEpoch != 7 {
		t.Fatalf("clean mark %v %v", m, clean)
	}
	l = openLog(t, d, Options{SegmentBytes: 4096})
	wantOffsets(t, l, 0, 300)
	if got := readAll(t, l, 0); !slices.Equal(got, want) {
		t.Fatalf("read after reopen %v", got)
	}
	if a := mustAppend(t, l, records(1, 100, testNow)); a.First != 300 {
		t.Fatalf("append after reopen at %d", a.First)
	}
}

func TestCrashRecovers(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	l := openLog(t, d, Options{SegmentBytes: 4096})
	for i := range 50 {
		mustAppend(t, l, records(3, 100, testNow+int64(i)))
	}
	// A process that is killed leaves what it wrote.
	crashed := fsys.CrashClone(vfs.CrashOptions{Keep: 100})
	d2 := openDir(t, testConfig(t, crashed))
	l2 := openLog(t, d2, Options{SegmentBytes: 4096})
	wantOffsets(t, l2, 0, 150)
	if got := readAll(t, l2, 0); len(got) != 50 {
		t.Fatalf("read %v", got)
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestReadOutOfRange(t *testing.T) {
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
	mustAppend(t, l, records(3, 10, testNow))
	for _, off := range []int64{-1, 4} {
		if _, err := l.Read(ReadRequest{Offset: off, MaxBytes: 100, Until: UntilCounted}); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("Read at %d: %v", off, err)
		}
	}
	r, err := l.Read(ReadRequest{Offset: 3, MaxBytes: 100, Until: UntilCounted})
	if err != nil || r.Records.Len() != 0 {
		t.Errorf("Read at the end: %d bytes, %v", r.Records.Len(), err)
	}
}
