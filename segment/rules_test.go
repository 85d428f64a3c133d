package segment

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"firn/segment/batch"
	"firn/segment/vfs"
)

func sealedBases(l *Log) []int64 {
	var bases []int64
	for _, s := range l.st.load().sealed {
		bases = append(bases, s.base)
	}
	return bases
}

func TestRollRules(t *testing.T) {
	size := int64(len(records(2, 50, testNow)))
	for name, c := range map[string]struct {
		opts Options
		ts   []int64 // of the batches, after testNow
		want []int64 // bases of the sealed segments
	}{
		"size: the batch that would exceed it opens the next": {Options{SegmentBytes: 2 * size}, []int64{0, 0, 0, 0, 0}, []int64{0, 4}},
		"size: exactly full is not over":                      {Options{SegmentBytes: 2 * size}, []int64{0, 0}, nil},
		"time: by timestamps from the first batch":            {Options{SegmentMs: 1000}, []int64{0, 900, 999, 1002, 1003}, []int64{0}},
		"time: does not go back":                              {Options{SegmentMs: 1000}, []int64{5000, 0, 5500}, nil},
		"index full":                                          {Options{SegmentIndexBytes: 24, IndexIntervalBytes: 1}, []int64{0, 0, 0, 0}, []int64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), c.opts)
			for _, ts := range c.ts {
				mustAppend(t, l, records(2, 50, testNow+ts))
			}
			if got := sealedBases(l); !slices.Equal(got, c.want) {
				t.Errorf("sealed %v, want %v", got, c.want)
			}
		})
	}
}

func TestRollWhereAnOffsetWouldNotFitTheIndex(t *testing.T) {
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
	far := func(base int64) []byte {
		b := batch.Batch(records(1, 10, testNow))
		b.SetBaseOffset(base)
		return b
	}
	for _, base := range []int64{0, math.MaxInt32, math.MaxInt32 + 1} {
		if _, err := l.AppendReplica(far(base)); err != nil {
			t.Fatal(err)
		}
	}
	if got := sealedBases(l); !slices.Equal(got, []int64{0}) {
		t.Fatalf("sealed %v", got)
	}
	if got := l.st.load().active.base; got != math.MaxInt32+1 {
		t.Fatalf("active segment begins at %d", got)
	}
}

// TestReplicaRefusesAnOlderEpoch: a leader's batches never go back to an earlier
// leader's (R2); the log is as it was.
func TestReplicaRefusesAnOlderEpoch(t *testing.T) {
	in := func(epoch int32, base int64) []byte {
		b := batch.Batch(records(2, 10, testNow))
		b.SetBaseOffset(base)
		b.SetLeaderEpoch(epoch)
		return b
	}
	for name, b := range map[string][]byte{"alone": in(2, 2), "behind one of its own": append(in(3, 2), in(2, 4)...)} {
		l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
		if _, err := l.AppendReplica(in(3, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendReplica(b); !errors.Is(err, ErrFenced) {
			t.Errorf("%s: %v, want %v", name, err, ErrFenced)
		}
		if end := l.Offsets().End; end != 2 {
			t.Errorf("%s: the log ends at %d, want 2", name, end)
		}
	}
}

func TestRefusals(t *testing.T) {
	good := func() batch.Batch { return records(2, 50, testNow) }
	old := make([]byte, 40)
	old[11], old[16] = 28, 1
	flip := good()
	flip[70] ^= 1
	stamped := good()
	stamped.SetLogAppendTime(testNow)
	for name, c := range map[string]struct {
		b    []byte
		opts Options
		want error
	}{
		"empty":             {nil, Options{}, ErrInvalidRecord},
		"bit flip":          {flip, Options{}, ErrCorrupt},
		"cut":               {good()[:100], Options{}, ErrCorrupt},
		"old format":        {old, Options{}, ErrUnsupportedFormat},
		"too large":         {good(), Options{MaxMessageBytes: 100}, ErrTooLarge},
		"above the segment": {good(), Options{SegmentBytes: 100}, ErrTooLargeForSegment},
		"from the future":   {records(1, 1, testNow+3600_001), Options{}, ErrInvalidTimestamp},
		"from the past":     {records(1, 1, testNow-1001), Options{TimestampBeforeMaxMs: 1000}, ErrInvalidTimestamp},
		"append time":       {stamped, Options{}, ErrInvalidTimestamp},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), c.opts)
			if _, err := l.Append(c.b, AppendOptions{Now: testNow}); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			wantOffsets(t, l, 0, 0)
		})
	}
}

