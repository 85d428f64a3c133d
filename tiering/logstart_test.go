package tiering

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"firn/segment/vfs"
)

const (
	startNote = "/data/log-start-offset-checkpoint"
	fileAt    = "/data/orders.eu-7/%020d.log"
)

// deletedFirst is a log of which records were deleted before any was archived,
// from both ends of a segment on: it begins where its files do. b has crashed.
func deletedFirst(t *testing.T) (w *world, b *broker, start int64) {
	t.Helper()
	w, b = leading(t)
	b.append(100)
	b.settle()
	if err := b.log.Local().Flush(); err != nil {
		t.Fatal(err)
	}
	start = b.deleteFirst()
	if err := b.dir.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if o := b.log.Offsets(); o.LogStart != start || o.LocalStart != start || o.ArchivedEnd != -1 {
		t.Fatalf("before the restart: %+v, want all at %d and nothing archived", o, start)
	}
	b.crash()
	return w, b, start
}

// deleteFirst deletes the records of the two oldest segments.
func (b *broker) deleteFirst() int64 {
	b.w.t.Helper()
	sealed, err := b.log.Local().Sealed(0)
	if err != nil || len(sealed) < 3 {
		b.w.t.Fatalf("sealed: %d, %v", len(sealed), err)
	}
	start := sealed[1].End
	if err := b.log.SetLogStart(b.w.t.Context(), start); err != nil {
		b.w.t.Fatal(err)
	}
	b.mustEvict()
	return start
}

// TestRecordsDeletedBeforeTheyWereArchivedAreNoHole is T8: what the log start has
// passed is promised to nobody, and the archive begins there.
func TestRecordsDeletedBeforeTheyWereArchivedAreNoHole(t *testing.T) {
	for name, alter := range map[string]func(vfs.FS) error{
		"as it was left": func(vfs.FS) error { return nil },
		// Versions up to now, and Kafka, note no log start that a file's name tells.
		"without a note": func(fs vfs.FS) error { return fs.Remove(startNote) },
	} {
		t.Run(name, func(t *testing.T) {
			w, b, start := deletedFirst(t)
			d := b.disk.clone()
			if err := alter(d.fs); err != nil {
				t.Fatal(err)
			}
			for epoch := range int32(2) { // again: what has become of the note
				b = w.start(d, w.defaults())
				b.lead(2 + epoch)
				if o := b.log.Offsets(); o.LogStart != start || o.LocalStart != start {
					t.Fatalf("opened at %+v, want a log start of %d", o, start)
				}
				b.append(5)
				b.verify()
				b.stop()
			}
			b = w.start(d, w.defaults())
			b.lead(4)
			b.append(40)
			b.mustUpload()
			b.mustEvict()
			b.verify()
			if ptr := w.pointer(); ptr.LogStart != start || ptr.ArchivedEnd <= start {
				t.Fatalf("pointer %+v, want a log start of %d and more", ptr, start)
			}
		})
	}
}

// TestMissingFilesAreAHole: files are gone that the log start has not passed.
func TestMissingFilesAreAHole(t *testing.T) {
	for name, noted := range map[string]bool{"nothing was deleted": false, "something was": true} {
		t.Run(name, func(t *testing.T) {
			w, b := leading(t)
			b.append(100)
			b.settle()
			first := int64(0)
			if noted {
				first = b.deleteFirst()
			}
			b.stop()
			if err := b.disk.fs.Remove(fmt.Sprintf(fileAt, first)); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it doesn't pass with the next start
				b = w.start(b.disk, w.defaults())
				w.pointers.Elect(testPart, 2)
				if err := b.log.Lead(t.Context(), 2); !errors.Is(err, ErrDiverged) || !b.log.Diverged() {
					t.Fatalf("led with a hole at %+v: %v", b.log.Offsets(), err)
				}
				b.stop()
			}
		})
	}
}

// TestLogStartPastThePointersIsKept: a follower has deleted what its leader let
// go, and that leader's successor, who hadn't heard of it, archived from the old
// start on.
func TestLogStartPastThePointersIsKept(t *testing.T) {
	w := newWorld(t)
	a, b := w.start(newDisk(), w.defaults()), w.start(newDisk(), w.defaults())
	a.lead(1)
	a.append(100)
	a.copyTo(b)
	b.settle()
	start := b.deleteFirst()
	a.settle()
	a.mustSteps(1)
	if err := a.log.publishDue(t.Context(), a.log.lead.Load(), w.now()); err != nil {
		t.Fatal(err)
	}
	if ptr := w.pointer(); ptr.LogStart != 0 || ptr.ArchivedEnd >= start {
		t.Fatalf("pointer %+v, want less than %d archived", ptr, start)
	}
	for epoch := range int32(2) {
		b.stop()
		b = w.start(b.disk, w.defaults())
		b.lead(2 + epoch)
		if o := b.log.Offsets(); o.LogStart != start || o.LocalStart != start {
			t.Fatalf("opened at %+v, want a log start of %d", o, start)
		}
	}
	b.append(40)
	b.mustUpload()
	b.mustEvict()
	b.verify()
	if ptr := w.pointer(); ptr.LogStart != start {
		t.Fatalf("pointer %+v, want a log start of %d", ptr, start)
	}
}

