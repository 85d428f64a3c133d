package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/objstore"
)

// life is what a partition goes through: two rounds of appending, uploading,
// eviction, a moved log start, deletion from the archive, a sweep. It tries each
// thing until it succeeds; errors returns those that it met.
func (b *broker) life() (met []error) {
	ctx := b.w.t.Context()
	try := func(f func() error) {
		for range 20 {
			err := f()
			if err == nil {
				return
			}
			met = append(met, err)
			if b.dead.Load() {
				return
			}
		}
		b.w.t.Fatalf("still failing after 20 tries: %v", met)
	}
	for range 2 {
		if b.dead.Load() {
			return met
		}
		b.append(120)
		try(b.upload)
		try(func() error { return b.log.Evict(ctx, b.w.now()) })
		try(func() error { return b.log.SetLogStart(ctx, b.log.Offsets().LogStart+25) })
		b.w.advance(2 * time.Minute) // past the grace
		try(func() error { return b.log.Keep(ctx, b.w.now()) })
		try(func() error { _, err := b.log.Sweep(ctx, b.w.now()); return err })
	}
	return met
}

// verify checks what must hold whatever happened: the archive has what was
// appended, up to what the pointer says and down to the log start, and the disk
// has all that the archive hasn't.
func (b *broker) verify() {
	b.w.t.Helper()
	o := b.log.Offsets()
	end := max(o.ArchivedEnd, o.LogStart)
	b.w.checkArchived(0)
	if o.LocalStart > end {
		b.w.t.Fatalf("disk begins at %d, archive ends at %d", o.LocalStart, end)
	}
	for off := o.LogStart; off < o.HighWatermark; {
		next := b.read(off, segment.UntilHighWatermark)
		if next <= off {
			b.w.t.Fatalf("nothing at %d of %+v", off, o)
		}
		off = next
	}
}

// checkRecords compares records with what was appended, and returns the offset
// after them; -1 if there are none.
func (w *world) checkRecords(r *segment.Records) int64 {
	w.t.Helper()
	raw, err := r.AppendTo(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	next := int64(-1)
	for len(raw) > 0 {
		bt, rest, err := batch.Next(raw)
		if errors.Is(err, batch.ErrShort) {
			break
		}
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range w.records(bt) {
			if w.model[r.offset] != r.rec {
				w.t.Fatalf("record %d is %+v, appended was %+v", r.offset, r.rec, w.model[r.offset])
			}
			next = r.offset + 1
		}
		raw = rest
	}
	return next
}

func TestEveryStoreFaultIsSurvived(t *testing.T) {
	fault := errors.New("injected")
	for name, make := range map[string]func() objstore.Fault{
		"before": func() objstore.Fault { return objstore.Fault{Before: fault} },
		"after":  func() objstore.Fault { return objstore.Fault{After: fault} },
	} {
		for n := 0; ; n++ {
			_, b := leading(t)
			var ops []string
			put := map[string]bool{}
			b.onStore(func(op objstore.Op) objstore.Fault {
				ops = append(ops, fmt.Sprint(op.Kind, " ", op.Key))
				if _, ok := ParseKey(op.Key); ok && op.Kind == objstore.OpPut {
					if put[op.Key] { // T2: who knows what the first has left there
						t.Errorf("%s is put a second time", op.Key)
					}
					put[op.Key] = true
				}
				if len(ops) == n+1 {
					return make()
				}
				return objstore.Fault{}
			})
			b.life()
			b.store.Set(nil)
			b.verify()
			b.sweepClean()
			if len(ops) <= n {
				t.Logf("%s: %d operations of the store failed one at a time", name, n)
				if n < 40 {
					t.Fatalf("only %d operations", n)
				}
				b.stop()
				break
			}
			b.stop()
			if t.Failed() {
				t.Fatalf("%s operation %d: %s", name, n, ops[n])
			}
		}
	}
}

// sweepClean sweeps, past the grace, and checks that no orphan is left.
func (b *broker) sweepClean() {
	b.w.t.Helper()
	for range 3 { // the first deletes what became useless, manifests need the grace
		b.w.advance(2 * time.Minute)
		if err := b.log.Keep(b.w.t.Context(), b.w.now()); err != nil {
			b.w.t.Fatal(err)
		}
		if _, err := b.log.Sweep(b.w.t.Context(), b.w.now()); err != nil {
			b.w.t.Fatal(err)
		}
	}
	if left := b.w.orphans(); len(left) > 0 {
		b.w.t.Fatalf("orphans left: %v", left)
	}
}

func TestEveryPointerFaultIsSurvived(t *testing.T) {
	fault := errors.New("injected")
	for _, name := range []string{"no effect", "effect", "late effect"} {
		for n := 0; ; n++ {
			_, b := leading(t)
			calls := 0
			var late func() (Pointer, error)
			b.pointers.swap = func(do func() (Pointer, error)) (Pointer, error) {
				calls++
				switch {
				case calls != n+1:
					ptr, err := do()
					if late != nil {
						_, lerr := late() // lands behind the write that came after it
						if !errors.Is(lerr, ErrMoved) {
							t.Errorf("a late pointer write got %v", lerr)
						}
						late = nil
					}
					return ptr, err
				case name == "effect":
					_, _ = do()
				case name == "late effect":
					late = do
				}
				return Pointer{}, fault
			}
			b.life()
			b.verify()
			b.sweepClean()
			b.stop()
			if calls <= n {
				if n < 6 {
					t.Fatalf("only %d pointer writes", n)
				}
				break
			}
		}
	}
}

// failpoints are the names in the sources.
func failpoints(t *testing.T) (names []string) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`failpoint\("([^"]+)"\)`)
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllSubmatch(src, -1) {
			if !slices.Contains(names, string(m[1])) {
				names = append(names, string(m[1]))
			}
		}
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !bytes.Contains(doc, []byte("\t"+name+" ")) {
			t.Errorf("doc.go does not list %s", name)
		}
	}
	return names
}

