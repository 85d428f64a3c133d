package tiering

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"firn/segment"
	"firn/segment/batch"
	"firn/segment/vfs"
	"firn/tiering/objstore"
)

func TestSealedSegmentsGoUpAndLeaveTheDisk(t *testing.T) {
	w, b := leading(t)
	b.append(200)
	b.mustUpload()
	o := b.log.Offsets()
	if o.ArchivedEnd < 150 {
		t.Fatalf("archived up to %d of 200", o.ArchivedEnd)
	}
	w.checkArchived(int(o.ArchivedEnd))
	if o.LocalStart != 0 {
		t.Fatalf("local start %d before any eviction", o.LocalStart)
	}
	b.mustEvict()
	if o = b.log.Offsets(); o.LocalStart != o.ArchivedEnd || o.LogStart != 0 {
		t.Fatalf("after eviction: %+v", o)
	}
	if got := w.orphans(); len(got) > 0 {
		t.Fatalf("orphans: %v", got)
	}
	if s := b.log.Status(w.now()); s.Reason != b.log.policy.Load().waits(s.PendingBytes) || s.LastError != nil || s.Segments == 0 || s.Bytes == 0 {
		t.Fatalf("status: %+v", s)
	}
}

func TestOneManifestCarriesManySegments(t *testing.T) {
	_, b := leading(t)
	b.append(400)
	puts := map[Kind]int{}
	b.onStore(func(op objstore.Op) objstore.Fault {
		if k, ok := ParseKey(op.Key); ok && op.Kind == objstore.OpPut {
			puts[k.Kind]++
		}
		return objstore.Fault{}
	})
	b.mustUpload()
	if puts[KindLog] < 8 || puts[KindLog] != puts[KindIndex] || puts[KindManifest] > 1+puts[KindLog]/publishSegments {
		t.Fatalf("puts: %v", puts)
	}
}

// TestOnlyWhatIsCommittedGoesUp is T1.
func TestOnlyWhatIsCommittedGoesUp(t *testing.T) {
	w, b := leading(t)
	for range 100 {
		b.appendOnly(1)
	}
	b.mustUpload()
	if o := b.log.Offsets(); o.ArchivedEnd != -1 {
		t.Fatalf("uncommitted data went up: %+v", o)
	}
	if s := b.log.Status(w.now()); s.Reason != reasonCommit {
		t.Fatalf("reason %q", s.Reason)
	}
	b.log.SetHighWatermark(50)
	b.mustUpload()
	if o := b.log.Offsets(); o.ArchivedEnd <= 0 || o.ArchivedEnd > 50 {
		t.Fatalf("with the high watermark at 50: %+v", o)
	}
}

// TestAnOpenTransactionHoldsSegmentsBack is T1's other half.
func TestAnOpenTransactionHoldsSegmentsBack(t *testing.T) {
	w := newWorld(t)
	b := w.start(newDisk(), w.defaults())
	txn := batch.NewBuilder(batch.Spec{Transactional: true, Producer: &batch.Producer{ID: 5}})
	txn.Add(1, nil, []byte("open"))
	bt, err := txn.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.log.AppendReplica(bt); err != nil {
		t.Fatal(err)
	}
	w.model = append(w.model, rec{1, "open"})
	b.lead(1)
	b.append(100)
	b.mustUpload()
	if s := b.log.Status(w.now()); s.ArchivedEnd != -1 || s.Reason != reasonTxn {
		t.Fatalf("an open transaction went up: archived end %d, reason %q", s.ArchivedEnd, s.Reason)
	}
	marker := batch.Marker{Type: batch.Abort}.Batch(5, 0, 2)
	if _, err := b.log.Append(marker, segment.AppendOptions{Epoch: 1, Origin: segment.OriginCoordinator, Now: w.now().UnixMilli()}); err != nil {
		t.Fatal(err)
	}
	b.log.SetHighWatermark(b.log.Offsets().End)
	b.mustUpload()
	if s := b.log.Status(w.now()); s.ArchivedEnd < 50 {
		t.Fatalf("archived end %d after the transaction was decided", s.ArchivedEnd)
	}
}

// TestOnlyWhatIsDurableGoesUp is T1's last part, and S3: after a power loss the
// archive would hold what the log has written anew.
func TestOnlyWhatIsDurableGoesUp(t *testing.T) {
	w := newWorld(t)
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	b := w.start(&disk{fs: vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") {
			<-held
		}
		return nil
	})}, w.defaults())
	t.Cleanup(release)
	b.lead(1)
	for b.log.Local().ActiveInfo().Base == 0 {
		b.append(1)
	}
	for range 2 { // what it would upload first, it would name next
		w.advance(publishAfter)
		b.mustSteps(1)
	}
	if got := w.orphans(); len(got) > 0 || w.pointer().Exists() {
		t.Fatalf("what no disk has durably went up: %v, archived end %d", got, b.log.Offsets().ArchivedEnd)
	}
	if s := b.log.Status(w.now()); s.Reason != reasonUnsynced {
		t.Fatalf("reason %q", s.Reason)
	}
	release()
	b.mustUpload()
	if got, want := b.log.Offsets().ArchivedEnd, b.log.Local().ActiveInfo().Base; got != want {
		t.Fatalf("archived up to %d of %d once it is durable", got, want)
	}
}

