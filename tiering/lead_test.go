package tiering

import (
	"errors"
	"strings"
	"testing"
	"time"

	"firn/segment"
	"firn/segment/batch"
)

// copyTo brings b's log to another broker as a follower would: all batches from
// its end on.
func (b *broker) copyTo(to *broker) {
	b.w.t.Helper()
	for {
		from := to.log.Offsets().End
		res, err := b.log.Local().Read(segment.ReadRequest{Offset: from, MaxBytes: 512, MinOne: true, Until: segment.UntilCounted})
		if err != nil {
			b.w.t.Fatal(err)
		}
		if res.Records.Len() == 0 {
			break
		}
		raw, err := res.Records.AppendTo(nil)
		if err != nil {
			b.w.t.Fatal(err)
		}
		res.Records.Release()
		for len(raw) > 0 {
			bt, rest, err := batch.Next(raw)
			if err != nil {
				break
			}
			if _, err := to.log.AppendReplica(bt); err != nil {
				b.w.t.Fatal(err)
			}
			raw = rest
		}
	}
	to.log.SetHighWatermark(b.log.Offsets().HighWatermark)
}

// TestZombieCannotMoveThePointer is D2: two leaders upload the same range.
func TestZombieCannotMoveThePointer(t *testing.T) {
	for _, at := range []string{"tiering.upload.before", "tiering.upload.after", "tiering.manifest.before", "tiering.manifest.after", "tiering.pointer.before"} {
		w := newWorld(t)
		a, b := w.start(newDisk(), w.defaults()), w.start(newDisk(), w.defaults())
		a.lead(1)
		a.append(150)
		a.copyTo(b)
		overtaken := false
		a.failpoint = func(name string) error {
			if name == at && !overtaken { // a sleeps here, b is elected and archives the same range
				overtaken = true
				b.lead(2)
				b.mustUpload()
				b.mustEvict()
			}
			return nil
		}
		_ = a.upload() // it wakes up and goes on
		if !overtaken {
			t.Fatalf("%s was not hit", at)
		}
		a.mustEvict()
		a.verify()
		b.verify()
		if ld := a.log.lead.Load(); ld != nil {
			t.Errorf("%s: the zombie still believes that it leads", at)
		}
		b.append(100)
		b.mustUpload()
		b.verify()
		b.sweepClean() // the zombie's objects are of a lower epoch
		w.checkArchived(200)
	}
}

// TestZombieWithoutNewUploadsIsFenced: the successor has not touched the pointer,
// so its version alone would let the zombie through.
func TestZombieWithoutNewUploadsIsFenced(t *testing.T) {
	w := newWorld(t)
	a, b := w.start(newDisk(), w.defaults()), w.start(newDisk(), w.defaults())
	a.lead(1)
	a.append(100)
	a.copyTo(b)
	b.lead(2)
	a.settle()
	a.mustSteps(20)
	if o := b.log.Offsets(); o.ArchivedEnd != -1 {
		t.Fatalf("the zombie's write landed: %+v", o)
	}
	if ptr, _ := w.pointers.LoadPointer(t.Context(), testPart); ptr.Exists() {
		t.Fatalf("pointer %+v", ptr)
	}
}

// TestBordersMayDifferBetweenReplicas is D28.
func TestBordersMayDifferBetweenReplicas(t *testing.T) {
	w := newWorld(t)
	oa, ob := w.defaults(), w.defaults()
	ob.segmentBytes = 3100
	brokers := []*broker{w.start(newDisk(), oa), w.start(newDisk(), ob)}
	for epoch := int32(1); epoch < 12; epoch++ {
		leader, follower := brokers[epoch%2], brokers[(epoch+1)%2]
		leader.lead(epoch)
		leader.append(37)
		leader.copyTo(follower)
		leader.settle()
		leader.mustSteps(2)
		w.advance(publishAfter)
		leader.mustSteps(1)
		leader.log.StopLeading()
	}
	w.checkArchived(250)
	borders := 0
	for _, e := range w.entries() {
		if e.FileBase < e.Base {
			borders++
		}
	}
	if borders < 3 {
		t.Fatalf("only %d entries begin inside their file", borders)
	}
	last := brokers[1]
	last.lead(100)
	last.mustUpload()
	last.mustEvict()
	last.verify()
	last.sweepClean()
}

// entries lists the manifest's entries, without those in pages.
func (w *world) entries() []Entry {
	ptr, _ := w.pointers.LoadPointer(w.t.Context(), testPart)
	m, err := fetchManifest(w.t.Context(), w.bucket, testPart, ptr)
	if err != nil {
		w.t.Fatal(err)
	}
	return m.Entries
}

