package tiering

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"firn/segment"
	"firn/tiering/objstore"
)

// TestRetentionAgreesWithANaiveModel: spans in pages and out of them, limits by
// time, by size, and both.
func TestRetentionAgreesWithANaiveModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	for range 2000 {
		n := 1 + rng.IntN(12)
		spans := make([]span, n)
		end, total := int64(0), int64(0)
		for i := range spans {
			end += 1 + rng.Int64N(10)
			spans[i] = span{End: end, MaxTime: rng.Int64N(100) - 1, Bytes: 1 + rng.Int64N(50)}
			total += spans[i].Bytes
		}
		total += rng.Int64N(30) // the active segment
		lim := limits{-1, -1}
		if rng.IntN(3) > 0 {
			lim.ms = rng.Int64N(100)
		}
		if rng.IntN(3) > 0 {
			lim.bytes = rng.Int64N(total)
		}
		below := rng.Int64N(end + 5)
		want, left := 0, total
		for _, s := range spans {
			if s.End > below {
				break
			}
			tooOld := lim.ms != -1 && s.MaxTime != -1 && 100-s.MaxTime > lim.ms
			tooMuch := lim.bytes != -1 && left-s.Bytes >= lim.bytes
			if !tooOld && !tooMuch {
				break
			}
			want++
			left -= s.Bytes
		}
		if got, rest := lim.due(spans, total, 100, below); got != want || rest != left {
			t.Fatalf("%+v below %d of %+v: got %d (%d bytes left), want %d (%d)", lim, below, spans, got, rest, want, left)
		}
		// In two halves, the first a page: the same.
		untimed := func(s span) bool { return s.MaxTime < 0 } // a page can't tell them from the others
		if h := n / 2; h > 0 && !slices.ContainsFunc(spans[:h], untimed) {
			page := span{End: spans[h-1].End, MaxTime: -1}
			for _, s := range spans[:h] {
				page.MaxTime, page.Bytes = max(page.MaxTime, s.MaxTime), page.Bytes+s.Bytes
			}
			k, rest := lim.due(append([]span{page}, spans[h:]...), total, 100, below)
			got := k + h - 1
			if k == 0 {
				got, _ = lim.due(spans[:h], rest, 100, below)
			}
			if got > want { // a page may go whole only if all of it would
				t.Fatalf("with a page %+v below %d of %+v: %d go, want at most %d", lim, below, spans, got, want)
			}
		}
	}
}

// TestRetentionOfTheWholeLog moves the log start through archive and disk; the
// objects follow after the grace, in T4's order.
func TestRetentionOfTheWholeLog(t *testing.T) {
	w := newWorld(t)
	o := w.defaults()
	o.policy.RetentionMs = time.Hour.Milliseconds()
	b := w.start(newDisk(), o)
	b.lead(1)
	b.append(150)
	b.mustUpload()
	b.mustEvict()
	w.advance(50 * time.Minute)
	b.append(150)
	b.mustUpload()
	ctx := t.Context()
	if err := b.log.Keep(ctx, w.now()); err != nil || b.log.Offsets().LogStart != 0 {
		t.Fatalf("log start %d before the time: %v", b.log.Offsets().LogStart, err)
	}
	w.advance(20 * time.Minute)
	objects := len(w.bucket.Keys())
	if err := b.log.Keep(ctx, w.now()); err != nil {
		t.Fatal(err)
	}
	start := b.log.Offsets().LogStart
	if start < 100 || start > 150 || w.pointer().LogStart != start {
		t.Fatalf("log start %d, in the pointer %d", start, w.pointer().LogStart)
	}
	if len(w.bucket.Keys()) < objects {
		t.Fatal("objects went before the grace")
	}
	if _, err := b.log.Read(segment.ReadRequest{Offset: start - 1, MaxBytes: 100}); !errors.Is(err, segment.ErrOffsetOutOfRange) {
		t.Fatalf("read below the log start: %v", err)
	}
	b.verify()
	var order []string
	b.onStore(func(op objstore.Op) objstore.Fault {
		if k, ok := ParseKey(op.Key); ok && (op.Kind == objstore.OpDelete && k.Kind == KindLog || op.Kind == objstore.OpPut) {
			order = append(order, fmt.Sprint(op.Kind))
		}
		return objstore.Fault{}
	})
	w.advance(61 * time.Second)
	if err := b.log.Keep(ctx, w.now()); err != nil {
		t.Fatal(err)
	}
	if s := strings.Join(order, " "); !strings.HasPrefix(s, "delete delete") || !strings.HasSuffix(s, "delete put") {
		t.Fatalf("order of deletes and the manifest: %s", s)
	}
	m := b.log.view.Load().manifest
	if m.DeletedThrough == 0 || m.DeletedThrough > m.LogStart || m.Entries[0].End <= m.DeletedThrough {
		t.Fatalf("manifest %+v", m)
	}
	b.verify()
	b.sweepClean()
	// Everything expires in the end, the active segment included.
	w.advance(2 * time.Hour)
	for range 3 {
		if err := b.log.Keep(ctx, w.now()); err != nil {
			t.Fatal(err)
		}
		b.mustUpload()
		b.mustEvict()
	}
	if o := b.log.Offsets(); o.LogStart != o.End || o.ArchivedEnd != o.End || o.LocalStart != o.End {
		t.Fatalf("after everything has expired: %+v", o)
	}
	b.append(50)
	b.mustUpload()
	b.verify()
	b.sweepClean()
	b.crash()
	fresh := w.start(newDisk(), o)
	fresh.lead(2)
	if o := fresh.log.Offsets(); o.End != w.pointer().ArchivedEnd {
		t.Fatalf("a wiped disk: %+v", o)
	}
}

