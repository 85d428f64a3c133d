package tiering

import (
	"testing"
	"time"

	"firn/segment"
)

// TestLookupsByTimeSpanArchiveAndDisk compares a whole Log with a naive model
// while segments go up, leave the disk, and the log start moves (D11).
func TestLookupsByTimeSpanArchiveAndDisk(t *testing.T) {
	for seed := range uint64(4) {
		rng := testRNG(300 + seed)
		w, b := leading(t)
		for range 12 {
			for range 1 + rng.IntN(4) {
				// Timestamps go back at times, by more than a segment holds.
				w.advance(time.Duration(rng.IntN(4000)-1000) * time.Millisecond)
				b.append(1 + rng.IntN(40))
			}
			if rng.IntN(3) > 0 {
				b.mustUpload()
			}
			if rng.IntN(2) == 0 {
				b.mustEvict()
			}
			if o := b.log.Offsets(); rng.IntN(3) == 0 {
				if err := b.log.SetLogStart(t.Context(), o.LogStart+rng.Int64N((o.HighWatermark-o.LogStart)/3+1)); err != nil {
					t.Fatal(err)
				}
			}
			o := b.log.Offsets()
			for range 20 {
				ts := w.model[rng.IntN(len(w.model))].ts + rng.Int64N(3) - 1
				want := int64(-1)
				for i := o.LogStart; i < o.HighWatermark && want < 0; i++ {
					if w.model[i].ts >= ts {
						want = i
					}
				}
				got, err := b.log.OffsetForTime(t.Context(), ts, segment.UntilHighWatermark)
				if err != nil || got.Offset != want || want >= 0 && got.Timestamp != w.model[want].ts {
					t.Fatalf("seed %d: first at %d: got %+v, %v, want %d; %+v", seed, ts, got, err, want, o)
				}
			}
			most := o.LogStart
			for i := o.LogStart; i < o.HighWatermark; i++ {
				if w.model[i].ts > w.model[most].ts {
					most = i
				}
			}
			got, err := b.log.OffsetOfMaxTime(t.Context(), segment.UntilHighWatermark)
			if err != nil || o.LogStart < o.HighWatermark && got.Offset != most {
				t.Fatalf("seed %d: max: got %+v, %v, want %d; %+v", seed, got, err, most, o)
			}
		}
	}
}
