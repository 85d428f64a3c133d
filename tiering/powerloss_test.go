package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"firn/segment"
	"firn/segment/batch"
	"firn/segment/vfs"
	"firn/tiering/objstore"
)

// powerLoss records a life of a partition, and what a power loss after each
// change of its disk would leave: disk, metadata store and bucket of one moment.
type powerLoss struct {
	w    *world
	b    *broker
	opts openOptions
	rng  *rand.Rand

	mu       sync.Mutex
	left     []wreck
	objects  map[string][]byte // all that the bucket ever had: they don't change (T2)
	now      []rec             // what the log holds, or is about to
	before   []rec             // what it held before the truncation under way
	promised int               // so many records are acknowledged
	epoch    int32
}

// wreck is what a power loss leaves, and what is expected of it.
type wreck struct {
	after    string
	fs       *vfs.Mem
	pointers *MemPointers
	keys     []string
	maybe    [][]rec // the log is a beginning of one of these
	promised int
	epoch    int32
}

// TestPowerLossAfterEveryOperation cuts the power after every call that changes
// the disk, with nothing, half and all of what was not synced kept: what the
// pointer names is in the bucket (T3), the disk has all that the archive hasn't
// (T4), the log goes on at or past the archived end (T8), whole (S1, S5), and
// with flush.messages=1 nothing acknowledged is missing (S6).
func TestPowerLossAfterEveryOperation(t *testing.T) {
	for _, flush := range []int64{1, 0} {
		t.Run(fmt.Sprintf("flush.messages=%d", flush), func(t *testing.T) {
			w := newWorld(t)
			p := &powerLoss{w: w, opts: w.defaults(), rng: rand.New(rand.NewPCG(7, 8)), objects: map[string][]byte{}}
			p.opts.flushMessages = flush
			p.record()
			if len(p.left) < 600 {
				t.Errorf("only %d power losses: the test does not test", len(p.left))
			}
			for i := range p.left {
				p.check(&p.left[i], i%9 == 0)
				p.left[i] = wreck{}
			}
			t.Logf("%d power losses", len(p.left))
		})
	}
}

// record lives: append, roll, checkpoint, upload, local delete, a moved log start,
// remote delete, truncation, a restart.
func (p *powerLoss) record() {
	d := newDisk()
	fsys := d.fs.(*vfs.Mem)
	fsys.OnOp(func(op vfs.Op) { p.wreck(fsys, op) })
	p.b = p.w.start(d, p.opts)
	p.lead()
	p.append(50)
	p.checkpoint()
	p.archive()
	p.append(20)
	p.checkpoint()
	p.truncate(p.b.log.Offsets().End - 7)
	p.lead()
	p.append(40)
	p.archive()
	p.do("move the log start", func(ctx context.Context) error {
		return p.b.log.SetLogStart(ctx, p.b.log.Offsets().LogStart+30)
	})
	p.w.advance(2 * time.Minute) // past the grace
	p.do("delete from the archive", func(ctx context.Context) error { return p.b.log.Keep(ctx, p.w.now()) })
	p.do("sweep", func(ctx context.Context) error { _, err := p.b.log.Sweep(ctx, p.w.now()); return err })
	p.append(10)
	p.checkpoint()
	p.b.stop()
	p.b = p.w.start(d, p.opts)
	p.lead()
	p.append(40)
	p.checkpoint()
	p.truncate(p.b.log.Offsets().End - 30) // over a border of segments
	p.lead()
	p.append(30)
	p.archive()
	fsys.OnOp(nil)
	p.b.stop()
}

func (p *powerLoss) do(what string, f func(context.Context) error) {
	p.w.t.Helper()
	if err := f(p.w.t.Context()); err != nil {
		p.w.t.Fatalf("%s: %v", what, err)
	}
}

func (p *powerLoss) checkpoint() {
	p.w.t.Helper()
	p.do("checkpoint", func(context.Context) error { return p.b.dir.Checkpoint() })
}

// archive uploads what is sealed and takes it off the disk; what isn't archived
// is asked for, too.
func (p *powerLoss) archive() {
	p.w.t.Helper()
	p.b.mustEvict()
	p.b.mustUpload()
	p.b.mustEvict()
}

