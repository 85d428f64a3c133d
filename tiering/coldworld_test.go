package tiering

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/cache"
	"firn/tiering/objstore"
)

// coldWorld is an archived partition with its store, and a model of what is in it.
type coldWorld struct {
	mem    *objstore.Mem
	store  *objstore.Faulty
	gets   atomic.Int64
	fault  atomic.Pointer[func(objstore.Op) objstore.Fault]
	source *source

	old     bool // the .idx objects are of version 1
	batches []batch.Batch
	times   []int64 // of each record, by offset
	starts  []int   // the batch that each segment begins with
	entries []Entry

	mu        sync.Mutex
	m         *Manifest
	pages     map[string]*Page
	reloads   int
	onReload  func()
	noPointer error                // what a reload fails of
	openLocal []segment.AbortedTxn // what the local log knows
}

func (w *coldWorld) manifest() (*Manifest, <-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.m, nil, nil
}

func (w *coldWorld) page(m *Manifest, ref *PageRef) (*Page, <-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pages[ref.Key(testPart)]; p != nil {
		return p, nil, nil
	}
	return nil, nil, fmt.Errorf("%w: page", ErrLost)
}

func (w *coldWorld) reload(*Manifest) *load {
	w.mu.Lock()
	w.reloads++
	f := w.onReload
	w.mu.Unlock()
	if f != nil {
		f()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return failedLoad(w.noPointer)
}

func (w *coldWorld) aborted(first, below int64) ([]segment.AbortedTxn, error) {
	return w.openLocal, nil
}

func (w *coldWorld) setFault(f func(objstore.Op) objstore.Fault) { w.fault.Store(&f) }

// newColdWorld archives batches in segments that begin with the batches that
// starts lists; behind says how many batches before that the file begins (D28).
func newColdWorld(t testing.TB, batches []batch.Batch, starts []int, behind int, txn *txnModel) *coldWorld {
	t.Helper()
	w := &coldWorld{}
	w.fill(t, batches, starts, behind, txn)
	return w
}

// oldColdWorld is newColdWorld whose .idx objects are of version 1.
func oldColdWorld(t testing.TB, batches []batch.Batch, starts []int, behind int) *coldWorld {
	t.Helper()
	w := &coldWorld{old: true}
	w.fill(t, batches, starts, behind, nil)
	return w
}

func (w *coldWorld) fill(t testing.TB, batches []batch.Batch, starts []int, behind int, txn *txnModel) {
	t.Helper()
	w.mem, w.batches, w.starts, w.pages = objstore.NewMem(), batches, starts, make(map[string]*Page)
	none := func(objstore.Op) objstore.Fault { return objstore.Fault{} }
	w.fault.Store(&none)
	w.store = objstore.Inject(w.mem, func(op objstore.Op) objstore.Fault {
		if op.Kind == objstore.OpGet {
			w.gets.Add(1)
		}
		return (*w.fault.Load())(op)
	})
	w.source = &source{Part: testPart, resolver: w}
	for _, b := range batches {
		err := batch.Walk(b, batch.Limit{}, func(r batch.Record) error {
			for int64(len(w.times)) < r.Offset {
				w.times = append(w.times, -1<<62) // a hole
			}
			w.times = append(w.times, r.Timestamp)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for int64(len(w.times)) < b.NextOffset() {
			w.times = append(w.times, -1<<62)
		}
	}
	for i, from := range starts {
		below := len(batches)
		if i+1 < len(starts) {
			below = starts[i+1]
		}
		w.archive(t, max(0, from-behind), from, below, txn)
	}
	last := &w.entries[len(w.entries)-1]
	w.m = &Manifest{Topic: testPart.ID, Partition: testPart.Num, Epoch: 3, Seq: 1, ArchivedEnd: last.End, LastEpoch: 3, Entries: w.entries}
}

// archive uploads a segment of batches [first, below), of which it serves those
// from serve on.
func (w *coldWorld) archive(t testing.TB, first, serve, below int, txn *txnModel) {
	t.Helper()
	x := &Index{Topic: testPart.ID, Partition: testPart.Num, FileBase: w.batches[first].BaseOffset(), End: w.batches[below-1].NextOffset()}
	x.BaseTime, x.MaxTime = w.batches[first].MaxTimestamp(), -1<<62
	var log []byte
	lastIndexed, indexedTime, maxOffset := 0, int64(-1<<62), int64(0)
	for _, b := range w.batches[first:below] {
		batch.Walk(b, batch.Limit{}, func(r batch.Record) error {
			if r.Timestamp > x.MaxTime {
				x.MaxTime, maxOffset = r.Timestamp, r.Offset
			}
			x.Records++
			return nil
		})
		if len(log)-lastIndexed > 4096 {
			x.OffsetIndex = binary.BigEndian.AppendUint32(x.OffsetIndex, uint32(b.LastOffset()-x.FileBase))
			x.OffsetIndex = binary.BigEndian.AppendUint32(x.OffsetIndex, uint32(len(log)))
			if x.MaxTime > indexedTime {
				x.TimeIndex = binary.BigEndian.AppendUint64(x.TimeIndex, uint64(x.MaxTime))
				x.TimeIndex = binary.BigEndian.AppendUint32(x.TimeIndex, uint32(maxOffset-x.FileBase))
				indexedTime = x.MaxTime
			}
			lastIndexed = len(log)
		}
		log = append(log, b...)
	}
	if x.MaxTime > indexedTime { // as at a roll
		x.TimeIndex = binary.BigEndian.AppendUint64(x.TimeIndex, uint64(x.MaxTime))
		x.TimeIndex = binary.BigEndian.AppendUint32(x.TimeIndex, uint32(maxOffset-x.FileBase))
	}
	x.BaseTime = min(x.BaseTime, x.MaxTime)
	x.Size, x.LogCRC = int64(len(log)), Checksum(log)
	for b := log; len(b) > 0; b = b[min(len(b), BlockSize):] {
		x.Blocks = append(x.Blocks, Checksum(b[:min(len(b), BlockSize)]))
	}
	if !w.old {
		found, err := scan(readerAt(log), x.Size, make([]byte, BlockSize))
		if err != nil {
			t.Fatal(err)
		}
		x.Units, x.Starts = found.Units, found.Starts
	}
	if txn != nil {
		x.TxnIndex, x.Producers = txn.index(x.FileBase, x.End)
		x.Aborted = len(x.TxnIndex) > 0
	}
	idx := x.AppendTo(nil)
	e := Entry{
		Base: w.batches[serve].BaseOffset(), End: x.End, FileBase: x.FileBase, BaseTime: x.BaseTime, MaxTime: x.MaxTime,
		Size: x.Size, Records: x.Records, ObjectBase: x.FileBase, ID: uint64(len(w.entries) + 1), Epoch: 3, Aborted: x.Aborted,
		LogCRC: x.LogCRC, IdxCRC: Checksum(idx), IdxSize: int64(len(idx)),
	}
	if serve == 0 {
		e.Base = 0
	} else if n := len(w.entries); n > 0 {
		e.Base = w.entries[n-1].End
	}
	w.put(t, e.LogKey(testPart), log)
	w.put(t, e.IndexKey(testPart), idx)
	w.entries = append(w.entries, e)
}

func (w *coldWorld) put(t testing.TB, key string, b []byte) {
	t.Helper()
	if err := w.mem.Put(context.Background(), key, bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatal(err)
	}
}

// paged moves the first n entries to pages of k each.
func (w *coldWorld) paged(n, k int) {
	m := *w.m
	for from := 0; from < n; from += k {
		p := &Page{Topic: testPart.ID, Partition: testPart.Num, Entries: w.entries[from:min(from+k, n)]}
		ref := p.Ref(3, uint64(from), p.AppendTo(nil))
		w.pages[ref.Key(testPart)] = p
		m.Pages = append(m.Pages, ref)
	}
	m.Entries = w.entries[n:]
	w.m = &m
}

func (w *coldWorld) end() int64 { return w.m.ArchivedEnd }

// at is the snapshot of a log of which all that is archived has left the disk.
func (w *coldWorld) at() segment.Offsets {
	e := w.end()
	return segment.Offsets{LogStart: w.m.LogStart, LocalStart: e, ArchivedEnd: e, Stable: e, HighWatermark: e, Counted: e, End: e}
}

func (w *coldWorld) reader(t testing.TB, cfg cache.Config) *coldReads {
	t.Helper()
	if cfg.Store == nil {
		cfg.Store = w.store
	}
	c, err := cache.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := newColdReads(coldConfig{Cache: c})
	t.Cleanup(func() {
		r.Close()
		c.Close()
	})
	return r
}

// read is one Read, asked again until there is something.
func (w *coldWorld) read(c *coldReads, r segment.ReadRequest) (segment.ReadResult, error) {
	for {
		res, err := c.Read(w.source, r, w.at())
		if err != nil || res.Records.Len() > 0 || res.Pending == nil {
			return res, err
		}
		<-res.Pending
	}
}

func joined(r *segment.Records) []byte {
	b, err := r.AppendTo(nil)
	if err != nil {
		return nil // which is nobody's records
	}
	return b
}

// want is the batches from the one that holds offset on, at most max bytes.
func (w *coldWorld) want(offset int64) []batch.Batch {
	for i, b := range w.batches {
		if b.NextOffset() > offset {
			return w.batches[i:]
		}
	}
	return nil
}

// checkRead reads at offset, compares with the model, and returns the offset after.
func (w *coldWorld) checkRead(c *coldReads, r segment.ReadRequest) (int64, error) {
	res, err := w.read(c, r)
	if err != nil {
		return r.Offset, err
	}
	defer res.Records.Release()
	got, next := joined(&res.Records), r.Offset
	if len(got) == 0 {
		return next, errors.New("nothing to read")
	}
	if want := w.want(r.Offset); len(got) > r.MaxBytes && len(got) != len(want[0]) {
		return next, fmt.Errorf("%d bytes, at most %d were asked for", len(got), r.MaxBytes)
	}
	for _, want := range w.want(r.Offset) {
		if len(got) == 0 {
			break
		}
		if len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
			return next, fmt.Errorf("at %d: not the batch at %d", r.Offset, want.BaseOffset())
		}
		got, next = got[len(want):], want.NextOffset()
	}
	if len(got) != 0 {
		return next, fmt.Errorf("%d bytes too many", len(got))
	}
	return next, nil
}

// replay reads everything from offset on.
func (w *coldWorld) replay(c *coldReads, offset int64, maxBytes int) error {
	for offset < w.end() {
		next, err := w.checkRead(c, segment.ReadRequest{Offset: offset, MaxBytes: maxBytes, MinOne: true})
		if err != nil {
			return err
		}
		offset = next
	}
	return nil
}

// someBatches makes batches of up to size bytes; gaps are holes in the offsets.
func someBatches(rng *rand.Rand, n, size int, gaps bool) []batch.Batch {
	var list []batch.Batch
	offset, now := int64(0), int64(1_700_000_000_000)
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(rng.Uint32())
	}
	for range n {
		if gaps && rng.IntN(10) == 0 {
			offset += rng.Int64N(5)
		}
		spec := batch.Spec{BaseOffset: offset, LeaderEpoch: 3}
		if rng.IntN(8) == 0 {
			spec.Codec = batch.LZ4
		}
		bd := batch.NewBuilder(spec)
		for k := 1 + rng.IntN(4); k > 0; k-- {
			now += rng.Int64N(100)
			ts := now
			if rng.IntN(5) == 0 {
				ts += rng.Int64N(20_000) - 10_000
			}
			off := rng.IntN(size)
			bd.Add(ts, []byte(fmt.Sprint(offset)), value[off:off+rng.IntN(size-off)/2])
		}
		b, err := bd.Build()
		if err != nil {
			panic(err)
		}
		list = append(list, b)
		offset = b.NextOffset()
	}
	return list
}

// rolled lists where segments of about size bytes begin.
func rolled(batches []batch.Batch, size int) []int {
	starts, n := []int{0}, 0
	for i, b := range batches {
		if n += len(b); n > size && i > starts[len(starts)-1] {
			starts, n = append(starts, i), len(b)
		}
	}
	return starts
}

// inTime gives up a test that would hang.
func inTime(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(5 * time.Minute): // on a busy machine a replay takes one
		t.Fatal("hangs")
	}
}
