package tiering

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"firn/segment"
	"firn/segment/batch"
)

// flip damages the batch of one record with the given offset, in the segment
// that begins at base, and returns the file's name.
func (d *disk) flip(t *testing.T, base, offset int64) string {
	t.Helper()
	name := fmt.Sprintf("/data/%s-%d/%020d.log", testPart.Topic, testPart.Num, base)
	f, err := d.fs.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	for rest := b; len(rest) > 0; {
		var bt batch.Batch
		if bt, rest, err = batch.Next(rest); err != nil {
			t.Fatal(err)
		}
		if bt.BaseOffset() == offset {
			bt[len(bt)-3] ^= 1
			if _, err := f.WriteAt(b, 0); err != nil {
				t.Fatal(err)
			}
			return name
		}
	}
	t.Fatalf("no batch at %d in %s", offset, name)
	return ""
}

// sealed is the sealed segment that holds offset.
func (b *broker) sealed(offset int64) segment.SealedSegment {
	b.w.t.Helper()
	list, err := b.log.Local().Sealed(offset)
	if err != nil || len(list) == 0 {
		b.w.t.Fatal("no sealed segment", offset, err)
	}
	return list[0]
}

// TestDamageThatTheUploadMeets quarantines the log at once (S5): it is neither
// archived nor tried again. Then somebody accepts the loss.
func TestDamageThatTheUploadMeets(t *testing.T) {
	w, b := leading(t)
	b.append(150)
	b.settle()
	s := b.sealed(60)
	bad := s.Base + 2
	name := b.disk.flip(t, s.Base, bad)
	err := b.upload()
	found := (*segment.Damage)(nil)
	if !errors.Is(err, segment.ErrQuarantined) || !errors.As(b.log.Err(), &found) || found.File != name || found.From != s.Base {
		t.Fatalf("upload: %v, log: %v", err, b.log.Err())
	}
	if st := b.log.Status(w.now()); st.LastError == nil || !strings.Contains(st.Reason, name) {
		t.Errorf("status: %q, %v", st.Reason, st.LastError)
	}
	b.log.StopLeading()
	err = b.log.Repair(t.Context(), false)
	if !errors.Is(err, segment.ErrQuarantined) || !errors.As(err, &found) || found.From != bad || found.Below != bad+1 {
		t.Fatalf("repaired what the archive doesn't have: %v", err)
	}
	if err := b.log.Repair(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if o := b.log.Offsets(); o.End != bad {
		t.Fatalf("%+v, want what is below %d", o, bad)
	}
	w.model = w.model[:bad]
	b.lead(2)
	b.append(100)
	b.mustUpload()
	b.verify()
	b.sweepClean()
	w.checkArchived(int(bad) + 50)
}

// TestALossForgetsWhatWasUploadedOfIt: the same epoch doesn't publish it later.
func TestALossForgetsWhatWasUploadedOfIt(t *testing.T) {
	w, b := leading(t)
	b.append(150)
	b.settle()
	b.mustSteps(3)
	if n, _ := b.log.lead.Load().waiting(); n < 2 {
		t.Fatalf("%d uploaded", n)
	}
	s := b.sealed(b.sealed(0).End)
	b.disk.flip(t, s.Base, s.Base)
	b.log.StopLeading()
	if err := b.log.Local().Quarantine(open(t, b, s.Base), 0, errors.New("met")); err == nil {
		t.Fatal("no quarantine")
	}
	if err := b.log.Repair(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	w.model = w.model[:s.Base]
	w.advance(time.Hour) // what comes now is different
	b.lead(1)
	b.append(100)
	b.mustUpload()
	b.verify()
	b.sweepClean()
}

func open(t *testing.T, b *broker, base int64) *segment.SealedFile {
	t.Helper()
	f, err := b.log.Local().OpenSealed(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestRepairAtRunTime: what a reader finds damaged is dropped if it is
// archived, and nothing else is.
func TestRepairAtRunTime(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	b.mustUpload()
	archived := b.log.Offsets().ArchivedEnd
	s := b.sealed(0)
	b.append(100)
	b.disk.flip(t, s.Base, s.Base)
	if err := b.log.Local().Quarantine(open(t, b, s.Base), 0, errors.New("met")); err == nil {
		t.Fatal("no quarantine")
	}
	b.log.StopLeading()
	if err := b.log.Repair(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if o := b.log.Offsets(); o.LocalStart != archived || o.End != 200 || archived < 50 {
		t.Fatalf("%+v, archived to %d", o, archived)
	}
	b.lead(1)
	b.verify()
	b.append(50)
	b.mustUpload()
	b.verify()
	w.checkArchived(200)
	if err := b.log.Repair(t.Context(), true); err != nil || b.log.Offsets().End != 250 {
		t.Errorf("a log that works was changed: %v, %+v", err, b.log.Offsets())
	}
}

// TestRecoveryThatMeetsArchivedDamage: intact segments past the archived end stay,
// though the damage lies before them and ends recovery.
func TestRecoveryThatMeetsArchivedDamage(t *testing.T) {
	for _, away := range []bool{false, true} {
		w, b := leading(t)
		b.append(50)
		if err := errors.Join(b.log.Local().Flush(), b.dir.Checkpoint()); err != nil {
			t.Fatal(err)
		}
		holds := b.log.Local().ActiveInfo().Base
		b.append(30)
		b.mustUpload()
		archived := b.log.Offsets().ArchivedEnd
		b.append(100)
		if archived <= 50 || holds >= 49 {
			t.Fatalf("archived to %d, recovery point in the segment at %d", archived, holds)
		}
		b.crash()
		b.disk.flip(t, holds, 49)
		w.outage.Store(away)
		b = w.start(b.disk, w.defaults())
		if away {
			w.pointers.Elect(testPart, 2)
			if err := b.log.Lead(t.Context(), 2); !errors.Is(err, ErrUnavailable) || !errors.Is(b.log.Err(), segment.ErrQuarantined) {
				t.Fatalf("without the store: %v, log %v", err, b.log.Err())
			}
			w.outage.Store(false)
		} else if o := b.log.Offsets(); b.log.Err() != nil || o.LocalStart != archived || o.End != 180 {
			t.Fatalf("%+v, %v", o, b.log.Err())
		}
		b.lead(2)
		if o := b.log.Offsets(); o.LocalStart != archived || o.End != 180 {
			t.Fatalf("%+v, archived to %d", o, archived)
		}
		b.verify()
		b.append(50)
		b.mustUpload()
		b.verify()
	}
}
