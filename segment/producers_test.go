package segment

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"firn/segment/batch"
	"firn/segment/vfs"
)

// produced is a batch of an idempotent producer.
func produced(id int64, epoch int16, seq int32, n int) []byte {
	return makeBatch(batch.Spec{Producer: &batch.Producer{ID: id, Epoch: epoch, Sequence: seq}}, n, 10, testNow)
}

func TestRepeatedBatchIsAnsweredWithItsFirstOffsets(t *testing.T) {
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
	var want []Appended
	for i := range 7 {
		want = append(want, mustAppend(t, l, produced(5, 1, int32(2*i), 2)))
		mustAppend(t, l, records(1, 1, testNow)) // others come between
	}
	end := l.Offsets().End
	for i := range 7 {
		a, err := l.Append(produced(5, 1, int32(2*i), 2), AppendOptions{Now: testNow})
		if i < 2 {
			// Beyond the five that are remembered: appended, but where is forgotten.
			if !errors.Is(err, ErrDuplicateSequence) {
				t.Errorf("batch %d: %v", i, err)
			}
			continue
		}
		if err != nil || !a.Duplicate || a.First != want[i].First || a.Last != want[i].Last {
			t.Errorf("batch %d again: %+v, %v; want %+v", i, a, err, want[i])
		}
	}
	if got := l.Offsets().End; got != end {
		t.Errorf("repetitions moved the end from %d to %d", end, got)
	}
}

func TestSequencesAndEpochs(t *testing.T) {
	type step struct {
		epoch int16
		seq   int32
		n     int
		want  error
	}
	for name, steps := range map[string][]step{
		"gap":                    {{1, 0, 2, nil}, {1, 3, 1, ErrOutOfOrderSequence}, {1, 2, 1, nil}},
		"overlap":                {{1, 0, 2, nil}, {1, 1, 2, ErrOutOfOrderSequence}},
		"unknown begins anyhow":  {{1, 77, 2, nil}, {1, 79, 1, nil}},
		"old epoch":              {{3, 0, 1, nil}, {2, 1, 1, ErrProducerFenced}},
		"new epoch begins at 0":  {{1, 0, 2, nil}, {2, 5, 1, ErrOutOfOrderSequence}, {2, 0, 1, nil}, {2, 1, 1, nil}},
		"same numbers new epoch": {{1, 0, 2, nil}, {2, 0, 2, nil}},
		"wraps":                  {{1, math.MaxInt32 - 1, 2, nil}, {1, 0, 1, nil}, {1, 1, 1, nil}},
		"wraps inside":           {{1, math.MaxInt32, 3, nil}, {1, 2, 1, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
			for i, s := range steps {
				before := l.Offsets().End
				a, err := l.Append(produced(9, s.epoch, s.seq, s.n), AppendOptions{Now: testNow})
				if !errors.Is(err, s.want) || (s.want == nil && err != nil) {
					t.Fatalf("step %d: %v, want %v", i, err, s.want)
				}
				if s.want == nil && (a.Duplicate || a.First != before) {
					t.Fatalf("step %d: %+v", i, a)
				}
				if s.want != nil && l.Offsets().End != before {
					t.Fatalf("step %d: refused, but the log grew", i)
				}
			}
		})
	}
}

func TestProducersSurviveRestart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		fsys := vfs.NewMem()
		d := openDir(t, testConfig(t, fsys))
		l := openLog(t, d, Options{SegmentBytes: 500})
		var last Appended
		for i := range 20 {
			last = mustAppend(t, l, produced(5, 1, int32(i), 1))
		}
		if clean {
			if err := d.Close(CleanMark{}); err != nil {
				t.Fatal(err)
			}
		}
		l = openLog(t, openDir(t, testConfig(t, fsys.CrashClone(vfs.CrashOptions{Keep: 100}))), Options{})
		a, err := l.Append(produced(5, 1, 19, 1), AppendOptions{Now: testNow})
		if err != nil || !a.Duplicate || a.First != last.First {
			t.Errorf("clean=%v: last batch again: %+v, %v; want %+v", clean, a, err, last)
		}
		if _, err := l.Append(produced(5, 1, 25, 1), AppendOptions{Now: testNow}); !errors.Is(err, ErrOutOfOrderSequence) {
			t.Errorf("clean=%v: gap: %v", clean, err)
		}
		mustAppend(t, l, produced(5, 1, 20, 1))
	}
}