func TestLogAppendTime(t *testing.T) {
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{TimestampType: batch.LogAppendTime})
	a, err := l.Append(records(3, 5, 12345), AppendOptions{Now: testNow + 7})
	if err != nil || a.AppendTime != testNow+7 {
		t.Fatalf("%+v, %v", a, err)
	}
	o, err := l.OffsetForTime(context.Background(), testNow, UntilCounted)
	if err != nil || o.Offset != 0 || o.Timestamp != testNow+7 {
		t.Fatalf("%+v, %v", o, err)
	}
}

func TestCompressionTypeReencodes(t *testing.T) {
	for c, want := range map[Compression]batch.Codec{AsProduced: batch.None, Uncompressed: batch.None, Gzip: batch.Gzip, Snappy: batch.Snappy, LZ4: batch.LZ4, Zstd: batch.Zstd} {
		l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{Compression: c})
		mustAppend(t, l, records(5, 100, testNow))
		mustAppend(t, l, records(5, 100, testNow))
		if got := readAll(t, l, 0); !slices.Equal(got, []int64{0, 5}) {
			t.Fatalf("read %v", got)
		}
		r, err := l.Read(ReadRequest{Offset: 5, MaxBytes: 1 << 20, Until: UntilCounted})
		if err != nil {
			t.Fatal(err)
		}
		b, err := bytesOf(&r.Records)
		if err != nil || batch.Batch(b).Codec() != want {
			t.Errorf("%d: stored as %v, want %v; %v", c, batch.Batch(b).Codec(), want, err)
		}
	}
}

func TestEpochChain(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	l := openLog(t, d, Options{})
	lead := func(epoch int32) {
		t.Helper()
		if err := l.Lead(context.Background(), epoch); err != nil {
			t.Fatal(err)
		}
	}
	add := func(epoch int32) error {
		_, err := l.Append(records(10, 1, testNow), AppendOptions{Epoch: epoch, Now: testNow})
		return err
	}
	lead(2)
	if err := add(2); err != nil {
		t.Fatal(err)
	}
	lead(4)
	lead(5) // 4 left no record
	if err := add(5); err != nil {
		t.Fatal(err)
	}
	if err := add(4); !errors.Is(err, ErrFenced) {
		t.Errorf("append in an old epoch: %v", err)
	}
	if err := l.Lead(context.Background(), 4); !errors.Is(err, ErrFenced) {
		t.Errorf("lead in an old epoch: %v", err)
	}
	lead(9)
	want := []EpochStart{{2, 0}, {5, 10}, {9, 20}}
	check := func(l *Log) {
		t.Helper()
		if !slices.Equal(l.Epochs(), want) {
			t.Errorf("chain %v, want %v", l.Epochs(), want)
		}
		for asked, end := range map[int32]EpochEnd{
			-1: {-1, -1}, 0: {0, 0}, 2: {2, 10}, 3: {2, 10}, 4: {2, 10}, 5: {5, 20}, 8: {5, 20}, 9: {9, 20}, 10: {-1, -1},
		} {
			if got := l.EpochEnd(asked); got != end {
				t.Errorf("EpochEnd(%d) = %v, want %v", asked, got, end)
			}
		}
		for at, epoch := range map[int64]int32{0: 2, 9: 2, 10: 5, 19: 5, 20: 9} {
			if got := l.EpochAt(at); got != epoch {
				t.Errorf("EpochAt(%d) = %d, want %d", at, got, epoch)
			}
		}
	}
	check(l)
	// It is written when it begins, though nothing follows, and survives a kill.
	check(openLog(t, openDir(t, testConfig(t, fsys.CrashClone(vfs.CrashOptions{Keep: 100}))), Options{}))
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	if got := string(fileBytes(t, fsys, "/logs/topic-0/"+epochFile)); got != "0\n3\n2 0\n5 10\n9 20\n" {
		t.Errorf("file %q", got)
	}
	l = openLog(t, openDir(t, testConfig(t, fsys)), Options{})
	check(l)
	// A cut that takes no record takes the epoch that has none (hazard A2).
	if err := l.TruncateTo(20); err != nil {
		t.Fatal(err)
	}
	if got := l.LatestEpoch(); got != 5 {
		t.Errorf("latest epoch %d after a cut", got)
	}
}