func (p *powerLoss) lead() {
	p.w.t.Helper()
	p.mu.Lock()
	p.epoch++
	epoch := p.epoch
	p.mu.Unlock()
	p.b.lead(epoch)
}

func (p *powerLoss) append(n int) {
	p.w.t.Helper()
	for range n {
		p.mu.Lock()
		off := len(p.now)
		r := rec{p.w.now().UnixMilli() + int64(off%7) - 3, fmt.Sprintf("value %d of epoch %d", off, p.epoch)}
		p.now = append(slices.Clip(p.now), r)
		p.mu.Unlock()
		p.b.appendRecord(int64(off), r)
		if o := p.b.log.Offsets(); o.Counted < o.End {
			p.do("flush", func(context.Context) error { return p.b.log.Local().Flush() })
		}
		p.b.log.SetHighWatermark(int64(off) + 1)
		if p.opts.flushMessages == 1 {
			p.mu.Lock()
			p.promised = off + 1
			p.mu.Unlock()
		}
	}
}

func (p *powerLoss) truncate(end int64) {
	p.w.t.Helper()
	p.b.log.StopLeading()
	p.mu.Lock()
	p.before, p.now = p.now, slices.Clone(p.now[:end])
	p.promised = min(p.promised, int(end))
	p.mu.Unlock()
	p.do("truncate", func(context.Context) error { return p.b.log.TruncateTo(end) })
	p.mu.Lock()
	p.before = nil
	p.mu.Unlock()
}

// appendRecord appends one record, which must get offset off.
func (b *broker) appendRecord(off int64, r rec) {
	b.w.t.Helper()
	bb := batch.NewBuilder(batch.Spec{})
	bb.Add(r.ts, []byte("k"), []byte(r.value))
	bt, err := bb.Build()
	if err != nil {
		b.w.t.Fatal(err)
	}
	a, err := b.log.Append(bt, segment.AppendOptions{Epoch: b.log.LatestEpoch(), Now: b.w.now().UnixMilli()})
	if err != nil || a.First != off {
		b.w.t.Fatalf("append at %d: %+v, %v", off, a, err)
	}
}

// wreck notes what a power loss now would leave. The disk is looked at first and
// the bucket last, so that none shows what came of something the one before
// doesn't have yet, should another goroutine be at work.
func (p *powerLoss) wreck(fsys *vfs.Mem, op vfs.Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maybe := [][]rec{p.now}
	if p.before != nil {
		maybe = append(maybe, p.before)
	}
	promised, epoch := p.promised, p.epoch
	var clones []wreck
	for _, keep := range []int{0, 50, 100} {
		clones = append(clones, wreck{
			after: fmt.Sprintf("operation %d, %v, with %d %% of the unsynced kept", len(p.left)/3, op, keep),
			fs:    fsys.CrashClone(vfs.CrashOptions{Keep: keep, Rand: p.rng}),
			maybe: maybe, promised: promised, epoch: epoch,
		})
	}
	ptr, err := p.w.pointers.LoadPointer(context.Background(), testPart)
	if err != nil {
		panic(err) // in memory
	}
	keys := p.w.bucket.Keys()
	for _, key := range keys {
		if p.objects[key] == nil {
			p.objects[key] = p.object(key)
		}
	}
	for _, c := range clones {
		c.pointers, c.keys = NewMemPointers(), keys
		if ptr.Exists() {
			c.pointers.mu.pointers[testPart] = ptr
		}
		p.left = append(p.left, c)
	}
}

// object is an object of the bucket, nil if it was deleted just now.
func (p *powerLoss) object(key string) []byte {
	r, err := p.w.bucket.GetRange(context.Background(), key, 0, -1)
	if err != nil {
		return nil
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return nil
	}
	return b
}