func TestActiveSegmentIsSealedForUpload(t *testing.T) {
	w := newWorld(t)
	o := w.defaults()
	o.segmentBytes = 1 << 20
	o.policy.RollAfter, o.policy.RollSmallAfter, o.policy.RollBytes = time.Minute, time.Hour, 4096
	b := w.start(newDisk(), o)
	b.lead(1)
	b.append(10) // below RollBytes
	w.advance(2 * time.Minute)
	b.mustUpload()
	if e := b.log.Offsets().ArchivedEnd; e != -1 {
		t.Fatalf("a small segment went up early, to %d", e)
	}
	b.append(100)
	b.mustUpload()
	if e := b.log.Offsets().ArchivedEnd; e != 110 {
		t.Fatalf("archived end %d, want 110", e)
	}
	b.append(3)
	w.advance(2 * time.Hour)
	b.mustUpload()
	if e := b.log.Offsets().ArchivedEnd; e != 113 {
		t.Fatalf("archived end %d, want 113: in any case after an hour", e)
	}
}

func TestCopyLagDelays(t *testing.T) {
	w := newWorld(t)
	o := w.defaults()
	o.policy.CopyLagMs, o.policy.CopyLagBytes = time.Hour.Milliseconds(), 6000
	b := w.start(newDisk(), o)
	b.lead(1)
	b.append(50)
	w.advance(time.Second)
	b.mustUpload()
	if s := b.log.Status(w.now()); s.ArchivedEnd != -1 || s.Reason != reasonLag {
		t.Fatalf("archived end %d, reason %q", s.ArchivedEnd, s.Reason)
	}
	b.append(100) // more bytes follow
	w.advance(time.Second)
	b.mustUpload()
	s := b.log.Status(w.now())
	if s.ArchivedEnd <= 0 || s.PendingBytes < 6000 {
		t.Fatalf("archived end %d with %d bytes pending", s.ArchivedEnd, s.PendingBytes)
	}
	w.advance(2 * time.Hour)
	b.mustUpload()
	if s = b.log.Status(w.now()); s.PendingBytes > 2048 {
		t.Fatalf("%d bytes pending after the lag's time", s.PendingBytes)
	}
}

func TestMayCopyIsKafkas(t *testing.T) {
	for _, c := range []struct {
		lagMs, lagBytes, localMs, localBytes int64
		age                                  time.Duration
		after                                int64
		want                                 bool
	}{
		{0, -1, 1000, 1000, 0, 0, true},
		{-1, 0, 1000, 1000, 0, 0, true},
		{100, -1, 1000, -1, 99 * time.Millisecond, 0, false},
		{100, -1, 1000, -1, 100 * time.Millisecond, 0, true},
		{100, 50, 1000, 1000, 0, 50, true},
		{100, 50, 1000, 1000, 0, 49, false},
		{-1, -1, 1000, 500, 999 * time.Millisecond, 499, false},
		{-1, -1, 1000, 500, 0, 500, true},
		{-1, -1, -1, -1, time.Hour, 1 << 40, false}, // never, as long as nothing limits the disk
		{100, -1, 1000, -1, -time.Second, 0, true},  // a timestamp in the future
	} {
		p := Policy{CopyLagMs: c.lagMs, CopyLagBytes: c.lagBytes, LocalRetentionMs: c.localMs, LocalRetentionBytes: c.localBytes}
		if got := p.mayCopy(c.age, c.after); got != c.want {
			t.Errorf("%+v: got %t", c, got)
		}
	}
}