// TestCrashWhileUnarchivedRecordsAreDeleted cuts the power after every change of the
// disk, while records go that no pointer has: the leader's, and those of a
// follower that begins where its leader's log does.
func TestCrashWhileUnarchivedRecordsAreDeleted(t *testing.T) {
	type wreck struct {
		after string
		fs    *vfs.Mem
	}
	w := newWorld(t)
	rng := rand.New(rand.NewPCG(5, 6))
	var mu sync.Mutex // logs sync in the background
	var left []wreck
	watch := func(d *disk) {
		fs := d.fs.(*vfs.Mem)
		fs.OnOp(func(op vfs.Op) {
			mu.Lock()
			defer mu.Unlock()
			for _, keep := range []int{0, 50, 100} {
				left = append(left, wreck{fmt.Sprintf("%v, keeping %d %%", op, keep), fs.CrashClone(vfs.CrashOptions{Keep: keep, Rand: rng})})
			}
		})
	}
	o := w.defaults()
	o.flushMessages = 1
	a, b := w.start(newDisk(), o), w.start(newDisk(), o)
	a.lead(1)
	a.appendOnly(100)
	if err := a.log.Local().Flush(); err != nil {
		t.Fatal(err)
	}
	a.log.SetHighWatermark(100)
	a.settle()
	for _, x := range []*broker{a, b} {
		if err := x.dir.Checkpoint(); err != nil {
			t.Fatal(err)
		}
	}
	watch(a.disk)
	start := a.deleteFirst()
	if err := a.dir.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	watch(b.disk)
	if err := b.log.BeginAt(start); err != nil {
		t.Fatal(err)
	}
	a.copyTo(b)
	if err := b.dir.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*disk{a.disk, b.disk} {
		d.fs.(*vfs.Mem).OnOp(nil)
	}
	mu.Lock()
	wrecks := slices.Clone(left)
	mu.Unlock()
	if len(wrecks) < 60 {
		t.Fatalf("only %d power losses: the test does not test", len(wrecks))
	}
	for i, l := range wrecks {
		x, err := w.tryStart(&disk{fs: l.fs}, o)
		if err != nil {
			t.Fatalf("after %s: %v", l.after, err)
		}
		epoch := int32(2 + i)
		w.pointers.Elect(testPart, epoch)
		if err := x.log.Lead(t.Context(), epoch); err != nil {
			t.Fatalf("after %s: %v at %+v", l.after, err, x.log.Offsets())
		}
		if o := x.log.Offsets(); o.LogStart != 0 && o.LogStart != start || o.LocalStart > o.LogStart {
			t.Fatalf("after %s: %+v, want a log start of 0 or %d", l.after, o, start)
		}
		x.stop()
	}
}

// TestOffsetsBelowTheLogStartAreNotGivenOutAgain: a power loss took what was not
// flushed, though not the log start above it.
func TestOffsetsBelowTheLogStartAreNotGivenOutAgain(t *testing.T) {
	w, b := leading(t)
	b.append(5)
	if err := b.log.SetLogStart(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	d := &disk{fs: b.disk.fs.(*vfs.Mem).CrashClone(vfs.CrashOptions{Keep: 0})}
	b.crash()
	b = w.start(d, w.defaults())
	b.lead(2)
	if o := b.log.Offsets(); o.LogStart != 5 || o.End != 5 {
		t.Fatalf("opened at %+v, want all at 5", o)
	}
	b.append(5)
	b.stop()
	b = w.start(d, w.defaults())
	b.lead(3)
	b.verify()
	if o := b.log.Offsets(); o.LogStart != 5 || o.End != 10 {
		t.Fatalf("opened at %+v, want 5 to 10", o)
	}
}

// TestRetentionBeforeTheFirstUpload is the above by Keep, with retention set back
// before anything is archived.
func TestRetentionBeforeTheFirstUpload(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	b.settle()
	p := w.defaults().policy
	p.RetentionBytes = 3000
	b.log.SetPolicy(p)
	if err := b.log.Keep(t.Context(), w.now()); err != nil {
		t.Fatal(err)
	}
	b.mustEvict()
	b.log.SetPolicy(w.defaults().policy)
	start := b.log.Offsets().LogStart
	if start == 0 || b.log.Offsets().LocalStart != start {
		t.Fatalf("retention did nothing: %+v", b.log.Offsets())
	}
	b.stop()
	b = w.start(b.disk, w.defaults())
	b.lead(2)
	b.append(30)
	b.mustUpload()
	b.mustEvict()
	b.verify()
	if ptr := w.pointer(); ptr.LogStart != start || ptr.ArchivedEnd <= start {
		t.Fatalf("pointer %+v, want a log start of %d and more", ptr, start)
	}
	if got := w.entries(); slices.ContainsFunc(got, func(e Entry) bool { return e.Base < start }) {
		t.Fatalf("archived from below the log start: %+v", got)
	}
}