// check opens what a power loss has left. further makes it go on, too: upload
// what there is and leave no orphan.
func (p *powerLoss) check(left *wreck, further bool) {
	t := p.w.t
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("this was a power loss after %s", left.after)
		}
	}()
	w := &world{t: t, pointers: left.pointers, identity: p.w.identity, ids: rand.New(rand.NewPCG(3, 4))}
	w.clock.Store(p.w.clock.Load())
	w.bucket = objstore.NewMemAt(w.now)
	for _, key := range left.keys {
		if err := w.bucket.Put(t.Context(), key, bytes.NewReader(p.objects[key]), int64(len(p.objects[key]))); err != nil {
			t.Fatal(err)
		}
	}
	b := w.start(&disk{fs: left.fs}, p.opts)
	defer b.stop()
	left.pointers.Elect(testPart, left.epoch+1)
	if err := b.log.Lead(t.Context(), left.epoch+1); err != nil {
		t.Fatalf("%v\nthe log is %+v with epochs %v", err, b.log.Offsets(), b.log.Local().Epochs())
	}

	ptr, _ := left.pointers.LoadPointer(t.Context(), testPart)
	o := b.log.Offsets()
	if ptr.Exists() && (o.End < ptr.ArchivedEnd || o.LogStart < ptr.LogStart) { // T8
		t.Fatalf("the log is %+v, the archive ends at %d, its log start is %d", o, ptr.ArchivedEnd, ptr.LogStart)
	}
	if o.LocalStart > max(o.ArchivedEnd, o.LogStart) { // T4
		t.Fatalf("hole between archive and disk: %+v", o)
	}
	if o.End < int64(left.promised) { // S6
		t.Fatalf("the log ends at %d, %d records were acknowledged", o.End, left.promised)
	}
	// What was found counts once it is durable.
	if err := b.log.Local().Flush(); err != nil {
		t.Fatal(err)
	}
	b.log.SetHighWatermark(o.End)
	w.model = left.matching(b, o)
	w.checkArchived(0) // T3
	next := rec{w.now().UnixMilli(), "after the power loss"}
	w.model = append(slices.Clone(w.model[:o.End]), next)
	b.appendRecord(o.End, next)
	if err := b.log.Local().Flush(); err != nil {
		t.Fatal(err)
	}
	b.log.SetHighWatermark(o.End + 1)
	if !further {
		return
	}
	if err := b.log.Local().Roll(w.now()); err != nil {
		t.Fatal(err)
	}
	b.mustUpload()
	b.mustEvict()
	w.checkArchived(int(o.End) + 1)
	b.verify()
	b.sweepClean()
}

// matching reads the log, and returns which of the possible ones it is.
func (c *wreck) matching(b *broker, o segment.Offsets) []rec {
	b.w.t.Helper()
	var got []located
	for off := o.LogStart; off < o.End; off = got[len(got)-1].offset + 1 {
		some := b.readRecords(off)
		if len(some) == 0 || some[len(some)-1].offset < off {
			b.w.t.Fatalf("nothing at %d of %+v", off, o)
		}
		for _, r := range some {
			if r.offset >= off {
				got = append(got, r)
			}
		}
	}
	var why error
	for _, want := range c.maybe {
		if why = isBeginning(got, o, want); why == nil {
			return want
		}
	}
	b.w.t.Fatal(why)
	return nil
}

func isBeginning(got []located, o segment.Offsets, want []rec) error {
	if int(o.End) > len(want) {
		return fmt.Errorf("the log ends at %d, it had %d records", o.End, len(want))
	}
	for i, r := range got {
		if at := o.LogStart + int64(i); r.offset != at || r.rec != want[at] {
			return fmt.Errorf("offset %d holds %+v, want %+v", at, r, want[at])
		}
	}
	return nil
}

// readRecords reads some records from offset on.
func (b *broker) readRecords(from int64) (got []located) {
	b.w.t.Helper()
	for {
		res, err := b.log.Read(segment.ReadRequest{Offset: from, MaxBytes: 4000, MinOne: true, Until: segment.UntilHighWatermark})
		if err != nil {
			b.w.t.Fatalf("read %d: %v", from, err)
		}
		raw, err := res.Records.AppendTo(nil)
		if err != nil {
			b.w.t.Fatal(err)
		}
		res.Records.Release()
		for len(raw) > 0 {
			bt, rest, err := batch.Next(raw)
			if errors.Is(err, batch.ErrShort) {
				break
			}
			if err != nil {
				b.w.t.Fatal(err)
			}
			got, raw = append(got, b.w.records(bt)...), rest
		}
		if len(got) > 0 || res.Pending == nil {
			return got
		}
		<-res.Pending
	}
}