// TestLogBehindTheArchiveStartsAgain is D25: the disk has lost what the archive has.
func TestLogBehindTheArchiveStartsAgain(t *testing.T) {
	w, b := leading(t)
	b.append(30)
	old := b.disk.clone() // an older copy of the directory
	b.append(170)
	b.mustUpload()
	end := b.log.Offsets().ArchivedEnd
	b.crash()
	for i, disk := range []*disk{old, newDisk()} {
		name, epoch := []string{"older copy", "wiped"}[i], int32(2+i)
		b = w.start(disk, w.defaults())
		if o := b.log.Offsets(); o.LocalStart != end || o.End != end || o.HighWatermark != end || o.LogStart != 0 {
			t.Fatalf("%s: opened at %+v, want all at %d", name, o, end)
		}
		b.lead(epoch)
		if e := b.log.EpochAt(end - 1); e != epoch-1 {
			t.Fatalf("%s: epoch of the last archived offset is %d, want %d", name, e, epoch-1)
		}
		w.model = w.model[:end]
		b.append(100)
		b.mustUpload()
		b.mustEvict()
		b.verify()
		b.crash()
		w.checkArchived(int(end) + 50)
		end = w.pointer().ArchivedEnd
	}
}

func (w *world) pointer() Pointer {
	ptr, err := w.pointers.LoadPointer(w.t.Context(), testPart)
	if err != nil {
		w.t.Fatal(err)
	}
	return ptr
}

// TestLeadingWaitsForTheStoreOnlyToStartAgain: with the store away a log that is
// behind opens, but does not lead; one that is not behind does.
func TestLeadingWaitsForTheStoreOnlyToStartAgain(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	b.mustUpload()
	b.crash()
	w.away(true)
	whole := w.start(b.disk.clone(), w.defaults())
	whole.lead(2)
	whole.crash()
	b = w.start(newDisk(), w.defaults())
	w.pointers.Elect(testPart, 3)
	if err := b.log.Lead(t.Context(), 3); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("led without its past: %v", err)
	}
	if s := b.log.Status(w.now()); !strings.Contains(s.Reason, "archive can't be read") {
		t.Fatalf("reason %q", s.Reason)
	}
	if got := b.log.Offsets().End; got != 0 {
		t.Fatalf("end %d", got)
	}
	w.away(false)
	b.lead(3)
	if o := b.log.Offsets(); o.End != o.ArchivedEnd || o.End == 0 {
		t.Fatalf("after the store came back: %+v", o)
	}
}

// TestOtherHistoryIsNotDiscardedByItself is T8 and S7.
func TestOtherHistoryIsNotDiscardedByItself(t *testing.T) {
	w := newWorld(t)
	a, b := w.start(newDisk(), w.defaults()), w.start(newDisk(), w.defaults())
	a.lead(1)
	a.append(20)
	a.copyTo(b)
	if err := b.log.Local().Lead(t.Context(), 2); err != nil { // b went its own way
		t.Fatal(err)
	}
	model := w.model
	b.append(300)
	w.model = model
	a.lead(3)
	a.append(150)
	a.mustUpload()
	w.pointers.Elect(testPart, 4)
	before := b.log.Offsets().End
	if err := b.log.Lead(t.Context(), 4); !errors.Is(err, ErrDiverged) {
		t.Fatalf("led with another history: %v", err)
	}
	if !b.log.Diverged() || b.log.Offsets().End != before {
		t.Fatal("discarded something, or does not tell")
	}
	if err := b.log.TruncateTo(20); !errors.Is(err, ErrDiverged) {
		t.Fatalf("truncation below the archived end: %v", err)
	}
	if err := b.log.RestartAtArchivedEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.log.Diverged() {
		t.Fatal("still diverged")
	}
	w.model = w.model[:b.log.Offsets().End]
	b.lead(4)
	b.append(50)
	b.mustUpload()
	b.verify()
}