// TestRetentionBySizeCountsEachSegmentOnce is D9, over pages, archive and disk.
func TestRetentionBySizeCountsEachSegmentOnce(t *testing.T) {
	w := newWorld(t)
	o := w.defaults()
	o.policy.LocalRetentionBytes = -1
	b := w.start(newDisk(), o)
	b.lead(1)
	b.manySegments(2*PageEntries + 50)
	b.append(3)
	m := b.log.view.Load().manifest
	if len(m.Pages) != 1 {
		t.Fatalf("%d pages", len(m.Pages))
	}
	size := m.Entries[len(m.Entries)-1].Size
	for _, keep := range []int64{500, 400, 300, 120, 10} { // segments; the first three cut inside the page
		p := o.policy
		p.RetentionBytes = keep * size
		b.log.SetPolicy(p)
		if err := b.log.Keep(t.Context(), w.now()); err != nil {
			t.Fatal(err)
		}
		at := b.log.Offsets()
		if got := at.End - at.LogStart; got < keep-1 || got > keep+2 {
			t.Fatalf("retention of about %d records kept %d", keep, got)
		}
	}
	for range 4 { // deletion goes in batches
		w.advance(2 * time.Minute)
		if err := b.log.Keep(t.Context(), w.now()); err != nil {
			t.Fatal(err)
		}
	}
	m = b.log.view.Load().manifest
	if len(m.Pages) != 0 || len(m.Entries) > 15 {
		t.Fatalf("%d pages and %d entries are left", len(m.Pages), len(m.Entries))
	}
	b.verify()
	b.sweepClean()
}

// TestDeleteRecordsPastTheArchivedEndTakesItAlong is T8's first sentence.
func TestDeleteRecordsPastTheArchivedEndTakesItAlong(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	b.mustUpload()
	b.append(60)
	if err := b.log.SetLogStart(t.Context(), 155); err != nil {
		t.Fatal(err)
	}
	ptr := w.pointer()
	if ptr.LogStart != 155 || ptr.ArchivedEnd != 155 || ptr.LastEpoch != 1 {
		t.Fatalf("pointer %+v", ptr)
	}
	if err := b.log.SetLogStart(t.Context(), 999); !errors.Is(err, segment.ErrOffsetOutOfRange) {
		t.Fatalf("log start past the high watermark: %v", err)
	}
	b.crash()
	b = w.start(newDisk(), w.defaults()) // wiped: it starts at the archived end, though no segment ends there
	if o := b.log.Offsets(); o.LogStart != 155 || o.End != 155 || b.log.EpochAt(154) != 1 {
		t.Fatalf("%+v, epoch at 154 is %d", o, b.log.EpochAt(154))
	}
	w.model = w.model[:155]
	b.lead(2)
	b.append(100)
	b.mustUpload()
	b.verify()
	b.sweepClean()
}

// TestLogStartMovesDuringAnUpload: to the middle of the segment that is going up,
// and past it.
func TestLogStartMovesDuringAnUpload(t *testing.T) {
	for _, past := range []bool{false, true} {
		w, b := leading(t)
		b.append(30)
		b.mustUpload()
		b.append(120)
		moved := int64(0)
		b.failpoint = func(name string) error {
			if name == "tiering.upload.before" && moved == 0 {
				if moved = b.log.Offsets().ArchivedEnd + 5; past {
					moved += 60
				}
				if err := b.log.SetLogStart(t.Context(), moved); err != nil {
					t.Error(err)
				}
			}
			return nil
		}
		b.mustUpload()
		if ptr := w.pointer(); moved == 0 || ptr.LogStart != moved || ptr.ArchivedEnd < 100 {
			t.Fatalf("moved to %d: %+v", moved, ptr)
		}
		b.verify()
		b.sweepClean()
	}
}

// TestGraceCountsFromWhenTheLogStartMoved, each time that it does.
func TestGraceCountsFromWhenTheLogStartMoved(t *testing.T) {
	w, b := leading(t)
	b.append(200)
	b.mustUpload()
	move := func(to int64) {
		if err := b.log.SetLogStart(t.Context(), to); err != nil {
			t.Fatal(err)
		}
	}
	through := func() int64 {
		if err := b.log.Keep(t.Context(), w.now()); err != nil {
			t.Fatal(err)
		}
		return b.log.view.Load().manifest.DeletedThrough
	}
	move(60)
	w.advance(40 * time.Second)
	move(120)
	if got := through(); got != 0 {
		t.Fatalf("deleted through %d before any grace was over", got)
	}
	w.advance(30 * time.Second)
	if got := through(); got == 0 || got > 60 {
		t.Fatalf("deleted through %d, want up to 60", got)
	}
	w.advance(40 * time.Second)
	if got := through(); got <= 60 || got > 120 {
		t.Fatalf("deleted through %d, want up to 120", got)
	}
	b.verify()
}

