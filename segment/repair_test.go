package segment

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"firn/segment/batch"
	"firn/segment/vfs"
)

// patient is a log of several sealed segments, all of it flushed, with a producer
// that has written the latest batch, and what lies on its disk.
type patient struct {
	t        *testing.T
	fsys     *vfs.Mem
	segments []SegmentInfo
	end      int64
	latest   []byte // as it was produced
}

var patientOptions = Options{SegmentBytes: 1000, Archived: true, FileDeleteDelayMs: 1, IndexIntervalBytes: 200}

func newPatient(t *testing.T) *patient {
	p := &patient{t: t, fsys: vfs.NewMem()}
	d := openDir(t, quiet(p.fsys))
	l := openLog(t, d, patientOptions)
	if err := l.Lead(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		p.latest = makeBatch(batch.Spec{Producer: &batch.Producer{ID: 9, Epoch: 1, Sequence: int32(3 * i)}}, 3, 50, testNow+int64(i))
		if _, err := l.Append(bytes.Clone(p.latest), AppendOptions{Epoch: 3, Now: testNow}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.Flush(), d.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.segments, err = l.Segments(); err != nil {
		t.Fatal(err)
	}
	if len(p.segments) < 6 {
		t.Fatalf("only %d segments", len(p.segments))
	}
	p.end = l.Offsets().End
	p.fsys = p.fsys.CrashClone(vfs.CrashOptions{Keep: 100})
	return p
}

func (p *patient) file(i int) string {
	return testConfig(p.t, p.fsys).Path + "/topic-0/" + baseName(p.segments[i].Base) + logSuffix
}

// flip damages the second batch of segment i, and returns the offset it begins at.
func (p *patient) flip(i int) int64 {
	b := fileBytes(p.t, p.fsys, p.file(i))
	first, rest, err := batch.Next(b)
	if err != nil {
		p.t.Fatal(err)
	}
	rest[len(rest)/4] ^= 1
	setFile(p.t, p.fsys, p.file(i), b)
	return batch.Batch(first).NextOffset()
}

// quarantined opens the log and has somebody meet the damage.
func (p *patient) quarantined() (*Dir, *Log) {
	p.t.Helper()
	d := openDir(p.t, quiet(p.fsys))
	l := openLog(p.t, d, patientOptions)
	l.mu.Lock()
	_ = l.failLocked(ErrQuarantined, errors.New("met by a reader"))
	l.mu.Unlock()
	return d, l
}

// works checks that l is in service, from local to end, after a clean stop and a
// start too, and that it knows its epochs and producers.
func (p *patient) works(d *Dir, l *Log, local, end int64) {
	p.t.Helper()
	check := func(l *Log) {
		p.t.Helper()
		if err := l.Err(); err != nil {
			p.t.Fatal(err)
		}
		if o := l.Offsets(); o.LocalStart != local || o.End != end || o.Counted != end || o.HighWatermark < local {
			p.t.Fatalf("want %d to %d, got %+v", local, end, o)
		}
		if readAll(p.t, l, local); l.LatestEpoch() != 3 {
			p.t.Fatalf("epochs %v", l.Epochs())
		}
	}
	check(l)
	// A crash: nothing was missed, and what was to go doesn't come back.
	c := p.fsys.CrashClone(vfs.CrashOptions{Keep: 0, Rand: rand.New(rand.NewPCG(1, 2))})
	check(openLog(p.t, openDir(p.t, quiet(c)), patientOptions))
	if end == p.end {
		a, err := l.Append(bytes.Clone(p.latest), AppendOptions{Epoch: 3, Now: testNow})
		if err != nil || !a.Duplicate || a.Last != end-1 {
			p.t.Fatalf("a repetition of the latest batch: %+v, %v", a, err)
		}
	}
	if a, err := l.Append(records(2, 50, testNow), AppendOptions{Epoch: 3, Now: testNow}); err != nil || a.First != end {
		p.t.Fatalf("append: %+v, %v", a, err)
	}
	if err := l.Flush(); err != nil {
		p.t.Fatal(err)
	}
	sealed, err := l.Sealed(0)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, s := range sealed {
		if !s.Synced {
			p.t.Errorf("segment %d will never be synced, nor go up", s.Base)
		}
	}
	if err := d.Close(CleanMark{}); err != nil {
		p.t.Fatal(err)
	}
	again := openLog(p.t, openDir(p.t, quiet(p.fsys)), patientOptions)
	if o := again.Offsets(); o.LocalStart != local || o.End != end+2 {
		p.t.Fatalf("after a start: %+v", o)
	}
	readAll(p.t, again, local)
}

func (p *patient) remove(i int) {
	if err := p.fsys.Remove(p.file(i)); err != nil {
		p.t.Fatal(err)
	}
}

// TestRepairKeepsWhatIsNotArchived: damage that the archive covers goes, with all
// that is archived and nothing else.
func TestRepairKeepsWhatIsNotArchived(t *testing.T) {
	for name, damage := range map[string]func(*patient){
		"flipped bit":    func(p *patient) { p.flip(1) },
		"file gone":      func(p *patient) { p.remove(1) },
		"first gone":     func(p *patient) { p.remove(0) },
		"file cut":       func(p *patient) { setFile(t, p.fsys, p.file(2), fileBytes(t, p.fsys, p.file(2))[:100]) },
		"index files":    func(p *patient) { setFile(t, p.fsys, p.file(4)[:len(p.file(4))-4]+offsetSuffix, []byte("nonsense")) },
		"nothing at all": func(*patient) {},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			damage(p)
			d, l := p.quarantined()
			archived := p.segments[3].Base
			if err := l.Repair(Repair{Archived: archived, LogStart: 0}); err != nil {
				t.Fatal(err)
			}
			p.works(d, l, archived, p.end)
		})
	}
}

