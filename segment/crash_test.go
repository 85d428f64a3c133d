package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"firn/segment/batch"
	"firn/segment/vfs"
)

// history is what a log must be after a crash: one of the sequences of batches
// that it was or was becoming, no shorter than what was counted.
type history struct {
	mu      sync.Mutex
	now     [][]byte // batches, as stamped
	before  [][]byte // as before the operation under way, if that truncates
	counted int64    // at least that much must be there, even after a power loss
	written int64    // ... and that much after a crash of the process
	starts  [2]int64 // bounds of the log start
}

func clone(batches [][]byte) [][]byte { return slices.Clone(batches) }

// match returns where the log that begins at offset first with the given batches
// ends, if it is a beginning of want.
func match(want, got [][]byte) bool {
	if len(got) == 0 {
		return true
	}
	first := batch.Batch(got[0]).BaseOffset()
	i := slices.IndexFunc(want, func(b []byte) bool { return batch.Batch(b).BaseOffset() == first })
	if i < 0 || len(got) > len(want)-i {
		return false
	}
	for j, b := range got {
		if !bytes.Equal(want[i+j], b) {
			return false
		}
	}
	return true
}

// TestCrashAfterEveryOperation records a life of a log and crashes after every
// call that changes the disk: with nothing, half and all of what was not synced
// kept, the log comes back as S1–S6 promise.
func TestCrashAfterEveryOperation(t *testing.T) {
	for _, flush := range []int64{1, 3, never} {
		t.Run(fmt.Sprintf("flush.messages=%d", flush), func(t *testing.T) {
			opts := Options{SegmentBytes: 1024, FlushMessages: flush, FileDeleteDelayMs: 1, IndexIntervalBytes: 200}
			crashEverywhere(t, opts)
		})
	}
}

func crashEverywhere(t *testing.T, opts Options) {
	fsys := vfs.NewMem()
	h := &history{}
	n := 0
	rng := rand.New(rand.NewPCG(1, 2))
	fsys.OnOp(func(op vfs.Op) {
		h.mu.Lock()
		defer h.mu.Unlock()
		n++
		for _, keep := range []int{0, 50, 100} {
			c := fsys.CrashClone(vfs.CrashOptions{Keep: keep, Rand: rng})
			if err := h.check(t, c, opts, keep); err != nil {
				t.Errorf("crash after operation %d, %v, with %d %% of the unsynced kept: %v", n, op, keep, err)
			}
		}
	})
	live(t, fsys, h, opts)
	fsys.OnOp(nil)
	t.Logf("%d operations", n)
	if n < 200 {
		t.Errorf("only %d operations: the test does not test", n)
	}
}

// quiet is a log's directory that says nothing: thousands are opened.
func quiet(fsys vfs.FS) DirConfig {
	c := testConfig(nil, fsys)
	c.Log = nil
	return c
}

