package tiering

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"firn/segment"
)

// read reads from offset on as a client does: it waits for what is pending and
// asks again, and returns the offset after what it got.
func (b *broker) read(from int64, until segment.Until) int64 {
	b.w.t.Helper()
	for {
		res, err := b.log.Read(segment.ReadRequest{Offset: from, MaxBytes: 1000, MinOne: true, Until: until})
		if err != nil {
			b.w.t.Fatalf("read %d: %v", from, err)
		}
		next := b.w.checkRecords(&res.Records)
		res.Records.Release()
		if next >= 0 {
			return next
		}
		if res.Pending == nil {
			return from
		}
		<-res.Pending
	}
}

// TestReadingIsTheSameWhereverTheDataIs reads every offset of a log of which
// most is archived only, part is archived and local, part is local.
func TestReadingIsTheSameWhereverTheDataIs(t *testing.T) {
	w, b := leading(t)
	b.append(150)
	b.mustUpload()
	b.mustEvict()
	p := w.defaults().policy
	p.LocalRetentionBytes = -1
	b.log.SetPolicy(p)
	b.append(100)
	b.mustUpload()
	o := b.log.Offsets()
	if !(o.LogStart < o.LocalStart && o.LocalStart < o.ArchivedEnd && o.ArchivedEnd < o.End) {
		t.Fatalf("offsets %+v", o)
	}
	for from := o.LogStart; from < o.End; from++ {
		if next := b.read(from, segment.UntilHighWatermark); next <= from {
			t.Fatalf("nothing at %d", from)
		}
	}
	n := int64(0)
	for n < o.End {
		n = b.read(n, segment.UntilStable)
	}
	if next := b.read(o.End, segment.UntilHighWatermark); next != o.End {
		t.Fatalf("read %d past the end", next)
	}
	if _, err := b.log.Read(segment.ReadRequest{Offset: o.End + 1, MaxBytes: 10}); !errors.Is(err, segment.ErrOffsetOutOfRange) {
		t.Fatalf("past the end: %v", err)
	}
}

// TestLookupsAgreeWithANaiveModel: by time and by maximum, with timestamps in any
// order, while data goes to the archive and the log start moves.
func TestLookupsAgreeWithANaiveModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	w := newWorld(t)
	o := w.defaults()
	o.segmentBytes = 1000
	b := w.start(newDisk(), o)
	b.lead(1)
	for range 12 {
		w.advance(time.Duration(rng.IntN(4000)-1000) * time.Millisecond)
		b.append(10 + rng.IntN(40))
		if rng.IntN(2) == 0 {
			b.mustUpload()
		}
		if rng.IntN(2) == 0 {
			b.mustEvict()
		}
		if rng.IntN(3) == 0 {
			at := b.log.Offsets()
			if err := b.log.SetLogStart(t.Context(), at.LogStart+rng.Int64N(30)); err != nil {
				t.Fatal(err)
			}
		}
		b.checkLookups(rng)
	}
	if o := b.log.Offsets(); o.LocalStart < 50 || o.LogStart < 10 {
		t.Fatalf("little happened: %+v", o)
	}
}

func (b *broker) checkLookups(rng *rand.Rand) {
	b.w.t.Helper()
	ctx, o := b.w.t.Context(), b.log.Offsets()
	live := b.w.model[o.LogStart:o.HighWatermark]
	for range 20 {
		ts := live[rng.IntN(len(live))].ts + rng.Int64N(3) - 1
		want := segment.TimeOffset{Timestamp: -1, Offset: -1}
		for i, r := range live {
			if r.ts >= ts {
				want = segment.TimeOffset{Timestamp: r.ts, Offset: o.LogStart + int64(i)}
				break
			}
		}
		got, err := b.log.OffsetForTime(ctx, ts, segment.UntilHighWatermark)
		if err != nil || got.Offset != want.Offset || got.Timestamp != want.Timestamp {
			b.w.t.Fatalf("offset for time %d: got %+v, %v; want %+v; offsets %+v", ts, got, err, want, o)
		}
	}
	most := segment.TimeOffset{Timestamp: math.MinInt64, Offset: -1}
	for i, r := range live {
		if r.ts > most.Timestamp {
			most = segment.TimeOffset{Timestamp: r.ts, Offset: o.LogStart + int64(i)}
		}
	}
	got, err := b.log.OffsetOfMaxTime(ctx, segment.UntilHighWatermark)
	if err != nil || got.Offset != most.Offset || got.Timestamp != most.Timestamp {
		b.w.t.Fatalf("offset of the largest time: got %+v, %v; want %+v; offsets %+v", got, err, most, o)
	}
}

// TestEvictionDuringALookupLosesNothing is KAFKA-17637: the local start moves
// between the archive's half of a lookup and the disk's.
func TestEvictionDuringALookupLosesNothing(t *testing.T) {
	w := newWorld(t)
	o := w.defaults()
	b := w.start(newDisk(), o)
	b.lead(1)
	b.append(100)
	w.advance(time.Second)
	b.append(100)
	b.mustUpload()
	inner := b.archive.cold
	b.archive.cold = evicting{inner, b}
	if _, err := b.log.evictBelow(t, 40); err != nil {
		t.Fatal(err)
	}
	ts := w.model[120].ts
	want := int64(0)
	for w.model[want].ts < ts {
		want++
	}
	got, err := b.log.OffsetForTime(t.Context(), ts, segment.UntilHighWatermark)
	if err != nil || got.Offset != want {
		t.Fatalf("got %+v, %v; want %d", got, err, want)
	}
	if b.log.Offsets().LocalStart < 100 {
		t.Fatal("nothing was evicted meanwhile")
	}
}

// evicting deletes local segments after each lookup in the archive.
type evicting struct {
	coldReader
	b *broker
}

func (e evicting) FirstAt(ctx context.Context, s *source, ts, from, below int64) (segment.TimeOffset, error) {
	got, err := e.coldReader.FirstAt(ctx, s, ts, from, below)
	e.b.mustEvict()
	return got, err
}

// evictBelow deletes the archived local segments that end at or below an offset.
func (l *Log) evictBelow(t *testing.T, offset int64) (int64, error) {
	sealed, err := l.local.Sealed(0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for n < len(sealed) && sealed[n].End <= offset {
		n++
	}
	return l.evict(t.Context(), sealed[:n])
}
