package segment

import (
	"context"
	"math/rand/v2"
	"testing"

	"firn/segment/batch"
	"firn/segment/vfs"
)

// rec is a record of the naive model.
type rec struct{ offset, time int64 }

// TestTimeLookups compares with a naive model: timestamps out of order, log
// starts that move, ends below the log's.
func TestTimeLookups(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 9))
		fsys := vfs.NewMem()
		opts := Options{SegmentBytes: 700 + rng.Int64N(2000), IndexIntervalBytes: 1 + rng.IntN(600), TimestampAfterMaxMs: never - 1}
		d := openDir(t, quiet(fsys))
		l := openLog(t, d, opts)
		var model []rec
		codecs := []batch.Codec{batch.None, batch.Zstd, batch.LZ4}
		for range 120 {
			b := batch.NewBuilder(batch.Spec{Codec: codecs[rng.IntN(len(codecs))]})
			for range 1 + rng.IntN(5) {
				ts := testNow + int64(len(model))*10 + rng.Int64N(2000) - 1000
				if rng.IntN(50) == 0 {
					ts += 100_000
				}
				b.Add(ts, nil, []byte("some value"))
				model = append(model, rec{int64(len(model)), ts})
			}
			out, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			mustAppend(t, l, out)
		}
		if seed%3 == 1 {
			l = openLog(t, openDir(t, quiet(fsys.CrashClone(vfs.CrashOptions{Keep: 100}))), opts)
		}
		if seed%3 == 2 {
			if err := d.Close(CleanMark{}); err != nil {
				t.Fatal(err)
			}
			l = openLog(t, openDir(t, quiet(fsys)), opts)
		}
		for round := range 3 {
			start := int64(round) * rng.Int64N(int64(len(model)/3))
			l.SetHighWatermark(max(start, int64(len(model))-rng.Int64N(40)))
			if err := l.SetLogStart(context.Background(), max(start, l.Offsets().LogStart)); err != nil {
				t.Fatal(err)
			}
			compareLookups(t, l, model, rng)
		}
	}
}

func compareLookups(t *testing.T, l *Log, model []rec, rng *rand.Rand) {
	t.Helper()
	o := l.Offsets()
	for _, until := range []Until{UntilHighWatermark, UntilCounted} {
		in := model[o.LogStart:o.Bound(until)]
		newest := rec{-1, -1}
		for _, r := range in {
			if r.time > newest.time {
				newest = r
			}
		}
		got, err := l.OffsetOfMaxTime(context.Background(), until)
		if err != nil || got.Offset != newest.offset || got.Timestamp != newest.time {
			t.Fatalf("OffsetOfMaxTime in [%d,%d): %+v, %v; want %+v", o.LogStart, o.Bound(until), got, err, newest)
		}
		for range 150 {
			ts := testNow + rng.Int64N(int64(len(model))*12+4000) - 2000
			if rng.IntN(3) == 0 {
				ts = model[rng.IntN(len(model))].time
			}
			want := rec{-1, -1}
			for _, r := range in {
				if r.time >= ts {
					want = r
					break
				}
			}
			got, err := l.OffsetForTime(context.Background(), ts, until)
			if err != nil || got.Offset != want.offset || got.Timestamp != want.time {
				t.Fatalf("OffsetForTime(%d) in [%d,%d): %+v, %v; want %+v", ts, o.LogStart, o.Bound(until), got, err, want)
			}
		}
	}
}