// live is the life that is crashed into.
func live(t *testing.T, fsys *vfs.Mem, h *history, opts Options) {
	t.Helper()
	c := quiet(fsys)
	open := func() (*Dir, *Log) {
		d, err := OpenDir(c)
		if err != nil {
			t.Fatal(err)
		}
		return d, openLog(t, d, opts)
	}
	d, l := open()
	epoch, seq := int32(0), int32(0)
	lead := func() {
		epoch++
		if err := l.Lead(context.Background(), epoch); err != nil {
			t.Fatal(err)
		}
	}
	add := func(n int) {
		t.Helper()
		b := makeBatch(batch.Spec{Producer: &batch.Producer{ID: 9, Epoch: 1, Sequence: seq}}, n, 60, testNow+int64(seq))
		h.mu.Lock()
		stamped := batch.Batch(bytes.Clone(b))
		stamped.SetBaseOffset(l.Offsets().End)
		stamped.SetLeaderEpoch(epoch)
		h.now = append(clone(h.now), stamped)
		h.mu.Unlock()
		a, err := l.Append(b, AppendOptions{Epoch: epoch, Now: testNow})
		if err != nil {
			t.Fatal(err)
		}
		seq += int32(n)
		if o := l.Offsets(); o.Counted < o.End {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		h.mu.Lock()
		h.written = a.Last + 1
		if opts.FlushMessages == 1 {
			h.counted = l.Offsets().Counted
		}
		h.mu.Unlock()
		l.SetHighWatermark(a.Last + 1)
	}
	truncate := func(end int64) {
		t.Helper()
		h.mu.Lock()
		h.before = h.now
		i := slices.IndexFunc(h.now, func(b []byte) bool { return batch.Batch(b).LastOffset() >= end })
		h.now = clone(h.now[:i])
		end = batch.Batch(h.before[i]).BaseOffset()
		h.counted, h.written = min(h.counted, end), min(h.written, end)
		seq = batch.Batch(h.before[i]).BaseSequence()
		h.mu.Unlock()
		if err := l.TruncateTo(end); err != nil {
			t.Fatal(err)
		}
		h.mu.Lock()
		h.before = nil
		h.mu.Unlock()
	}
	setStart := func(o int64) {
		t.Helper()
		h.mu.Lock()
		h.starts[1] = o
		h.mu.Unlock()
		if err := l.SetLogStart(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		h.mu.Lock()
		h.starts[0] = o
		h.mu.Unlock()
	}
	checkpoint := func() {
		t.Helper()
		if err := d.Checkpoint(); err != nil {
			t.Fatal(err)
		}
	}

	lead()
	for range 12 {
		add(2)
	}
	checkpoint()
	lead()
	truncate(l.Offsets().End - 3)
	lead()
	for range 12 {
		add(1)
	}
	setStart(17)
	checkpoint()
	truncate(l.Offsets().End - 9) // over a segment's border
	lead()
	lead()
	for range 8 {
		add(3)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.counted = l.Offsets().End // flushed, whatever the policy
	h.mu.Unlock()
	checkpoint()
	setStart(l.Offsets().End - 4)
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	d, l = open()
	lead()
	for range 6 {
		add(2)
	}
	truncate(l.Offsets().End - 1)
	for range 6 {
		add(2)
	}
	checkpoint()
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
}

// check opens what a crash has left and compares.
func (h *history) check(t *testing.T, fsys *vfs.Mem, opts Options, keep int) (err error) {
	d, err := OpenDir(quiet(fsys))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(CleanMark{})) }()
	l, err := d.Open(testTP, [16]byte{1, 2, 3}, opts)
	if err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	o := l.Offsets()
	floor := h.counted
	if keep == 100 {
		floor = h.written
	}
	if o.End < floor {
		return fmt.Errorf("log ends at %d, %d was promised", o.End, floor)
	}
	if keep == 100 && o.LogStart > h.starts[1] || o.LogStart < h.starts[0] {
		return fmt.Errorf("log start %d, want %v", o.LogStart, h.starts)
	}
	if err := l.Flush(); err != nil { // what was found counts once it is durable
		return err
	}
	got, err := h.content(l)
	if err != nil {
		return err
	}
	if !match(h.now, got) && !(h.before != nil && match(h.before, got)) {
		return fmt.Errorf("log from %d to %d is none of what it was: %d batches", o.LogStart, o.End, len(got))
	}
	if err := h.derived(l, got); err != nil {
		return err
	}
	// And it goes on.
	a, err := l.Append(records(1, 10, testNow), AppendOptions{Epoch: 99, Now: testNow})
	if err != nil || a.First != o.End {
		return fmt.Errorf("append after recovery at %d, %v; want %d", a.First, err, o.End)
	}
	return nil
}

// content reads the batches of l.
func (h *history) content(l *Log) ([][]byte, error) {
	var got [][]byte
	for from := l.Offsets().LocalStart; from < l.Offsets().End; {
		o := l.Offsets()
		// All of the segments, below the log start too.
		s := l.st.load()
		seg := s.find(from)
		size, end := s.size, o.End
		if seg != s.active {
			size, end = seg.size, seg.end
		}
		hd, err := l.dir.handles.pin(seg)
		if err != nil {
			return nil, err
		}
		stop, err := scan(hd.file, 0, size, func(b batch.Batch, _ int64) error {
			if b.BaseOffset() != from {
				return fmt.Errorf("batch at %d, want %d", b.BaseOffset(), from)
			}
			from = b.NextOffset()
			got = append(got, bytes.Clone(b))
			return batch.Verify(b)
		})
		hd.unpin()
		if err != nil || from != end {
			return nil, fmt.Errorf("segment %d ends at %d (byte %d of %d), want %d: %v", seg.base, from, stop, size, end, err)
		}
	}
	bases, err := tryReadAll(l, l.Offsets().LogStart)
	if err == nil && len(got) > 0 && len(bases) > 0 && bases[len(bases)-1] != batch.Batch(got[len(got)-1]).BaseOffset() {
		err = fmt.Errorf("read %v", bases)
	}
	return got, err
}

// derived compares epochs and producers with the batches.
func (h *history) derived(l *Log, got [][]byte) error {
	last := int32(-1)
	for _, b := range got {
		b := batch.Batch(b)
		last = b.LastSequence()
		if b.BaseOffset() < l.Offsets().LogStart {
			continue
		}
		if e := l.EpochAt(b.BaseOffset()); e != b.LeaderEpoch() {
			return fmt.Errorf("epoch at %d is %d, want %d (%v)", b.BaseOffset(), e, b.LeaderEpoch(), l.Epochs())
		}
	}
	producers := l.Producers()
	if len(got) == 0 {
		return nil // what was deleted may be remembered or not
	}
	if len(producers) != 1 || producers[0].LastSequence != last {
		return fmt.Errorf("producers %+v, want last sequence %d", producers, last)
	}
	return nil
}

// TestEpochsOutliveTheirSegments: a power loss after segments were deleted leaves
// the epochs that began in them. Else the log would ascribe their offsets to
// another epoch, and seem to have another history than its archive (T8).
func TestEpochsOutliveTheirSegments(t *testing.T) {
	mem := vfs.NewMem()
	opts := Options{Archived: true}
	l := openLog(t, openDir(t, quiet(mem)), opts)
	for epoch := range int32(3) {
		if err := l.Lead(context.Background(), epoch); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(records(5, 10, testNow), AppendOptions{Epoch: epoch, Now: testNow}); err != nil {
			t.Fatal(err)
		}
		if epoch == 0 { // and what is known of it is durable
			if err := l.dir.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Roll(time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(15)
	if _, err := l.DeleteTo(10); err != nil {
		t.Fatal(err)
	}
	after := openLog(t, openDir(t, quiet(mem.CrashClone(vfs.CrashOptions{}))), opts)
	if o := after.Offsets(); o.LocalStart != 10 {
		t.Fatalf("%+v", o)
	}
	for offset, want := range map[int64]int32{4: 0, 5: 1, 9: 1, 10: 2} {
		if got := after.EpochAt(offset); got != want {
			t.Errorf("offset %d is of epoch %d, want %d; %v", offset, got, want, after.Epochs())
		}
	}
}
