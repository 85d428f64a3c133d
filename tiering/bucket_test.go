package tiering

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/filestore"
	"firn/tiering/objstore"
)

// bucketTest makes archives as a broker would leave them, in a store of either kind.
type bucketTest struct {
	*testing.T
	store objstore.Store
	ids   uint64
}

// onStores runs a test on an archive in memory and on one in a directory.
func onStores(t *testing.T, f func(*bucketTest)) {
	t.Run("mem", func(t *testing.T) { f(&bucketTest{T: t, store: objstore.NewMem()}) })
	t.Run("dir", func(t *testing.T) {
		s, err := filestore.Open(filestore.Config{Dir: t.TempDir(), MinFree: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		f(&bucketTest{T: t, store: s})
	})
}

func (t *bucketTest) put(key string, b []byte) {
	t.Helper()
	if err := t.store.Put(t.Context(), key, bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatal(err)
	}
}

func (t *bucketTest) get(key string) []byte {
	t.Helper()
	b, err := objstore.ReadAll(t.Context(), t.store, key, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (t *bucketTest) keys() []string {
	t.Helper()
	var keys []string
	err := t.store.List(t.Context(), "", func(o objstore.Object) error { keys = append(keys, o.Key); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// damage changes a byte of an object.
func (t *bucketTest) damage(key string, at int) {
	t.Helper()
	b := t.get(key)
	b[at] ^= 1
	t.put(key, b)
}

func (t *bucketTest) remove(key string) {
	t.Helper()
	if err := t.store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

func (t *bucketTest) id() uint64 { t.ids++; return t.ids }

// owner writes firn.json.
func (t *bucketTest) owner(archive string) Identity {
	id := Identity{Format: 1, ClusterID: "cluster-1", ArchiveID: archive}
	t.put(identityKey, encodeJSON(id))
	return id
}

func (t *bucketTest) topic(name string, parts int32) Partition {
	t.Helper()
	p := Partition{Topic: name, ID: TopicID{1: byte(len(name)), 15: name[0]}}
	if err := putTopic(t.Context(), t.store, TopicInfo{Name: name, ID: p.ID, Partitions: parts, Configs: map[string]string{"segment.bytes": "1048576"}}); err != nil {
		t.Fatal(err)
	}
	return p
}

// testSegment is a sealed segment and all that comes with it.
type testSegment struct {
	log []byte
	x   Index
}

// seal makes the segment of offsets [base, end), a record each second, stamped
// with epoch, batches of 10 and values of size bytes.
func (t *bucketTest) seal(p Partition, base, end int64, epoch, size int) testSegment {
	t.Helper()
	var s testSegment
	x := &s.x
	for at := base; at < end; at += 10 {
		b := batch.NewBuilder(batch.Spec{})
		for o := at; o < min(at+10, end); o++ {
			b.Add(1_700_000_000_000+o*1000, fmt.Appendf(nil, "key-%d", o), bytes.Repeat([]byte{byte(o)}, size))
		}
		made, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		made.SetBaseOffset(at)
		made.SetLeaderEpoch(int32(epoch))
		x.OffsetIndex = binary.BigEndian.AppendUint32(x.OffsetIndex, uint32(at-base))
		x.OffsetIndex = binary.BigEndian.AppendUint32(x.OffsetIndex, uint32(len(s.log)))
		s.log = append(s.log, made...)
	}
	found, err := scan(bytes.NewReader(s.log), int64(len(s.log)), make([]byte, BlockSize))
	if err != nil {
		t.Fatal(err)
	}
	x.TimeIndex = binary.BigEndian.AppendUint64(nil, uint64(found.MaxTime))
	x.TimeIndex = binary.BigEndian.AppendUint32(x.TimeIndex, uint32(end-1-base))
	x.Topic, x.Partition = p.ID, p.Num
	x.FileBase, x.End, x.BaseTime, x.MaxTime = base, end, found.BaseTime, found.MaxTime
	x.Size, x.Records, x.LogCRC, x.Blocks = int64(len(s.log)), found.Records, found.CRC, found.Blocks
	x.Units, x.Starts = found.Units, found.Starts
	x.Producers = producerSnapshot(end)
	x.Epochs = []segment.EpochStart{{Epoch: int32(epoch), Start: 0}}
	if epoch > 1 {
		x.Epochs = []segment.EpochStart{{Epoch: 1, Start: 0}, {Epoch: int32(epoch), Start: min(base, 500)}}
	}
	return s
}

// upload puts a segment's objects and returns its entry, which serves from `from`.
func (t *bucketTest) upload(p Partition, s testSegment, from int64, epoch int32) Entry {
	object := s.x.AppendTo(nil)
	e := Entry{
		Base: from, End: s.x.End, FileBase: s.x.FileBase, ObjectBase: s.x.FileBase, BaseTime: s.x.BaseTime, MaxTime: s.x.MaxTime,
		Size: s.x.Size, Records: s.x.Records, ID: t.id(), Epoch: epoch, LogCRC: s.x.LogCRC,
		IdxCRC: Checksum(object), IdxSize: int64(len(object)), Epochs: s.x.EpochsOf(from, s.x.End),
	}
	t.put(e.LogKey(p), s.log)
	t.put(e.IndexKey(p), object)
	return e
}

// archive uploads segments of 100 offsets each from `from` on.
func (t *bucketTest) archive(p Partition, from int64, n int, epoch int) []Entry {
	var list []Entry
	for range n {
		list = append(list, t.upload(p, t.seal(p, from, from+100, epoch, 100), from, int32(epoch)))
		from += 100
	}
	return list
}

// manifest writes one that names entries after prev, which may be nil.
func (t *bucketTest) manifest(p Partition, epoch int32, prev *manifestNode, logStart int64, pages []PageRef, entries []Entry) *manifestNode {
	t.Helper()
	m := &Manifest{Topic: p.ID, Partition: p.Num, Epoch: epoch, Seq: 1, LogStart: logStart, ArchivedEnd: logStart, LastEpoch: -1, Pages: pages, Entries: entries}
	if prev != nil {
		m.Seq, m.PrevKey, m.PrevCRC = prev.Seq+1, prev.key, prev.crc
	}
	if n := len(entries); n > 0 {
		m.ArchivedEnd, m.LastEpoch = entries[n-1].End, entries[n-1].LastEpoch()
	}
	object := m.AppendTo(nil)
	if _, err := DecodeManifest(object); err != nil {
		t.Fatal(err)
	}
	key := Key{Kind: KindManifest, Partition: p, Epoch: epoch, Seq: m.Seq, ID: t.id()}.String()
	t.put(key, object)
	return &manifestNode{key: key, size: int64(len(object)), crc: Checksum(object), Manifest: m}
}

func (t *bucketTest) page(p Partition, epoch int32, entries []Entry) PageRef {
	pg := &Page{Topic: p.ID, Partition: p.Num, Entries: entries}
	object := pg.AppendTo(nil)
	ref := pg.Ref(epoch, t.id(), object)
	t.put(ref.Key(p), object)
	return ref
}

// standard is an archive of two topics: "events" with two partitions, of which
// 0 has a page and two epochs, and "gone", which is deleted.
func (t *bucketTest) standard() (p0 Partition, entries []Entry, last *manifestNode) {
	t.owner("archive-1")
	p0 = t.topic("events", 3)
	entries = t.archive(p0, 0, 5, 1)
	m := t.manifest(p0, 1, nil, 0, nil, entries)
	ref := t.page(p0, 4, entries[:4])
	entries = append(entries, t.archive(p0, 500, 3, 4)...)
	last = t.manifest(p0, 4, m, 0, []PageRef{ref}, entries[4:])
	p1 := p0
	p1.Num = 1
	t.manifest(p1, 2, nil, 0, nil, t.archive(p1, 0, 2, 2))
	gone := t.topic("gone", 1)
	t.manifest(gone, 1, nil, 0, nil, t.archive(gone, 0, 1, 1))
	if err := putTombstone(t.Context(), t.store, Tombstone{Name: "gone", ID: gone.ID, Time: 5}); err != nil {
		t.Fatal(err)
	}
	return p0, entries, last
}

func TestBucketTellsTopicsAndPartitions(t *testing.T) {
	onStores(t, func(t *bucketTest) {
		p0, entries, last := t.standard()
		t.put("some/other~thing/x", nil)
		t.put("probe/x", nil)
		b := NewBucket(t.store)
		if id, err := b.Identity(t.Context()); err != nil || id.ArchiveID != "archive-1" {
			t.Errorf("Identity = %+v, %v", id, err)
		}
		topics, err := b.Topics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tp := range topics {
			got = append(got, fmt.Sprintf("%s %d %v described=%t deleted=%t", tp.Info.Name, tp.Info.Partitions, tp.Partitions, tp.Described, tp.Deleted))
		}
		want := []string{"events 3 [0 1] described=true deleted=false", "gone 1 [0] described=true deleted=true"}
		if !slices.Equal(got, want) {
			t.Errorf("Topics = %q\nwant %q", got, want)
		}
		bp, err := b.Partition(t.Context(), p0)
		if err != nil {
			t.Fatal(err)
		}
		if bp.United || bp.Pointer.ManifestKey != last.key || bp.Pointer.ManifestCRC != last.crc || bp.Pointer.ArchivedEnd != 800 || bp.MaxEpoch != 4 || bp.MaxSeq != 2 {
			t.Errorf("Partition = %+v", bp)
		}
		if err := bp.Manifest.Check(p0, bp.Pointer); err != nil {
			t.Error(err)
		}
		i := 0
		for e, err := range b.Entries(t.Context(), bp) {
			if err != nil || e.ID != entries[i].ID {
				t.Fatalf("entry %d: %+v, %v", i, e, err)
			}
			i++
		}
		if i != len(entries) {
			t.Errorf("%d entries, want %d", i, len(entries))
		}
		p2 := p0
		p2.Num = 2
		if bp, err := b.Partition(t.Context(), p2); err != nil || bp.Manifest != nil || bp.MaxEpoch != -1 {
			t.Errorf("a partition without an archive: %+v, %v", bp, err)
		}
	})
}

func TestBucketWithoutIdentityIsNone(t *testing.T) {
	b := NewBucket(objstore.NewMem())
	if _, err := b.Identity(t.Context()); !errors.Is(err, objstore.ErrNotFound) || !strings.Contains(err.Error(), "firn.json") {
		t.Errorf("Identity = %v", err)
	}
}

func TestVerifyAcceptsWhatIsWhole(t *testing.T) {
	onStores(t, func(t *bucketTest) {
		p0, _, _ := t.standard()
		orphan := t.upload(p0, t.seal(p0, 800, 900, 4, 10), 800, 4)
		var told []VerifyProgress
		r, err := NewBucket(t.store).Verify(t.Context(), VerifyOptions{Progress: func(p VerifyProgress) { told = append(told, p) }})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Problems) != 0 {
			t.Errorf("problems: %v", r.Problems)
		}
		if r.Topics != 1 || r.Partitions != 2 || r.Segments != 10 || r.Records != 1000 || r.Orphans != 2 || r.OrphanBytes != orphan.Size+orphan.IdxSize {
			t.Errorf("report %+v", r)
		}
		if n := len(told); n != 10 || told[7].Segments != 8 || told[7].Total != 8 || told[7].Bytes != told[7].OfBytes {
			t.Errorf("progress %+v", told)
		}
	})
}

// TestWhatIsNotInTheArchiveIsAnError, which names what is; a partition of which
// nothing is archived yet is there.
func TestWhatIsNotInTheArchiveIsAnError(t *testing.T) {
	topics := []BucketTopic{
		{Info: TopicInfo{Name: "a", Partitions: 3}, Partitions: []int32{0}},
		{Info: TopicInfo{Name: "b", Partitions: 1}}, {Info: TopicInfo{Name: "b", Partitions: 2}},
	}
	for _, c := range []struct {
		topic string
		parts []int32
		say   string
	}{
		{"", nil, ""}, {"a", nil, ""}, {"a", []int32{2}, ""}, {"b", []int32{1}, ""},
		{"a", []int32{3}, "no partition 3 of a, which has 3"},
		{"a", []int32{-1}, "no partition -1 of a"},
		{"c", nil, "no topic c, but a, b"},
	} {
		err := Lacks(topics, c.topic, c.parts)
		if (err == nil) != (c.say == "") || err != nil && (!strings.Contains(err.Error(), c.say) || !errors.Is(err, objstore.ErrNotFound)) {
			t.Errorf("%s %v: %v, want %q", c.topic, c.parts, err, c.say)
		}
	}
	if err := Lacks(nil, "c", nil); err == nil || !strings.Contains(err.Error(), "none at all") {
		t.Errorf("an empty archive: %v", err)
	}
}

func TestVerifyFindsEverything(t *testing.T) {
	onStores(t, func(t *bucketTest) {
		p := t.topic("events", 1)
		t.owner("a")
		big := t.upload(p, t.seal(p, 0, 100, 1, 30_000), 0, 1) // three blocks
		list := append([]Entry{big}, t.archive(p, 100, 9, 1)...)
		list[9].Records++ // the entry lies
		ref := t.page(p, 1, list[3:5])
		t.manifest(p, 1, nil, 0, []PageRef{t.page(p, 1, list[:3]), ref}, list[5:])

		t.damage(big.LogKey(p), 2_500_000)
		t.remove(list[1].LogKey(p))
		t.remove(list[2].IndexKey(p))
		t.remove(ref.Key(p))
		t.put(list[5].LogKey(p), t.get(list[5].LogKey(p))[:list[5].Size-1])
		t.damage(list[6].IndexKey(p), 100)
		// A file whose checksums agree, but whose batches are not whole.
		s := t.seal(p, 700, 800, 1, 100)
		copy(s.log[200:], "damaged before it was uploaded")
		t.put(list[7].LogKey(p), s.log)

		r, err := NewBucket(t.store).Verify(t.Context(), VerifyOptions{Topic: "events"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range r.Problems {
			got = append(got, fmt.Sprintf("[%d,%d) %s", p.From, p.Below, p.What))
		}
		want := []string{
			"[0,100) *block 2 has another checksum",
			"[100,200) missing",
			"[200,300) missing",
			"[300,500) missing",
			"[500,600) *shorter",
			"[600,700) *corrupt",
			"[700,800) *block 0 has another checksum",
			"[900,1000) *is not the index of its entry",
			"[900,1000) *its entry says",
		}
		if len(got) != len(want) {
			t.Fatalf("found\n%s", strings.Join(got, "\n"))
		}
		for i := range want {
			at, what, _ := strings.Cut(want[i], " ")
			if !strings.HasPrefix(got[i], at+" ") || !strings.Contains(got[i], strings.TrimPrefix(what, "*")) {
				t.Errorf("problem %d: %s\nwant %s", i, got[i], want[i])
			}
		}
	})
}

// A topic.json that is damaged or gone hides nothing else.
func TestTopicsWithoutDescription(t *testing.T) {
	onStores(t, func(t *bucketTest) {
		p, _, _ := t.standard()
		key := Key{Kind: KindTopic, Partition: p}.String()
		for _, wreck := range []func(){func() { t.put(key, []byte("{")) }, func() { t.remove(key) }} {
			wreck()
			r, err := NewBucket(t.store).Verify(t.Context(), VerifyOptions{})
			if err != nil || len(r.Problems) != 1 || r.Problems[0].Key != key || r.Segments != 10 {
				t.Errorf("Verify = %+v, %v", r, err)
			}
			plan, err := PlanRestore(t.Context(), t.store, RestoreOptions{})
			if err != nil || len(plan.Problems) != 1 || plan.Topics[0].Described || plan.Topics[0].Info.Partitions != 2 || plan.Topics[0].Partitions[0].Pointer.ArchivedEnd != 800 {
				t.Errorf("PlanRestore = %+v, %v", plan, err)
			}
		}
	})
}

func TestVerifyOfAnOutageSaysNothingAboutTheArchive(t *testing.T) {
	bt := &bucketTest{T: t, store: objstore.NewMem()}
	_, entries, _ := bt.standard()
	down := errors.New("connection refused")
	f := objstore.Inject(bt.store, func(op objstore.Op) objstore.Fault {
		if op.Kind == objstore.OpGet && strings.Contains(op.Key, fmt.Sprintf("%016x.log", entries[5].ID)) {
			return objstore.Fault{Before: down}
		}
		return objstore.Fault{}
	})
	if r, err := NewBucket(f).Verify(t.Context(), VerifyOptions{}); !errors.Is(err, down) || len(r.Problems) != 0 {
		t.Errorf("Verify = %v, problems %v", err, r.Problems)
	}
	// A stream that breaks off is taken up where it ended.
	var n atomic.Int32
	f.Set(func(op objstore.Op) objstore.Fault {
		if op.Kind == objstore.OpGet && strings.HasSuffix(op.Key, ".log") && n.Add(1)%2 == 0 {
			return objstore.Fault{Cut: down, CutAt: 1000}
		}
		return objstore.Fault{}
	})
	if r, err := NewBucket(f).Verify(t.Context(), VerifyOptions{Workers: 1}); err != nil || len(r.Problems) != 0 {
		t.Errorf("with broken streams: %v, %v", err, r.Problems)
	}
}

// producerSnapshot is a .snapshot file that knows one producer, whose id is end.
func producerSnapshot(end int64) []byte {
	be := binary.BigEndian
	body := be.AppendUint32(nil, 1)
	body = be.AppendUint64(body, uint64(end))
	body = be.AppendUint16(body, 0)             // epoch
	body = be.AppendUint32(body, 0)             // last sequence
	body = be.AppendUint64(body, uint64(end-1)) // last offset
	body = be.AppendUint32(body, 0)             // offset delta
	body = be.AppendUint64(body, 0)             // timestamp
	body = be.AppendUint32(body, 0)             // coordinator epoch
	body = be.AppendUint64(body, math.MaxUint64)
	head := be.AppendUint32(be.AppendUint16(nil, 1), crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return append(head, body...)
}