func TestTruncationTakesProducersBack(t *testing.T) {
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{SegmentBytes: 500})
	for i := range 20 {
		mustAppend(t, l, produced(5, 1, int32(i), 1))
	}
	if err := l.TruncateTo(7); err != nil {
		t.Fatal(err)
	}
	if a := mustAppend(t, l, produced(5, 1, 7, 1)); a.Duplicate || a.First != 7 {
		t.Fatalf("%+v", a)
	}
}

func TestSilentProducersAreForgotten(t *testing.T) {
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{ProducerExpirationMs: 1000})
	mustAppend(t, l, produced(5, 1, 0, 1))
	l.expireProducers(testNow + 999)
	if n := len(l.Producers()); n != 1 {
		t.Fatalf("%d producers before the time", n)
	}
	l.expireProducers(testNow + 1000)
	if n := len(l.Producers()); n != 0 {
		t.Fatalf("%d producers after the time", n)
	}
	mustAppend(t, l, produced(5, 1, 9, 1))
}

// coordinate appends as the transaction coordinator does.
func coordinate(t *testing.T, l *Log, b []byte) (Appended, error) {
	t.Helper()
	return l.Append(b, AppendOptions{Now: testNow, Origin: OriginCoordinator})
}

func transactional(id int64, epoch int16, seq int32, n int) []byte {
	return makeBatch(batch.Spec{Producer: &batch.Producer{ID: id, Epoch: epoch, Sequence: seq}, Transactional: true}, n, 10, testNow)
}

func TestTransactionsBoundTheStableOffset(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	l := openLog(t, d, Options{SegmentBytes: 600})
	must := func(b []byte) {
		t.Helper()
		if _, err := coordinate(t, l, b); err != nil {
			t.Fatal(err)
		}
		l.SetHighWatermark(l.Offsets().End)
	}
	stable := func(want int64) {
		t.Helper()
		if o := l.Offsets(); o.Stable != want {
			t.Fatalf("stable %d, want %d (%+v)", o.Stable, want, o)
		}
	}
	must(records(2, 10, testNow))   // 0-1
	must(transactional(1, 0, 0, 3)) // 2-4
	stable(2)
	must(transactional(2, 0, 0, 1))                                                 // 5
	must(records(1, 10, testNow))                                                   // 6
	must(batch.Marker{Type: batch.Abort, CoordinatorEpoch: 4}.Batch(1, 0, testNow)) // 7
	stable(5)
	if _, err := coordinate(t, l, batch.Marker{Type: batch.Abort, CoordinatorEpoch: 3}.Batch(2, 0, testNow)); !errors.Is(err, nil) {
		t.Fatal(err) // another producer's coordinator epoch is its own
	}
	l.SetHighWatermark(l.Offsets().End) // 8
	stable(9)
	if _, err := coordinate(t, l, batch.Marker{Type: batch.Commit, CoordinatorEpoch: 3}.Batch(1, 0, testNow)); !errors.Is(err, ErrCoordinatorFenced) {
		t.Fatalf("marker of an old coordinator: %v", err)
	}
	must(transactional(3, 0, 0, 1)) // 9
	// A decided transaction is unstable until its marker is below the high watermark.
	if _, err := coordinate(t, l, batch.Marker{Type: batch.Commit}.Batch(3, 0, testNow)); err != nil { // 10
		t.Fatal(err)
	}
	stable(9)
	l.SetHighWatermark(11)
	stable(11)

	aborted := func(l *Log, from int64) []AbortedTxn {
		t.Helper()
		r, err := l.Read(ReadRequest{Offset: from, MaxBytes: 1 << 20, Until: UntilStable})
		if err != nil {
			t.Fatal(err)
		}
		r.Records.Release()
		return r.Aborted
	}
	check := func(l *Log) {
		t.Helper()
		if got := aborted(l, 0); len(got) < 1 || got[0] != (AbortedTxn{1, 2}) {
			t.Fatalf("aborted from 0: %v", got)
		}
		if got := aborted(l, 8); len(got) != 1 || got[0] != (AbortedTxn{2, 5}) {
			t.Fatalf("aborted from 8: %v", got)
		}
		if got := aborted(l, 9); len(got) != 0 {
			t.Fatalf("aborted from 9: %v", got)
		}
	}
	check(l)
	crashed := openLog(t, openDir(t, testConfig(t, fsys.CrashClone(vfs.CrashOptions{Keep: 100}))), Options{})
	crashed.SetHighWatermark(11)
	check(crashed)
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	again := openLog(t, openDir(t, testConfig(t, fsys)), Options{})
	check(again)
	// And without the index files.
	lost := fsys.CrashClone(vfs.CrashOptions{Keep: 100})
	for _, s := range again.st.load().sealed {
		if s.hasTxns.Load() {
			setFile(t, lost, s.path(txnSuffix), []byte("damaged"))
		}
	}
	check(openLog(t, openDir(t, testConfig(t, lost)), Options{}))
}