// TestProducersSurviveAStartFromTheArchive is D14.
func TestProducersSurviveAStartFromTheArchive(t *testing.T) {
	w, b := leading(t)
	send := func(b *broker, seq int32) (segment.Appended, error) {
		bb := batch.NewBuilder(batch.Spec{Producer: &batch.Producer{ID: 9, Sequence: seq}})
		bb.Add(1, nil, []byte(strings.Repeat("x", 100)))
		bt, err := bb.Build()
		if err != nil {
			t.Fatal(err)
		}
		return b.log.Append(bt, segment.AppendOptions{Epoch: b.log.LatestEpoch(), Now: w.now().UnixMilli()})
	}
	for seq := range int32(40) {
		if _, err := send(b, seq); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.log.Local().Roll(w.now()); err != nil {
		t.Fatal(err)
	}
	b.log.SetHighWatermark(40)
	b.mustUpload()
	b.crash()
	b = w.start(newDisk(), w.defaults())
	b.lead(2)
	if a, err := send(b, 39); err != nil || !a.Duplicate || a.First != 39 {
		t.Fatalf("the last batch again: %+v, %v", a, err)
	}
	if _, err := send(b, 41); !errors.Is(err, segment.ErrOutOfOrderSequence) {
		t.Fatalf("a gap: %v", err)
	}
	if a, err := send(b, 40); err != nil || a.First != 40 {
		t.Fatalf("the next: %+v, %v", a, err)
	}
}

// TestOlderPointerIsRefused is Z1.
func TestOlderPointerIsRefused(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	b.mustUpload()
	backup := w.pointer()
	b.append(100)
	w.advance(time.Hour)
	b.mustUpload()
	w.pointers.set(testPart, backup)
	local := b.log.Offsets().LocalStart
	if err := b.log.Evict(t.Context(), w.now()); !errors.Is(err, ErrRolledBack) || b.log.Offsets().LocalStart != local {
		t.Fatalf("evicted by an older pointer: %v", err)
	}
	b.crash()
	if _, err := w.tryStart(b.disk.clone(), w.defaults()); !errors.Is(err, ErrRolledBack) {
		t.Fatalf("opened on a metadata store that was rolled back: %v", err)
	}
}

// TestPointerThatMovesWhileItIsReadIsNotOlder: who reads a pointer may hear of it
// later than who moves it.
func TestPointerThatMovesWhileItIsReadIsNotOlder(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	b.mustUpload()
	b.append(100)
	w.advance(time.Hour)
	before := w.pointer().Sequence
	b.pointers.load = func() error {
		b.pointers.load = nil
		b.mustUpload()
		return nil
	}
	if err := b.log.Evict(t.Context(), w.now()); err != nil {
		t.Fatal(err)
	}
	if now := w.pointer().Sequence; now == before {
		t.Fatalf("the pointer has not moved from %d", now)
	}
}

// TestLostLogStartNoteIsNotAMovedLogStart is D8.
func TestLostLogStartNoteIsNotAMovedLogStart(t *testing.T) {
	w, b := leading(t)
	b.append(200)
	b.mustUpload()
	if err := b.log.SetLogStart(t.Context(), 30); err != nil {
		t.Fatal(err)
	}
	b.mustEvict()
	b.stop()
	if err := b.disk.fs.Remove("/data/log-start-offset-checkpoint"); err != nil {
		t.Fatal(err)
	}
	b = w.start(b.disk, w.defaults())
	if o := b.log.Offsets(); o.LogStart != 30 || o.LocalStart < 100 {
		t.Fatalf("opened at %+v, want a log start of 30", o)
	}
	b.lead(2)
	b.append(100)
	b.mustUpload()
	b.verify()
	if got := w.pointer().LogStart; got != 30 {
		t.Fatalf("log start %d in the pointer", got)
	}
}

// stepUntil goes on, though the store may be away, until done.
func (b *broker) stepUntil(done func() bool) {
	b.w.t.Helper()
	for !done() {
		b.w.advance(publishAfter)
		b.settle()
		if _, err := b.log.Step(b.w.t.Context(), b.w.now()); err != nil && !errors.Is(err, errAway) {
			b.w.t.Fatal(err)
		}
	}
}

func (m *MemPointers) set(p Partition, ptr Pointer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.pointers[p] = ptr
}

// away makes the bucket unreachable for every broker started from now on.
func (w *world) away(yes bool) { w.outage.Store(yes) }

var errAway = errors.New("connection refused")

// TestStoppedLeaderDoesNotMoveThePointer: whatever was under way, and although
// the metadata store would let it.
func TestStoppedLeaderDoesNotMoveThePointer(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	b.failpoint = func(name string) error {
		if name == "tiering.pointer.before" {
			b.log.StopLeading()
		}
		return nil
	}
	if err := b.upload(); err != nil && !errors.Is(err, errNotLeading) {
		t.Fatal(err)
	}
	if ptr := w.pointer(); ptr.Exists() {
		t.Fatalf("pointer %+v", ptr)
	}
}

// TestReadBackProvesNothing is D26: a pointer write whose outcome is unknown, and
// that is still on its way when the old pointer is read back, must fail; what it
// names has been removed.
func TestReadBackProvesNothing(t *testing.T) {
	_, b := leading(t)
	b.append(100)
	b.mustUpload()
	b.append(100)
	var late func() (Pointer, error)
	b.pointers.swap = func(do func() (Pointer, error)) (Pointer, error) {
		if late == nil {
			late = do
			return Pointer{}, errAway
		}
		return do()
	}
	b.stepUntil(func() bool { return late != nil })
	if _, err := late(); !errors.Is(err, ErrMoved) {
		t.Fatalf("the late write got %v", err)
	}
	b.append(50)
	b.mustUpload()
	b.sweepClean()
	b.verify()
}

// TestSameEpochAgainSettlesWhatTheFirstLeft: within a process a broker may stop
// leading and lead again in one epoch; the fence does not tell the two apart.
func TestSameEpochAgainSettlesWhatTheFirstLeft(t *testing.T) {
	_, b := leading(t)
	b.append(100)
	b.mustUpload()
	b.append(100)
	var late func() (Pointer, error)
	b.pointers.swap = func(do func() (Pointer, error)) (Pointer, error) {
		late = do
		b.pointers.swap = func(func() (Pointer, error)) (Pointer, error) { return Pointer{}, errAway }
		return Pointer{}, errAway
	}
	b.stepUntil(func() bool { return late != nil })
	b.pointers.swap = nil
	b.lead(1)
	b.append(50)
	b.mustUpload()
	b.sweepClean()
	if _, err := late(); !errors.Is(err, ErrMoved) {
		t.Fatalf("the late write got %v", err)
	}
	b.verify()
}

// TestFailureEndsWithTheLeadership: who leads no more owes the archive nothing, and
// has nobody left who would try again.
func TestFailureEndsWithTheLeadership(t *testing.T) {
	for name, end := range map[string]func(w *world, b *broker){
		"stops leading": func(_ *world, b *broker) { b.log.StopLeading() },
		"is fenced": func(w *world, b *broker) {
			w.away(false)
			w.pointers.Elect(testPart, 2)
			w.advance(time.Minute)
			b.stepUntil(func() bool { return b.log.lead.Load() == nil })
		},
		"is refused the next epoch": func(w *world, b *broker) {
			w.pointers.Elect(testPart, 2)
			b.pointers.load = func() error { return errAway }
			if err := b.log.Lead(t.Context(), 2); !errors.Is(err, errAway) {
				t.Fatal(err)
			}
		},
		"panics afterwards": func(_ *world, b *broker) {
			b.log.StopLeading()
			_ = b.archive.guard(b.log, "local retention", func() error { panic("out of luck") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, b := leading(t)
			b.append(100)
			w.away(true)
			if err := b.upload(); !errors.Is(err, errAway) {
				t.Fatalf("upload: %v", err)
			}
			if s := b.log.Status(w.now()); !errors.Is(s.LastError, errAway) {
				t.Fatalf("while it leads: %+v", s)
			}
			end(w, b)
			if s := b.log.Status(w.now()); s.Leading || s.LastError != nil || s.Reason != reasonNotLeading {
				t.Errorf("leading %v, reason %q, %v", s.Leading, s.Reason, s.LastError)
			}
			b.log.Close()
			if s := b.archive.Status(); len(s) > 0 {
				t.Errorf("closed: %+v", s)
			}
		})
	}
}

// TestFailureIsTriedAgainThoughNothingIsPending: else an outage that a new leader
// meets on its first look would be told until somebody produces.
func TestFailureIsTriedAgainThoughNothingIsPending(t *testing.T) {
	for name, change := range map[string]func(*Policy){
		"all is archived": func(*Policy) {},
		"copies disabled": func(p *Policy) { p.CopyDisabled = true },
	} {
		t.Run(name, func(t *testing.T) {
			w, b := leading(t)
			b.append(100)
			if err := b.log.Local().Roll(w.now()); err != nil {
				t.Fatal(err)
			}
			b.mustUpload()
			b.crash()
			w.away(true)
			o := w.defaults()
			change(&o.policy)
			b = w.start(b.disk.clone(), o)
			b.lead(2)
			if _, err := b.log.Step(t.Context(), w.now()); !errors.Is(err, errAway) {
				t.Fatalf("step: %v", err)
			}
			if b.log.wants(w.now()) {
				t.Error("no backoff")
			}
			w.away(false)
			w.advance(time.Minute)
			if !b.log.wants(w.now()) {
				t.Fatalf("not tried again; status: %+v", b.log.Status(w.now()))
			}
			b.mustSteps(1)
			if s := b.log.Status(w.now()); s.LastError != nil || b.log.wants(w.now()) {
				t.Errorf("wants %v, status: %+v", b.log.wants(w.now()), s)
			}
		})
	}
}