func TestRepairOfALogThatIsArchivedWhole(t *testing.T) {
	p := newPatient(t)
	p.flip(len(p.segments) - 1)
	d, l := p.quarantined()
	chain := []EpochStart{{Epoch: 3, Start: 0}}
	if err := l.Repair(Repair{Archived: p.end, Chain: chain}); err != nil {
		t.Fatal(err)
	}
	if o := l.Offsets(); o.LocalStart != p.end || o.End != p.end || l.LatestEpoch() != 3 {
		t.Fatalf("%+v, epochs %v", o, l.Epochs())
	}
	if a, err := l.Append(records(2, 50, testNow), AppendOptions{Epoch: 3, Now: testNow}); err != nil || a.First != p.end {
		t.Fatalf("append: %+v, %v", a, err)
	}
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
}

// TestRepairRefusesToLoseAnything that isn't archived, changes nothing, and tells
// what is damaged; then somebody accepts the loss.
func TestRepairRefusesToLoseAnything(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*patient) int64 // returns the first offset that is lost
		file   int
	}{
		"flipped bit": {func(p *patient) int64 { return p.flip(4) }, 4},
		"file gone":   {func(p *patient) int64 { p.remove(4); return p.segments[4].Base }, 3},
		"in the last": {func(p *patient) int64 {
			last := len(p.segments) - 1
			b := fileBytes(t, p.fsys, p.file(last))
			b[100] ^= 1
			setFile(t, p.fsys, p.file(last), b)
			return p.segments[last].Base
		}, -1},
		"last gone": {func(p *patient) int64 { p.remove(len(p.segments) - 1); return p.segments[len(p.segments)-1].Base }, -2},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			lost := c.damage(p)
			d, l := p.quarantined()
			file := p.file((c.file + len(p.segments)) % len(p.segments))
			before := fileBytes(t, p.fsys, file)
			archived := p.segments[3].Base
			for range 2 {
				err := l.Repair(Repair{Archived: archived})
				found := (*Damage)(nil)
				if !errors.Is(err, ErrQuarantined) || !errors.As(err, &found) || !errors.As(l.Err(), &found) {
					t.Fatalf("%v, log %v", err, l.Err())
				}
				if found.From != lost || found.Below <= lost || found.File != file {
					t.Errorf("lost from %d: %v", lost, found)
				}
				if !bytes.Equal(before, fileBytes(t, p.fsys, file)) {
					t.Fatal("the file was changed")
				}
			}
			if err := l.Repair(Repair{Archived: archived, Loss: true}); err != nil {
				t.Fatal(err)
			}
			p.works(d, l, archived, lost)
		})
	}
}

