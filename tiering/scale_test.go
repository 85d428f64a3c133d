package tiering

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/objstore"
)

// TestFirstByteOfManySegments: a fresh process with ten thousand archived
// segments in one partition reads its first byte after a handful of GETs.
func TestFirstByteOfManySegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := leading(t)
		b.append(60)
		if err := b.log.Local().Roll(w.now()); err != nil {
			t.Fatal(err)
		}
		b.mustUpload()
		b.crash()
		m, err := fetchManifest(t.Context(), w.bucket, testPart, w.pointer())
		if err != nil {
			t.Fatal(err)
		}
		// Another ten thousand segments after it, whose objects nobody reads here.
		more := someEntries(rand.New(rand.NewPCG(1, 1)), m.ArchivedEnd, 10_000)
		next := *m
		next.Seq, next.PrevKey, next.PrevCRC = m.Seq+1, w.pointer().ManifestKey, w.pointer().ManifestCRC
		next.Entries = append(next.Entries, more...)
		for i := range next.Entries {
			e := &next.Entries[i]
			e.FileBase, e.Records, e.ObjectBase, e.Offset = e.Base, e.End-e.Base, e.Base, 0
			e.Epochs = []segment.EpochStart{{Epoch: 1, Start: 0}}
		}
		last := &next.Entries[len(next.Entries)-1]
		next.ArchivedEnd, next.LastEpoch = last.End, 1
		for len(next.Entries) >= 2*PageEntries {
			page := &Page{Topic: m.Topic, Partition: m.Partition, Entries: next.Entries[:PageEntries:PageEntries]}
			object := page.AppendTo(nil)
			ref := page.Ref(1, uint64(len(next.Pages)), object)
			if err := w.bucket.Put(t.Context(), ref.Key(testPart), bytes.NewReader(object), int64(len(object))); err != nil {
				t.Fatal(err)
			}
			next.Pages, next.Entries = append(next.Pages, ref), next.Entries[PageEntries:]
		}
		// The last index, which the wiped disk starts from.
		first, err := DecodeIndex(w.object(m.Entries[0].IndexKey(testPart)))
		if err != nil {
			t.Fatal(err)
		}
		x := Index{
			Topic: testPart.ID, Partition: testPart.Num, FileBase: last.FileBase, End: last.End, BaseTime: last.BaseTime, MaxTime: last.MaxTime,
			Size: last.Size, Records: last.Records, Aborted: last.Aborted, LogCRC: last.LogCRC, Epochs: last.Epochs, Producers: first.Producers,
			Blocks: make([]uint32, (last.Size+BlockSize-1)/BlockSize),
		}
		idx := x.AppendTo(nil)
		last.IdxSize, last.IdxCRC = int64(len(idx)), Checksum(idx)
		if err := w.bucket.Put(t.Context(), last.IndexKey(testPart), bytes.NewReader(idx), int64(len(idx))); err != nil {
			t.Fatal(err)
		}
		object := next.AppendTo(nil)
		key := Key{Kind: KindManifest, Partition: testPart, Epoch: 1, Seq: next.Seq, ID: 1}.String()
		if err := w.bucket.Put(t.Context(), key, bytes.NewReader(object), int64(len(object))); err != nil {
			t.Fatal(err)
		}
		ptr := next.Pointer(key, object)
		ptr.Version = w.pointer().Version
		w.pointers.set(testPart, ptr)

		start, gets := time.Now(), w.gets.Load()
		b = w.start(newDisk(), w.defaults())
		if next := b.read(0, segment.UntilHighWatermark); next <= 0 {
			t.Fatal("nothing read")
		}
		gets = w.gets.Load() - gets
		t.Logf("first byte after %v and %d GETs; manifest object %d bytes", time.Since(start), gets, len(object))
		if gets > 12 { // five to eight, as reads ahead fall; a GET for each of its pages would be forty
			t.Errorf("%d GETs for the first byte", gets)
		}
		v := b.log.view.Load()
		if len(v.manifest.Pages) < 35 || len(v.manifest.Entries) >= 2*PageEntries {
			t.Fatalf("%d pages, %d entries", len(v.manifest.Pages), len(v.manifest.Entries))
		}
	})
}

// BenchmarkDescribe is what an upload does besides its two requests: it reads
// and verifies a segment, here one of 16 MiB on disk, and makes its index.
func BenchmarkDescribe(b *testing.B) {
	dir, err := segment.OpenDir(segment.DirConfig{Path: b.TempDir(), MinFreeBytes: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close(segment.CleanMark{})
	local, err := dir.Open(segment.TopicPartition{Topic: testPart.Topic, Partition: testPart.Num}, testPart.ID, segment.Options{Archived: true})
	if err != nil {
		b.Fatal(err)
	}
	for range 16 << 20 / (64 << 10) {
		bb := batch.NewBuilder(batch.Spec{})
		for range 64 {
			bb.Add(1, nil, make([]byte, 1000))
		}
		bt, err := bb.Build()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := local.Append(bt, segment.AppendOptions{Now: 1}); err != nil {
			b.Fatal(err)
		}
	}
	if err := local.Roll(time.Now()); err != nil {
		b.Fatal(err)
	}
	pointers := NewMemPointers()
	pointers.Elect(testPart, 0)
	a := New(Config{Store: objstore.NewMem(), Pointers: pointers})
	defer a.Close()
	l, err := a.Open(b.Context(), local, PartitionConfig{Partition: testPart, Policy: Policy{Enabled: true}})
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Lead(b.Context(), 0); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(16 << 20)
	b.ReportAllocs()
	for b.Loop() {
		f, err := local.OpenSealed(0)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := l.describe(l.lead.Load(), f); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