func TestReplicaAppend(t *testing.T) {
	leader := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{SegmentBytes: 1000})
	for i := range 20 {
		if _, err := leader.Append(produced(3, 0, int32(2*i), 2), AppendOptions{Epoch: int32(i / 5), Now: testNow}); err != nil {
			t.Fatal(err)
		}
	}
	follower := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{SegmentBytes: 1000})
	for follower.Offsets().End < leader.Offsets().End {
		// Cut in the middle of a batch now and then, as a fetch is.
		r, err := leader.Read(ReadRequest{Offset: follower.Offsets().End, MaxBytes: 350, Until: UntilCounted, MinOne: true})
		if err != nil {
			t.Fatal(err)
		}
		b, err := bytesOf(&r.Records)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := follower.AppendReplica(b); err != nil {
			t.Fatal(err)
		}
		if _, err := follower.AppendReplica(b); !errors.Is(err, ErrOutOfOrder) {
			t.Fatalf("the same again: %v", err)
		}
	}
	if !slices.Equal(readAll(t, leader, 0), readAll(t, follower, 0)) || !slices.Equal(leader.Epochs(), follower.Epochs()) {
		t.Fatalf("logs differ: %v, %v", leader.Epochs(), follower.Epochs())
	}
	if p := follower.Producers(); len(p) != 1 || p[0].LastSequence != 39 {
		t.Fatalf("producers %+v", p)
	}
}

func TestRetain(t *testing.T) {
	day := int64(24 * time.Hour / time.Millisecond)
	segs := func(days ...int64) []SegmentInfo { // largest timestamp, days before now
		var list []SegmentInfo
		for i, d := range days {
			list = append(list, SegmentInfo{Base: int64(10 * i), End: int64(10*i + 10), Size: 100, MaxTimestamp: testNow - d*day, Active: i == len(days)-1})
		}
		return list
	}
	for name, c := range map[string]struct {
		segments []SegmentInfo
		o        Options
		hw       int64
		want     int64
		reason   string
	}{
		"nothing is old":                {segs(3, 2, 1), Options{}, 30, -1, ""},
		"by time":                       {segs(9, 8, 1), Options{}, 30, 20, "retention.ms"},
		"up to the first that stays":    {segs(9, 1, 9, 1), Options{}, 40, 10, "retention.ms"},
		"not past the high watermark":   {segs(9, 8, 1), Options{}, 15, 10, "retention.ms"},
		"the active one too, by time":   {segs(9, 8), Options{}, 20, 20, "retention.ms"},
		"no end by time":                {segs(9, 8), Options{RetentionMs: -1}, 20, -1, ""},
		"by size, while as much stays":  {segs(3, 2, 1, 1), Options{RetentionBytes: 250}, 40, 10, "retention.bytes"},
		"by size, exactly":              {segs(3, 2, 1, 1), Options{RetentionBytes: 300}, 40, 10, "retention.bytes"},
		"by size never the active one":  {segs(1), Options{RetentionBytes: 1}, 10, -1, ""},
		"no timestamp is no age":        {[]SegmentInfo{{End: 5, Size: 9, MaxTimestamp: -1}, {Base: 5, End: 6, Size: 1, Active: true}}, Options{}, 6, -1, ""},
		"an empty active segment stays": {[]SegmentInfo{{MaxTimestamp: -1, Active: true}}, Options{RetentionMs: 1, RetentionBytes: 1}, 0, -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, reason := Retain(c.segments, c.o, testNow, c.hw)
			if got != c.want || reason != c.reason {
				t.Errorf("Retain = %d, %q; want %d, %q", got, reason, c.want, c.reason)
			}
		})
	}
}