// TestCrashAtEveryFailpoint kills the broker each time it comes by a failpoint,
// opens the directory again under a new epoch, and goes on.
func TestCrashAtEveryFailpoint(t *testing.T) {
	for _, name := range failpoints(t) {
		hits := 0
		for nth := 1; ; nth++ {
			w, b := leading(t)
			seen := 0
			b.failpoint = func(at string) error {
				if at == name {
					if seen++; seen == nth {
						b.dead.Store(true)
						return errCrashed
					}
				}
				return nil
			}
			b.extras(name)
			b.life()
			if !b.dead.Load() {
				b.stop()
				break
			}
			hits++
			b.crash()
			again := b.disk.clone()
			b = w.start(again, w.defaults())
			b.lead(2)
			b.verify()
			w.model = w.model[:b.log.Offsets().End]
			b.life()
			b.verify()
			b.sweepClean()
			b.stop()
		}
		t.Logf("%s: %d crashes", name, hits)
		if hits == 0 {
			t.Errorf("%s: no test comes by", name)
		}
	}
}

// extras leads life past failpoints that it doesn't pass by itself.
func (b *broker) extras(name string) {
	ctx := context.Background()
	switch name {
	case "tiering.sweep.delete":
		key := Key{Kind: KindLog, Partition: testPart, Base: 7, Epoch: 0, ID: 99}.String()
		if err := b.w.bucket.Create(ctx, key, []byte("orphan")); err != nil {
			b.w.t.Fatal(err)
		}
	case "tiering.restart.before":
		b.append(120)
		if err := b.upload(); err == nil {
			_ = b.log.RestartAtArchivedEnd(ctx)
			b.w.model = b.w.model[:b.log.Offsets().End]
		}
	case "tiering.purge.tombstone", "tiering.purge.delete":
		other := TopicID{9}
		for i := range 3 {
			key := Key{Kind: KindLog, Partition: Partition{Topic: "gone", ID: other}, Base: int64(i), ID: 5}.String()
			if err := b.w.bucket.Create(ctx, key, []byte("x")); err != nil {
				b.w.t.Fatal(err)
			}
		}
		_, _ = b.archive.Purge(ctx, "gone", other)
	case "tiering.page.after":
		b.manySegments(2*PageEntries + 1)
	}
}

// manySegments uploads n segments of one record each.
func (b *broker) manySegments(n int) {
	for range n {
		if b.dead.Load() {
			return
		}
		b.append(1)
		if err := b.log.Local().Roll(b.w.now()); err != nil {
			b.w.t.Fatal(err)
		}
	}
	_ = b.upload()
}