func TestDeleteRecordsNeedsTheStoreOnlyForWhatIsArchived(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	w.away(true)
	if err := b.log.SetLogStart(t.Context(), 10); err != nil {
		t.Fatalf("without a pointer: %v", err)
	}
	w.away(false)
	b.mustUpload()
	w.away(true)
	if err := b.log.SetLogStart(t.Context(), 20); !errors.Is(err, errAway) || !errors.Is(err, ErrUnavailable) || b.log.Offsets().LogStart != 10 {
		t.Fatalf("with a pointer: %v, log start %d", err, b.log.Offsets().LogStart)
	}
}

func TestDeleteOnDisable(t *testing.T) {
	w, b := leading(t)
	b.append(150)
	b.mustUpload()
	b.mustEvict()
	b.append(100)
	local := b.log.Offsets().LocalStart
	p := w.defaults().policy
	p.Enabled, p.DeleteOnDisable = false, true
	b.log.SetPolicy(p)
	for range 3 {
		if err := b.log.Keep(t.Context(), w.now()); err != nil {
			t.Fatal(err)
		}
		w.advance(2 * time.Minute)
	}
	if got := b.log.Offsets().LogStart; got != local {
		t.Fatalf("log start %d, want the local start %d", got, local)
	}
	if n := len(b.log.view.Load().manifest.Entries); n != 0 {
		t.Fatalf("%d entries are left", n)
	}
	b.verify()
	b.log.SetPolicy(w.defaults().policy) // and on again
	b.mustUpload()
	b.verify()
	b.sweepClean()
}

func TestEvictionGoesByLocalRetention(t *testing.T) {
	w := newWorld(t)
	o := w.defaults()
	o.policy.LocalRetentionBytes = 6000
	b := w.start(newDisk(), o)
	b.lead(1)
	b.append(200)
	b.mustEvict()
	if got := b.log.Offsets().LocalStart; got != 0 {
		t.Fatalf("un-archived data went: local start %d", got)
	}
	b.mustUpload()
	b.mustEvict()
	if size := b.log.Local().Size(); size < 6000 || size > 6000+2048 {
		t.Fatalf("%d bytes are left on disk", size)
	}
	b.verify()
	// A disk that is short takes more, but nothing that isn't archived.
	freed, err := b.archive.FreeLocal(t.Context(), 1<<40)
	if at := b.log.Offsets(); err != nil || freed < 4000 || at.LocalStart != at.ArchivedEnd {
		t.Fatalf("freed %d, %v: %+v", freed, err, at)
	}
	b.verify()
}

// TestFollowerEvictsByThePointerAlone is D6.
func TestFollowerEvictsByThePointerAlone(t *testing.T) {
	w := newWorld(t)
	a, b := w.start(newDisk(), w.defaults()), w.start(newDisk(), w.defaults())
	a.lead(1)
	a.append(150)
	a.copyTo(b)
	b.mustEvict()
	if got := b.log.Offsets().LocalStart; got != 0 {
		t.Fatalf("local start %d with nothing archived", got)
	}
	a.mustUpload()
	b.pointers.load = func() error { return errAway }
	if err := b.log.Evict(t.Context(), w.now()); !errors.Is(err, errAway) || b.log.Offsets().LocalStart != 0 {
		t.Fatalf("evicted without reading the pointer: %v", err)
	}
	b.pointers.load = nil
	b.mustEvict()
	if at := b.log.Offsets(); at.LocalStart != at.ArchivedEnd {
		t.Fatalf("%+v", at)
	}
	// What is committed and sealed since, and not in the archive, stays.
	a.append(150)
	a.copyTo(b)
	b.mustEvict()
	if at := b.log.Offsets(); at.LocalStart > at.ArchivedEnd {
		t.Fatalf("evicted what the archive hasn't: %+v", at)
	} else if at.LocalStart != at.ArchivedEnd || at.HighWatermark != 300 {
		t.Fatalf("%+v", at)
	}
	b.verify()
}

// TestRetainedByPolicyIsAStateNotALoop: an object lock answers 403.
func TestRetainedByPolicyIsToldAndNothingIsDropped(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	b.mustUpload()
	if err := b.log.SetLogStart(t.Context(), 60); err != nil {
		t.Fatal(err)
	}
	b.onStore(func(op objstore.Op) objstore.Fault {
		if op.Kind == objstore.OpDelete {
			return objstore.Fault{Before: objstore.ErrDenied}
		}
		return objstore.Fault{}
	})
	w.advance(2 * time.Minute)
	if err := b.log.Keep(t.Context(), w.now()); !errors.Is(err, objstore.ErrDenied) {
		t.Fatal(err)
	}
	if m := b.log.view.Load().manifest; m.DeletedThrough != 0 {
		t.Fatalf("says that it deleted through %d", m.DeletedThrough)
	}
}