func TestRetentionMovesTheLogStartAndDropsFiles(t *testing.T) {
	fsys := vfs.NewMem()
	c := testConfig(t, fsys)
	d := openDir(t, c)
	l := openLog(t, d, Options{SegmentBytes: 400, FileDeleteDelayMs: 1, RetentionMs: 1000})
	for i := range 10 {
		mustAppend(t, l, records(2, 50, testNow+int64(i)*500))
	}
	l.SetHighWatermark(20)
	pinned, err := l.Read(ReadRequest{Offset: 0, MaxBytes: 1 << 20, Until: UntilCounted})
	if err != nil {
		t.Fatal(err)
	}
	start, err := l.ApplyRetention(context.Background(), time.UnixMilli(testNow+4500))
	if err != nil || start <= 0 {
		t.Fatalf("ApplyRetention = %d, %v", start, err)
	}
	wantOffsets(t, l, start, 20)
	if o := l.Offsets(); o.LocalStart != start {
		t.Fatalf("local start %d", o.LocalStart)
	}
	if b, err := bytesOf(&pinned.Records); err != nil || len(b) == 0 {
		t.Fatalf("Records read before the deletion: %v", err)
	}
	d.removeDue(time.UnixMilli(testNow + 10))
	entries, err := fsys.ReadDir("/logs/topic-0")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if o, _, ok := parseName(e.Name()); ok && o < start {
			t.Errorf("%s is left", e.Name())
		}
	}
	if got := readAll(t, l, start); got[0] != start {
		t.Fatalf("read %v", got)
	}
	// All of it expires: the active segment goes too.
	if start, err = l.ApplyRetention(context.Background(), time.UnixMilli(testNow+100_000)); err != nil || start != 20 {
		t.Fatalf("ApplyRetention = %d, %v", start, err)
	}
	if a := mustAppend(t, l, records(1, 1, testNow)); a.First != 20 {
		t.Fatalf("append after retention at %d", a.First)
	}
}

func TestSetLogStart(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	l := openLog(t, d, Options{SegmentBytes: 400})
	for range 10 {
		mustAppend(t, l, records(2, 50, testNow))
	}
	l.SetHighWatermark(15)
	ctx := context.Background()
	if err := l.SetLogStart(ctx, 16); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("past the high watermark: %v", err)
	}
	if err := l.SetLogStart(ctx, 7); err != nil {
		t.Fatal(err)
	}
	if err := l.SetLogStart(ctx, 5); err != nil { // no way back, and no error
		t.Fatal(err)
	}
	if o := l.Offsets(); o.LogStart != 7 || o.LocalStart > 7 || o.LocalStart == 0 {
		t.Fatalf("%+v", o)
	}
	// Durable before it returned.
	l2 := openLog(t, openDir(t, testConfig(t, fsys.CrashClone(vfs.CrashOptions{}))), Options{})
	if o := l2.Offsets(); o.LogStart != 7 || o.End < 7 { // less than that may have been flushed
		t.Fatalf("after a power loss %+v", o)
	}
}

func TestArchivedLog(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	opts := Options{SegmentBytes: 400, Archived: true}
	l := openLog(t, d, opts)
	for i := range 20 {
		mustAppend(t, l, produced(4, 0, int32(2*i), 2))
	}
	l.SetHighWatermark(40)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	sealed, err := l.Sealed(10)
	if err != nil || len(sealed) == 0 || sealed[0].Base > 10 || sealed[0].End <= 10 || !sealed[0].Synced {
		t.Fatalf("Sealed: %+v, %v", sealed, err)
	}
	f, err := l.OpenSealed(sealed[0].Base)
	if err != nil {
		t.Fatal(err)
	}
	start, err := l.DeleteTo(sealed[2].Base)
	if err != nil || start != sealed[2].Base {
		t.Fatalf("DeleteTo = %d, %v", start, err)
	}
	if o := l.Offsets(); o.LogStart != 0 || o.LocalStart != start {
		t.Fatalf("%+v", o)
	}
	if _, err := l.Read(ReadRequest{Offset: 5, MaxBytes: 100, Until: UntilCounted}); !errors.Is(err, ErrBelowLocal) {
		t.Errorf("read below the local start: %v", err)
	}
	b := make([]byte, f.Info.Size)
	if _, err := f.ReadAt(b, 0); err != nil || batch.Verify(b[:batch.Batch(b).Length()]) != nil {
		t.Errorf("a pinned sealed file after its deletion: %v", err)
	}
	var p producers
	if f.Records != f.Info.End-f.Info.Base || p.loadSnapshot(f.Producers) != nil || p.byID[4].last().lastOffset != f.Info.End-1 {
		t.Errorf("sealed file %+v with %d records", f.Info, f.Records)
	}
	f.Close()
	// The log start stays below the local start over a restart.
	if err := l.SetRemoteLogStart(4); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, openDir(t, testConfig(t, fsys)), opts)
	if o := l.Offsets(); o.LogStart != 4 || o.LocalStart != start || o.End != 40 {
		t.Fatalf("after a restart %+v", o)
	}
	if err := l.SetLogStart(context.Background(), 33); err != nil {
		t.Fatal(err)
	}
	if o := l.Offsets(); o.LogStart != 33 || o.LocalStart != start {
		t.Fatalf("an archived log drops nothing by its log start: %+v", o)
	}
}