func TestArchiveSwitchedOnLaterTakesWhatIsThere(t *testing.T) {
	w := newWorld(t)
	o := w.defaults()
	o.policy.Enabled = false
	b := w.start(newDisk(), o)
	b.lead(1)
	b.append(100)
	if err := b.log.SetLogStart(t.Context(), 40); err != nil {
		t.Fatal(err)
	}
	b.mustEvict() // a log without an archive drops what is below the log start
	b.mustUpload()
	s := b.log.Status(w.now())
	if s.Reason != reasonDisabled || s.ArchivedEnd != -1 || s.LocalStart == 0 || s.LocalStart > 40 {
		t.Fatalf("disabled: %+v", s)
	}
	b.log.SetPolicy(w.defaults().policy)
	b.mustUpload()
	b.verify()
	if s = b.log.Status(w.now()); s.ArchivedEnd < 60 || s.LogStart != 40 {
		t.Fatalf("enabled: %+v", s)
	}
	p := w.defaults().policy
	p.CopyDisabled = true
	b.log.SetPolicy(p)
	end := s.ArchivedEnd
	b.append(100)
	b.mustUpload()
	if s = b.log.Status(w.now()); s.ArchivedEnd != end || s.Reason != reasonNoCopy {
		t.Fatalf("copy disabled: %+v", s)
	}
	b.mustEvict()
	if got := b.log.Offsets().LocalStart; got != s.LocalStart {
		t.Fatalf("the disk keeps everything once nothing goes up (KIP-950): local start %d", got)
	}
	b.log.SetPolicy(w.defaults().policy)
	b.mustUpload()
	b.verify()
}

func TestFailureIsTheReasonAndBacksOff(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	b.settle()
	b.onStore(func(op objstore.Op) objstore.Fault {
		if op.Kind == objstore.OpPut && strings.HasSuffix(op.Key, ".log") {
			return objstore.Fault{Before: errors.New("503 slow down")}
		}
		return objstore.Fault{}
	})
	if !b.log.wants(w.now()) {
		t.Fatal("nothing to do?")
	}
	if _, err := b.log.Step(t.Context(), w.now()); err == nil {
		t.Fatal("no error")
	}
	s := b.log.Status(w.now())
	if !strings.Contains(s.Reason, "503 slow down") || s.LastError == nil || s.PendingBytes == 0 {
		t.Fatalf("status %+v", s)
	}
	if b.log.wants(w.now()) || !b.log.wants(w.now().Add(time.Second)) {
		t.Fatal("no backoff, or one too long")
	}
	if got := w.orphans(); len(got) > 0 {
		t.Fatalf("a failed attempt left %v", got)
	}
	b.store.Set(nil)
	b.mustUpload()
	if s := b.log.Status(w.now()); s.LastError != nil || s.Reason != b.log.policy.Load().waits(s.PendingBytes) {
		t.Fatalf("status %+v", s)
	}
}

func TestDamagedSegmentDoesNotGoUp(t *testing.T) {
	_, b := leading(t)
	b.append(100)
	b.settle()
	sealed, err := b.log.Local().Sealed(0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.log.Local().OpenSealed(sealed[0].Base)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw := make([]byte, f.Info.Size)
	if _, err := f.ReadAt(raw, 0); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, BlockSize)
	good, err := scan(bytesReader(raw), f.Info.Size, buf)
	if err != nil || good.End != f.Info.End || good.Records != f.Records || good.MaxTime != f.Info.MaxTimestamp {
		t.Fatalf("scan of a good segment: %+v, %v", good, err)
	}
	at := 0
	for i, s := range good.Starts {
		if b := batch.Batch(raw[s.Pos:]); b.BaseOffset() != s.Offset || i > 0 && s.Pos < good.Starts[i-1].Pos+startEvery {
			t.Errorf("no batch of %d begins at %d", s.Offset, s.Pos)
		}
	}
	for _, sum := range good.Units {
		if unit := raw[at:min(at+UnitSize, len(raw))]; Checksum(unit) != sum {
			t.Errorf("checksum of the unit at %d is %08x, want %08x", at, sum, Checksum(unit))
		}
		at += UnitSize
	}
	if good.CRC != Checksum(raw) {
		t.Errorf("checksum of the file %08x, want %08x", good.CRC, Checksum(raw))
	}
	start := 0 // of the batch
	for i := range raw {
		if i == start+batch.Batch(raw[start:]).Length() {
			start = i
		}
		bad := append(bytesReader(nil), raw...)
		bad[i] ^= 1
		// Base offset and leader epoch lie outside a batch's checksum.
		if at := i - start; at < 8 || at >= 12 && at < 16 {
			continue
		}
		if _, err := scan(bad, f.Info.Size, buf); err == nil {
			t.Fatalf("byte %d changed and nobody noticed", i)
		}
	}
	for n := range f.Info.Size {
		if _, err := scan(bytesReader(raw[:n]), n, buf); err == nil && !wholeBatches(raw[:n]) {
			t.Fatalf("cut to %d of %d bytes and nobody noticed", n, f.Info.Size)
		}
	}
}

type bytesReader []byte

func (b bytesReader) ReadAt(p []byte, off int64) (int, error) { return copy(p, b[off:]), nil }

func wholeBatches(b []byte) bool {
	n := 0
	for len(b) > 0 {
		_, rest, err := batch.Next(b)
		if err != nil {
			return false
		}
		b, n = rest, n+1
	}
	return n > 0
}