func TestClientsMayNotWriteTransactionsOrMarkers(t *testing.T) {
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
	if _, err := l.Append(transactional(1, 0, 0, 1), AppendOptions{Now: testNow}); !errors.Is(err, ErrTransactionDenied) {
		t.Errorf("transactional batch: %v", err)
	}
	if _, err := l.Append(batch.Marker{Type: batch.Abort}.Batch(1, 0, testNow), AppendOptions{Now: testNow}); !errors.Is(err, ErrInvalidRecord) {
		t.Errorf("control batch: %v", err)
	}
	wantOffsets(t, l, 0, 0)
}

// TestNumbersUsedAgainAfterAnAbortAreNoDuplicates (hazard E2): new records must
// not be answered with the offsets of aborted ones.
func TestNumbersUsedAgainAfterAnAbortAreNoDuplicates(t *testing.T) {
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
	for _, b := range [][]byte{transactional(1, 0, 0, 2), batch.Marker{Type: batch.Abort}.Batch(1, 0, testNow)} {
		if _, err := coordinate(t, l, b); err != nil {
			t.Fatal(err)
		}
	}
	a, err := l.Append(produced(1, 0, 0, 2), AppendOptions{Now: testNow})
	if a.Duplicate || errors.Is(err, ErrDuplicateSequence) {
		t.Fatalf("%+v, %v", a, err)
	}
	mustAppend(t, l, produced(1, 0, 2, 2))
}

func FuzzSnapshot(f *testing.F) {
	var p producers
	p.reset()
	p.begin()
	if err := p.note(produced(7, 2, 5, 3), 10, 12, OriginClient, true); err != nil {
		f.Fatal(err)
	}
	p.commit()
	f.Add(p.appendSnapshot(nil))
	f.Add([]byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p producers
		if p.loadSnapshot(b) != nil {
			return
		}
		var again producers
		if err := again.loadSnapshot(p.appendSnapshot(nil)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p.appendSnapshot(nil), again.appendSnapshot(nil)) {
			t.Fatal("a snapshot changes when it is read and written")
		}
	})
}

// TestSnapshotBytes holds the format against bytes worked out by hand from
// Kafka's schema.
func TestSnapshotBytes(t *testing.T) {
	var p producers
	p.reset()
	p.begin()
	if err := p.note(produced(7, 2, 5, 3), 10, 12, OriginClient, true); err != nil {
		t.Fatal(err)
	}
	p.commit()
	got := p.appendSnapshot(nil)
	want := []byte{
		0, 0, 0, 1, // one entry
		0, 0, 0, 0, 0, 0, 0, 7, // producer id
		0, 2, // epoch
		0, 0, 0, 7, // last sequence
		0, 0, 0, 0, 0, 0, 0, 12, // last offset
		0, 0, 0, 2, // delta
		0, 0, 1, 0x8b, 0xcf, 0xe5, 0x68, 2, // timestamp
		0xff, 0xff, 0xff, 0xff, // coordinator epoch
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // no transaction
	}
	if len(got) != 6+len(want) || got[1] != 1 || !bytes.Equal(got[6:], want) {
		t.Fatalf("% x\nwant … % x", got, want)
	}
}
