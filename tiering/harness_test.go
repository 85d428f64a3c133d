package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firn/segment"
	"firn/segment/batch"
	"firn/segment/vfs"
	"firn/tiering/objstore"
)

// world is what outlives a broker: a bucket and a metadata store.
type world struct {
	t        *testing.T
	bucket   *objstore.Mem
	pointers *MemPointers
	identity Identity
	clock    atomic.Int64 // Unix milliseconds
	ids      *rand.Rand
	model    []rec // what was appended and committed, by offset
	outage   atomic.Bool
	gets     atomic.Int64 // by all brokers
}

// rec is what a test knows of a record.
type rec struct {
	ts    int64
	value string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, pointers: NewMemPointers(), ids: rand.New(rand.NewPCG(11, 12))}
	w.clock.Store(1_700_000_000_000)
	w.bucket = objstore.NewMemAt(w.now)
	id, err := CheckStart(t.Context(), w.bucket, Start{ClusterID: "c1", NewMetadata: true, NewID: func() string { return "a1" }})
	if err != nil {
		t.Fatal(err)
	}
	w.identity = id
	return w
}

func (w *world) now() time.Time          { return time.UnixMilli(w.clock.Load()) }
func (w *world) advance(d time.Duration) { w.clock.Add(d.Milliseconds()) }

// disk is one broker's data directory.
type disk struct {
	fs vfs.FS
}

func newDisk() *disk { return &disk{fs: vfs.NewMem()} }

// clone is a copy of a disk in memory as it is now.
func (d *disk) clone() *disk {
	return &disk{fs: d.fs.(*vfs.Mem).CrashClone(vfs.CrashOptions{Keep: 100})}
}

var errCrashed = errors.New("crashed")

// broker is a running broker's share: the log of one partition.
type broker struct {
	w       *world
	disk    *disk
	dir     *segment.Dir
	archive *Archive
	log     *Log
	dead    atomic.Bool
	// hooks; nil is none
	failpoint func(string) error
	store     *objstore.Faulty
	pointers  *faultyPointers
}

type openOptions struct {
	segmentBytes  int64
	flushMessages int64 // 0 is segment's default
	policy        Policy
	grace         time.Duration
}

func (w *world) defaults() openOptions {
	return openOptions{
		segmentBytes: 2048, grace: time.Minute,
		policy: Policy{Enabled: true, RetentionMs: -1, RetentionBytes: -1, LocalRetentionMs: -1, LocalRetentionBytes: 0},
	}
}