// TestRepairLooksBehindTheDamage: batches past what is archived that the damage
// hides are not given up, even if they had not been flushed.
func TestRepairLooksBehindTheDamage(t *testing.T) {
	for _, more := range []int{0, 4} {
		fsys := vfs.NewMem()
		d := openDir(t, quiet(fsys))
		l := openLog(t, d, Options{Archived: true})
		for range 6 {
			mustAppend(t, l, records(3, 50, testNow))
		}
		if err := errors.Join(l.Flush(), d.Checkpoint()); err != nil {
			t.Fatal(err)
		}
		for range more {
			mustAppend(t, l, records(3, 50, testNow))
		}
		c := fsys.CrashClone(vfs.CrashOptions{Keep: 100})
		b := fileBytes(t, c, firstLog)
		copy(b[300:], make([]byte, 200)) // lengths too
		setFile(t, c, firstLog, b)
		l = openLog(t, openDir(t, quiet(c)), Options{Archived: true})
		if !errors.Is(l.Err(), ErrQuarantined) {
			t.Fatal(l.Err())
		}
		// DeleteRecords has brought the log start, and with it the archived end, to 18.
		err := l.Repair(Repair{Archived: 18, LogStart: 18})
		if more > 0 {
			if !errors.Is(err, ErrQuarantined) {
				t.Fatalf("%d records that were acknowledged are gone: %v", 3*more, err)
			}
			continue
		}
		if o := l.Offsets(); err != nil || o.LocalStart != 18 || o.End != 18 {
			t.Fatalf("%+v, %v", o, err)
		}
	}
}

// TestCrashDuringRepair at any moment leaves a log that has, at once or after
// another repair, all that wasn't archived.
func TestCrashDuringRepair(t *testing.T) {
	for _, loss := range []bool{false, true} {
		p := newPatient(t)
		end := p.end
		p.flip(1)
		if loss {
			end = p.flip(5)
		}
		p.fsys = p.fsys.CrashClone(vfs.CrashOptions{Keep: 100}) // the damage is there to stay
		_, l := p.quarantined()
		archived := p.segments[3].Base
		n, rng := 0, rand.New(rand.NewPCG(3, 4))
		p.fsys.OnOp(func(op vfs.Op) {
			n++
			for _, keep := range []int{0, 50, 100} {
				c := p.fsys.CrashClone(vfs.CrashOptions{Keep: keep, Rand: rng})
				d, err := OpenDir(quiet(c))
				if err != nil {
					t.Fatal(err)
				}
				l := openLog(t, d, patientOptions)
				l.mu.Lock()
				_ = l.failLocked(ErrQuarantined, errors.New("met again"))
				l.mu.Unlock()
				if err := l.Repair(Repair{Archived: archived, Loss: loss}); err != nil {
					t.Fatalf("crash after %v: %v", op, err)
				}
				if o := l.Offsets(); o.LocalStart != archived || o.End != end {
					t.Fatalf("crash after %v: %+v, want %d to %d", op, o, archived, end)
				}
				readAll(t, l, archived)
				d.Close(CleanMark{})
			}
		})
		if err := l.Repair(Repair{Archived: archived, Loss: loss}); err != nil {
			t.Fatal(err)
		}
		p.fsys.OnOp(nil)
		if n < 10 {
			t.Errorf("only %d operations: the test does not test", n)
		}
	}
}

func TestRepairLeavesAWorkingLogAlone(t *testing.T) {
	p := newPatient(t)
	l := openLog(t, openDir(t, quiet(p.fsys)), patientOptions)
	if err := l.Repair(Repair{Archived: p.end}); err != nil || l.Offsets().LocalStart != 0 {
		t.Fatalf("%+v, %v", l.Offsets(), err)
	}
}

// TestWhatAReaderOfASealedSegmentFinds ends the log with what it has found.
func TestWhatAReaderOfASealedSegmentFinds(t *testing.T) {
	p := newPatient(t)
	l := openLog(t, openDir(t, quiet(p.fsys)), patientOptions)
	f, err := l.OpenSealed(p.segments[2].Base)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := (*Damage)(nil)
	if err := l.Quarantine(f, 77, errors.New("a bit")); !errors.Is(err, ErrQuarantined) || !errors.As(l.Err(), &found) {
		t.Fatalf("%v, log %v", err, l.Err())
	}
	if found.Position != 77 || found.From != p.segments[2].Base || found.Below != p.segments[2].End || found.File != p.file(2) {
		t.Errorf("%+v", found)
	}
}