func TestRestartAt(t *testing.T) {
	src := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
	for i := range 5 {
		mustAppend(t, src, produced(4, 0, int32(2*i), 2))
	}
	if err := src.Roll(time.Time{}); err != nil {
		t.Fatal(err)
	}
	f, err := src.OpenSealed(0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	opts := Options{SegmentBytes: 400, Archived: true}
	l := openLog(t, d, opts)
	for range 10 {
		mustAppend(t, l, records(2, 50, testNow))
	}
	if err := l.RestartAt(1000, 3, []EpochStart{{1, 0}, {6, 500}}, f.Producers); err != nil {
		t.Fatal(err)
	}
	check := func(l *Log) {
		t.Helper()
		if o := l.Offsets(); o.LogStart != 3 || o.LocalStart != 1000 || o.End != 1000 || o.HighWatermark != 1000 {
			t.Fatalf("%+v", o)
		}
		if l.LatestEpoch() != 6 || l.EpochAt(600) != 6 || l.EpochAt(499) != 1 {
			t.Fatalf("epochs %v", l.Epochs())
		}
		if p := l.Producers(); len(p) != 1 || p[0].LastSequence != 9 {
			t.Fatalf("producers %+v", p)
		}
	}
	check(l)
	check(openLog(t, openDir(t, testConfig(t, fsys.CrashClone(vfs.CrashOptions{}))), opts))
	if a, err := l.Append(produced(4, 0, 10, 1), AppendOptions{Epoch: 6, Now: testNow}); err != nil || a.First != 1000 {
		t.Fatalf("%+v, %v", a, err)
	}
	if got := readAll(t, l, 1000); !slices.Equal(got, []int64{1000}) {
		t.Fatalf("read %v", got)
	}
}

func TestReadLimits(t *testing.T) {
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
	size := 0
	for range 300 { // more than the ring remembers
		b := records(2, 30, testNow)
		size = len(b)
		mustAppend(t, l, b)
	}
	l.SetHighWatermark(400)
	for _, off := range []int64{0, 1, 7, 399, 398} {
		read := func(r ReadRequest) (int, int64) {
			t.Helper()
			r.Offset = off
			res, err := l.Read(r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := bytesOf(&res.Records)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) == 0 {
				return 0, -1
			}
			return len(b), batch.Batch(b).BaseOffset()
		}
		if n, _ := read(ReadRequest{MaxBytes: size - 1}); n != 0 {
			t.Errorf("at %d: %d bytes of less than a batch", off, n)
		}
		if n, base := read(ReadRequest{MaxBytes: 1, MinOne: true}); n != size || base != off/2*2 {
			t.Errorf("at %d: %d bytes from %d with MinOne", off, n, base)
		}
		want := int(400-off/2*2) / 2 * size
		if n, _ := read(ReadRequest{MaxBytes: 1 << 30}); n != want {
			t.Errorf("at %d: %d bytes up to the high watermark, want %d", off, n, want)
		}
	}
	r, err := l.Read(ReadRequest{Offset: 400, MaxBytes: 1 << 20})
	if err != nil || r.Records.Len() != 0 {
		t.Errorf("at the high watermark: %d bytes, %v", r.Records.Len(), err)
	}
}

func TestWholeEndsWithABatch(t *testing.T) {
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{SegmentBytes: 100_000})
	size := 0
	for range 50 { // in several segments
		b := records(1, 5000, testNow)
		size = len(b)
		mustAppend(t, l, b)
	}
	for off := range l.Offsets().End - 4 {
		for _, c := range []struct{ max, want int }{
			{3*size + size/2, 3 * size}, {3 * size, 3 * size}, {3*size - 1, 2 * size}, {size, size}, {size + 1, size}, {1, size},
		} {
			res, err := l.Read(ReadRequest{Offset: off, MaxBytes: c.max, Until: UntilCounted, MinOne: true, Whole: true})
			if err != nil {
				t.Fatal(err)
			}
			n := res.Records.Len()
			res.Records.Release()
			// What is left of the segment may be less.
			if n%size != 0 || n > c.want || n < c.want && l.st.load().find(off) == l.st.load().find(off+int64(n/size)) {
				t.Errorf("at %d, at most %d bytes: %d, want %d", off, c.max, n, c.want)
			}
		}
	}
}