// start opens a broker on d. It stops all by itself at the end of the test.
func (w *world) start(d *disk, o openOptions) *broker {
	w.t.Helper()
	b, err := w.tryStart(d, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) tryStart(d *disk, o openOptions) (*broker, error) {
	b := &broker{w: w, disk: d}
	hook := func(op objstore.Op) objstore.Fault {
		if op.Kind == objstore.OpGet {
			w.gets.Add(1)
		}
		if b.dead.Load() {
			return objstore.Fault{Before: errCrashed}
		}
		if w.outage.Load() {
			return objstore.Fault{Before: errAway}
		}
		return objstore.Fault{}
	}
	b.store = objstore.Inject(w.bucket, hook)
	b.pointers = &faultyPointers{Pointers: w.pointers, dead: &b.dead}
	fs := vfs.Inject(d.fs, func(op vfs.Op) error {
		if b.dead.Load() && op.Kind != vfs.OpClose {
			return errCrashed
		}
		return nil
	})
	var err error
	b.dir, err = segment.OpenDir(segment.DirConfig{Path: "/data", FS: fs, MinFreeBytes: -1, Now: w.now})
	if err != nil {
		return nil, err
	}
	tp := segment.TopicPartition{Topic: testPart.Topic, Partition: testPart.Num}
	local, err := b.dir.Open(tp, testPart.ID, segment.Options{Archived: true, SegmentBytes: o.segmentBytes, FlushMessages: o.flushMessages, IndexIntervalBytes: 256, FileDeleteDelayMs: 1})
	if err != nil {
		return nil, err
	}
	b.archive = New(Config{
		Store: b.store, Pointers: b.pointers, Identity: w.identity, Random: w.ids.Uint64, DeleteGrace: o.grace,
		Now: w.now,
		Failpoint: func(name string) error {
			if b.failpoint != nil {
				return b.failpoint(name)
			}
			return nil
		},
	})
	b.log, err = b.archive.Open(w.t.Context(), local, PartitionConfig{Partition: testPart, Policy: o.policy, FS: fs, Dir: "/data/" + tp.String()})
	w.t.Cleanup(b.stop)
	return b, err
}

// leading is a new world and a broker of it that leads in epoch 1.
func leading(t *testing.T) (*world, *broker) {
	t.Helper()
	w := newWorld(t)
	b := w.start(newDisk(), w.defaults())
	b.lead(1)
	return w, b
}

// onStore puts a hook before the calls of the store, one at a time; it must not
// use the store itself.
func (b *broker) onStore(hook func(objstore.Op) objstore.Fault) {
	var mu sync.Mutex
	b.store.Set(func(op objstore.Op) objstore.Fault {
		mu.Lock()
		defer mu.Unlock()
		return hook(op)
	})
}

// lead elects this broker.
func (b *broker) lead(epoch int32) {
	b.w.t.Helper()
	b.w.pointers.Elect(testPart, epoch)
	if err := b.log.Lead(b.w.t.Context(), epoch); err != nil {
		b.w.t.Fatal(err)
	}
}

// stop ends the broker in order.
func (b *broker) stop() {
	b.archive.Close()
	_ = b.dir.Close(segment.CleanMark{})
}

// crash ends it as a kill does: nothing of it has any effect any more.
func (b *broker) crash() {
	b.dead.Store(true)
	b.stop()
}

// append appends n records and commits them.
func (b *broker) append(n int) {
	b.w.t.Helper()
	b.appendOnly(n)
	b.log.SetHighWatermark(b.log.Offsets().End)
}

func (b *broker) appendOnly(n int) {
	b.w.t.Helper()
	for range n {
		off := len(b.w.model)
		r := rec{b.w.now().UnixMilli() + int64(off%7) - 3, fmt.Sprintf("value %d of epoch %d", off, b.log.LatestEpoch())}
		bb := batch.NewBuilder(batch.Spec{})
		bb.Add(r.ts, []byte("k"), []byte(r.value))
		bt, err := bb.Build()
		if err != nil {
			b.w.t.Fatal(err)
		}
		a, err := b.log.Append(bt, segment.AppendOptions{Epoch: b.log.LatestEpoch(), Now: b.w.now().UnixMilli()})
		if err != nil || a.First != int64(off) {
			b.w.t.Fatalf("append at %d: %+v, %v", off, a, err)
		}
		b.w.model = append(b.w.model, r)
	}
}

// settle waits for sealed files to be on disk; the log's background does that.
func (b *broker) settle() {
	b.w.t.Helper()
	for {
		sealed, err := b.log.Local().Sealed(0)
		if err != nil {
			b.w.t.Fatal(err)
		}
		if len(sealed) == 0 || sealed[len(sealed)-1].Synced {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (b *broker) mustSteps(n int) {
	b.w.t.Helper()
	for range n {
		if _, err := b.log.Step(b.w.t.Context(), b.w.now()); err != nil {
			b.w.t.Fatal(err)
		}
	}
}

// upload steps until there is nothing more to do.
func (b *broker) upload() error {
	b.settle()
	for range 10_000 {
		ld := b.log.lead.Load()
		if ld == nil {
			return errNotLeading
		}
		n, _ := ld.waiting()
		active := b.log.Local().ActiveInfo().Base
		more, err := b.log.Step(b.w.t.Context(), b.w.now())
		if err != nil {
			return err
		}
		if active != b.log.Local().ActiveInfo().Base {
			b.settle() // the step has sealed a segment
		} else if !more && n == 0 {
			return nil
		}
	}
	return errors.New("steps without end")
}

func (b *broker) mustUpload() {
	b.w.t.Helper()
	if err := b.upload(); err != nil {
		b.w.t.Fatal(err)
	}
}

func (b *broker) mustEvict() {
	b.w.t.Helper()
	if err := b.log.Evict(b.w.t.Context(), b.w.now()); err != nil {
		b.w.t.Fatal(err)
	}
}

// archived reads every record of the partition from the bucket alone, by the
// pointer, and checks each entry against its objects (T6).
func (w *world) archived() []rec {
	w.t.Helper()
	ctx := context.Background()
	ptr, _ := w.pointers.LoadPointer(ctx, testPart)
	if !ptr.Exists() {
		return nil
	}
	m, err := fetchManifest(ctx, w.bucket, testPart, ptr)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []Entry
	for i := range m.Pages {
		page, err := fetchPage(ctx, w.bucket, testPart, &m.Pages[i])
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, page.Entries...)
	}
	all = append(all, m.Entries...)
	got := make([]rec, m.LogStart)
	end := m.LogStart
	for i := range all {
		e := &all[i]
		if e.End <= m.DeletedThrough || e.End <= m.LogStart {
			continue
		}
		if max(e.Base, m.LogStart) != end {
			w.t.Fatalf("entry serves [%d, %d), the one before ends at %d", e.Base, e.End, end)
		}
		end = e.End
		raw := w.object(e.LogKey(testPart))
		x, err := DecodeIndex(w.object(e.IndexKey(testPart)))
		if err != nil || x.Check(testPart, e) != nil || Checksum(raw) != e.LogCRC {
			w.t.Fatalf("entry at %d: %v %v", e.Base, err, x.Check(testPart, e))
		}
		for rest := raw; len(rest) > 0; {
			var bt batch.Batch
			if bt, rest, err = batch.Next(rest); err != nil {
				w.t.Fatal(err)
			}
			for _, r := range w.records(bt) {
				if r.offset >= max(e.Base, m.LogStart) && r.offset < e.End {
					if int(r.offset) != len(got) {
						w.t.Fatalf("record %d where %d is due", r.offset, len(got))
					}
					got = append(got, r.rec)
				}
			}
		}
	}
	if end != m.ArchivedEnd {
		w.t.Fatalf("entries end at %d, archived end is %d", end, m.ArchivedEnd)
	}
	return got
}

func (w *world) object(key string) []byte {
	w.t.Helper()
	r, err := w.bucket.GetRange(context.Background(), key, 0, -1)
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// checkArchived checks that what is archived is what was appended, up to at
// least end.
func (w *world) checkArchived(end int) {
	w.t.Helper()
	got := w.archived()
	if len(got) < end {
		w.t.Fatalf("archived up to %d, want at least %d", len(got), end)
	}
	for i, r := range got {
		if r != (rec{}) && r != w.model[i] {
			w.t.Fatalf("record %d in the archive is %+v, appended was %+v", i, r, w.model[i])
		}
	}
}

// orphans are the objects that the pointer does not lead to, superseded
// manifests aside.
func (w *world) orphans() (keys []string) {
	ctx := context.Background()
	ptr, _ := w.pointers.LoadPointer(ctx, testPart)
	named := map[string]bool{}
	if ptr.Exists() {
		m, err := fetchManifest(ctx, w.bucket, testPart, ptr)
		if err != nil {
			w.t.Fatal(err)
		}
		add := func(list []Entry) {
			for i := range list {
				named[list[i].LogKey(testPart)], named[list[i].IndexKey(testPart)] = true, true
			}
		}
		for i := range m.Pages {
			named[m.Pages[i].Key(testPart)] = true
			page, err := fetchPage(ctx, w.bucket, testPart, &m.Pages[i])
			if err != nil {
				w.t.Fatal(err)
			}
			add(page.Entries)
		}
		add(m.Entries)
		named[ptr.ManifestKey], named[m.PrevKey] = true, true
	}
	for _, key := range w.bucket.Keys() {
		if k, ok := ParseKey(key); ok && k.Partition == testPart && !named[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

type located struct {
	offset int64
	rec
}

// records decodes a batch of one record, as append makes them.
func (w *world) records(b batch.Batch) []located {
	w.t.Helper()
	var out []located
	err := batch.Walk(b, batch.Limit{}, func(r batch.Record) error {
		out = append(out, located{r.Offset, rec{r.Timestamp, string(bytes.Clone(r.Value))}})
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// faultyPointers is a metadata store with faults.
type faultyPointers struct {
	Pointers
	dead *atomic.Bool
	// swap, if set, is asked before each SwapPointer. do writes; what swap
	// returns is what the caller hears.
	swap func(do func() (Pointer, error)) (Pointer, error)
	// load, if set, is called when the answer to a LoadPointer is on its way.
	load func() error
}

func (f *faultyPointers) LoadPointer(ctx context.Context, p Partition) (Pointer, error) {
	if f.dead.Load() {
		return Pointer{}, errCrashed
	}
	ptr, err := f.Pointers.LoadPointer(ctx, p)
	if f.load != nil {
		if err := f.load(); err != nil {
			return Pointer{}, err
		}
	}
	return ptr, err
}

func (f *faultyPointers) SwapPointer(ctx context.Context, p Partition, epoch int32, next Pointer) (Pointer, error) {
	if f.dead.Load() {
		return Pointer{}, errCrashed
	}
	ctx = context.WithoutCancel(ctx) // what is sent may arrive though nobody waits for it
	do := func() (Pointer, error) { return f.Pointers.SwapPointer(ctx, p, epoch, next) }
	if f.swap != nil {
		return f.swap(do)
	}
	return do()
}