func TestALogMayBeClosedAndOpenedAgain(t *testing.T) {
	d := openDir(t, testConfig(t, vfs.NewMem()))
	for i := range 3 {
		l := openLog(t, d, Options{SegmentBytes: 400})
		wantOffsets(t, l, 0, int64(10*i))
		for range 5 {
			mustAppend(t, l, records(2, 50, testNow))
		}
		if _, err := d.Open(testTP, [16]byte{1, 2, 3}, Options{}); err == nil {
			t.Fatal("opened twice")
		}
		if got := readAll(t, l, 0); len(got) != 5*(i+1) {
			t.Fatalf("read %v", got)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFileGoneUnderARunningLog (hazard C3): an error, not a loop.
func TestFileGoneUnderARunningLog(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	l := openLog(t, d, Options{SegmentBytes: 400})
	for range 10 {
		mustAppend(t, l, records(2, 50, testNow))
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	s := l.st.load().sealed[1]
	s.handle.Swap(nil).unpin()
	if err := fsys.Remove(s.path(logSuffix)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Read(ReadRequest{Offset: s.base, MaxBytes: 100, Until: UntilCounted}); !errors.Is(err, ErrQuarantined) {
		t.Fatalf("read: %v", err)
	}
	if _, err := l.OffsetForTime(context.Background(), testNow, UntilCounted); !errors.Is(err, ErrQuarantined) {
		t.Fatalf("lookup: %v", err)
	}
}

// TestTruncationTakesTheIndexFiles that an earlier stop wrote: their entries must
// not meet the batches that come instead.
func TestTruncationTakesTheIndexFiles(t *testing.T) {
	fsys := vfs.NewMem()
	for range 2 {
		d := openDir(t, testConfig(t, fsys))
		l := openLog(t, d, Options{IndexIntervalBytes: 100})
		for range 5 {
			mustAppend(t, l, records(2, 50, testNow))
		}
		if err := l.TruncateTo(l.Offsets().End - 4); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{offsetSuffix, timeSuffix} {
			if b := fileBytes(t, fsys, l.st.load().active.path(suffix)); b != nil {
				t.Fatalf("%s is left with %d bytes", suffix, len(b))
			}
		}
		if err := d.Close(CleanMark{}); err != nil {
			t.Fatal(err)
		}
	}
}

// A replica takes all that its leader has, however small its segments are: a
// fetch that is larger than a segment, and a batch that is.
func TestReplicaTakesMoreThanASegment(t *testing.T) {
	leader := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
	for range 20 {
		mustAppend(t, leader, records(2, 50, testNow))
	}
	mustAppend(t, leader, records(30, 50, testNow))
	res, err := leader.Read(ReadRequest{MaxBytes: 1 << 20, Until: UntilCounted})
	if err != nil {
		t.Fatal(err)
	}
	b, err := bytesOf(&res.Records)
	if err != nil {
		t.Fatal(err)
	}
	follower := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{SegmentBytes: 1024})
	a, err := follower.AppendReplica(b)
	if err != nil || a.First != 0 || a.Last != 69 {
		t.Fatalf("AppendReplica of %d bytes = %+v, %v", len(b), a, err)
	}
	if got, want := readAll(t, follower, 0), readAll(t, leader, 0); !slices.Equal(got, want) {
		t.Errorf("follower has %v, leader %v", got, want)
	}
	segments, err := follower.Segments()
	if err != nil || len(segments) < 4 {
		t.Errorf("%d segments, %v", len(segments), err)
	}
}
