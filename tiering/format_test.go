package tiering

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"firn/segment"
)

var testPart = Partition{Topic: "orders.eu", ID: TopicID{1, 2, 3, 0xfb, 0xff}, Num: 7}

// someEntries makes n contiguous entries from base on, with all that varies.
func someEntries(rng *rand.Rand, base int64, n int) []Entry {
	list := make([]Entry, n)
	ts := int64(1_600_000_000_000)
	for i := range list {
		e := &list[i]
		e.Base, e.End = base, base+1+rng.Int64N(100_000)
		e.FileBase = base - min(base, rng.Int64N(3)*17)
		e.ObjectBase = e.FileBase
		e.BaseTime = ts + rng.Int64N(1000) - 500
		e.MaxTime = e.BaseTime + rng.Int64N(60_000)
		e.Size, e.Records = 64<<20+rng.Int64N(1000), e.End-e.FileBase-rng.Int64N(2)*min(5, e.End-e.FileBase)
		e.ID, e.Epoch = rng.Uint64(), int32(3+i/100)
		e.LogCRC, e.IdxCRC, e.IdxSize = rng.Uint32(), rng.Uint32(), 100_000+rng.Int64N(1000)
		e.Aborted = rng.IntN(10) == 0
		if rng.IntN(20) == 0 {
			e.ObjectBase, e.Offset = e.FileBase, 4096
		}
		e.Epochs = []segment.EpochStart{{Epoch: int32(3 + i/100), Start: e.Base}}
		if e.End-e.Base > 50 && rng.IntN(10) == 0 {
			e.Epochs = append(e.Epochs, segment.EpochStart{Epoch: int32(4 + i/100), Start: e.Base + 50})
		}
		base, ts = e.End, e.MaxTime
	}
	return list
}

func someManifest(entries []Entry) *Manifest {
	last := &entries[len(entries)-1]
	return &Manifest{
		Topic: testPart.ID, Partition: testPart.Num, Epoch: 9, Seq: 42,
		PrevKey: Key{Kind: KindManifest, Partition: testPart, Epoch: 8, Seq: 41, ID: 5}.String(), PrevCRC: 77,
		LogStart: entries[0].Base + 1, DeletedThrough: entries[0].Base, ArchivedEnd: last.End, LastEpoch: last.LastEpoch(),
		Entries: entries,
	}
}

func someIndex() *Index {
	x := &Index{
		Topic: testPart.ID, Partition: testPart.Num, FileBase: 100, End: 400, BaseTime: -1, MaxTime: 5000,
		Size: 2*BlockSize + 5, Records: 300, Aborted: true, LogCRC: 99, Producers: []byte("snapshot"),
		Epochs: []segment.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 2, Start: 150}, {Epoch: 5, Start: 300}},
		Blocks: []uint32{1, 2, 3}, TxnIndex: make([]byte, txnEntry),
	}
	for i := range uint32((x.Size + UnitSize - 1) / UnitSize) {
		x.Units = append(x.Units, 100+i)
	}
	x.Starts = []BatchStart{{100, 0}, {150, 70_000}, {320, BlockSize + 3}}
	for i, rel := range []byte{10, 50, 200} {
		x.OffsetIndex = append(x.OffsetIndex, 0, 0, 0, rel, 0, byte(i+1), 0, 0)
	}
	for i, rel := range []byte{10, 50, 200} {
		x.TimeIndex = append(x.TimeIndex, 0, 0, 0, 0, 0, 0, byte(i+1), 0, 0, 0, 0, rel)
	}
	return x
}

func TestFormatsRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 1; n < 40; n++ {
		m := someManifest(someEntries(rng, rng.Int64N(1000), n))
		got, err := DecodeManifest(m.AppendTo(nil))
		if err != nil || !sameList(got.Entries, m.Entries) {
			t.Fatalf("manifest of %d entries: %v\n got %+v\nwant %+v", n, err, got, m)
		}
		p := &Page{Topic: testPart.ID, Partition: 7, Entries: m.Entries}
		object := p.AppendTo(nil)
		back, err := DecodePage(object)
		if err != nil || !sameList(back.Entries, p.Entries) {
			t.Fatalf("page of %d entries: %v", n, err)
		}
		ref := p.Ref(4, 5, object)
		if err := back.Check(testPart, &ref); err != nil {
			t.Fatal(err)
		}
		ref.Records++
		if err := back.Check(testPart, &ref); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("a page passed for another: %v", err)
		}
	}
	x := someIndex()
	for _, version := range []byte{2, 1} {
		object := x.AppendTo([]byte("prefix"))[6:]
		back, err := DecodeIndex(object)
		if err != nil || !reflect.DeepEqual(back, x) || object[5] != version {
			t.Fatalf("index, version %d: %v\n got %+v\nwant %+v", object[5], err, back, x)
		}
		x.Units, x.Starts = nil, nil
	}
}

func TestIndexWhoseStartsDoNotRiseIsCorrupt(t *testing.T) {
	for name, starts := range map[string][]BatchStart{
		"offset stands still":   {{100, 0}, {100, 70_000}},
		"position stands still": {{100, 0}, {101, 0}},
		"past the end":          {{100, 0}, {400, 70_000}},
		"past the file":         {{100, 0}, {101, 2*BlockSize + 5}},
	} {
		x := someIndex()
		x.Starts = starts
		if _, err := DecodeIndex(x.AppendTo(nil)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func sameList(a, b []Entry) bool { return reflect.DeepEqual(a, b) }

func TestEveryByteIsCovered(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := someManifest(someEntries(rng, 0, 3))
	for name, c := range map[string]struct {
		object []byte
		decode func([]byte) error
	}{
		"manifest": {m.AppendTo(nil), func(b []byte) error { _, err := DecodeManifest(b); return err }},
		"page":     {(&Page{Entries: m.Entries}).AppendTo(nil), func(b []byte) error { _, err := DecodePage(b); return err }},
		"index":    {someIndex().AppendTo(nil), func(b []byte) error { _, err := DecodeIndex(b); return err }},
	} {
		for i := range c.object {
			if i == 6 || i == 7 {
				continue // reserved
			}
			b := bytes.Clone(c.object)
			b[i] ^= 0x40
			err := c.decode(b)
			if i == 4 || i == 5 {
				if !errors.Is(err, ErrVersion) || errors.Is(err, ErrCorrupt) {
					t.Fatalf("%s of a newer version: %v", name, err)
				}
			} else if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s with byte %d changed: %v", name, i, err)
			}
			if err := c.decode(c.object[:i]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s cut to %d: %v", name, i, err)
			}
		}
	}
}

func TestManifestWithAHoleIsCorrupt(t *testing.T) {
	for name, spoil := range map[string]func(*Manifest){
		"hole between entries":       func(m *Manifest) { m.Entries = append(m.Entries[:2:2], m.Entries[3:]...) },
		"starts past the log start":  func(m *Manifest) { m.Entries = m.Entries[1:] },
		"ends before archived end":   func(m *Manifest) { m.ArchivedEnd++ },
		"ends past the archived end": func(m *Manifest) { m.ArchivedEnd-- },
		"page does not join": func(m *Manifest) {
			m.LogStart, m.DeletedThrough = 2, 2
			m.Pages = []PageRef{{Base: 0, End: 9, Count: 1}}
		},
	} {
		m := someManifest(someEntries(rand.New(rand.NewPCG(3, 4)), 10, 6))
		spoil(m)
		if _, err := DecodeManifest(m.AppendTo(nil)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Below the log start, where nothing is served, a gap is what a log start
	// past the archived end left behind (T8).
	m := someManifest(someEntries(rand.New(rand.NewPCG(3, 4)), 10, 6))
	m.LogStart = m.Entries[3].Base
	m.Entries = append(m.Entries[:2:2], m.Entries[3:]...)
	if _, err := DecodeManifest(m.AppendTo(nil)); err != nil {
		t.Error(err)
	}
	m.LogStart, m.ArchivedEnd = m.ArchivedEnd+100, m.ArchivedEnd+100
	if _, err := DecodeManifest(m.AppendTo(nil)); err != nil {
		t.Error(err)
	}
}

func TestLocateFindsTheServingEntry(t *testing.T) {
	all := someEntries(rand.New(rand.NewPCG(5, 6)), 0, 30)
	m, pages := paged(all, 8)
	resolve := func(ref *PageRef, e *Entry, in func(*Page) *Entry) *Entry {
		if ref != nil {
			return in(pages[ref.Base])
		}
		return e
	}
	for i := range all {
		for _, off := range []int64{all[i].Base, (all[i].Base + all[i].End) / 2, all[i].End - 1} {
			ref, e := m.Locate(off)
			if got := resolve(ref, e, func(p *Page) *Entry { return p.Find(off) }); got == nil || got.Base != all[i].Base {
				t.Fatalf("offset %d: got %+v, want the entry at %d", off, got, all[i].Base)
			}
		}
	}
	if ref, e := m.Locate(m.ArchivedEnd); ref != nil || e != nil {
		t.Fatal("found something at the archived end")
	}
	for _, ts := range []int64{0, all[7].MaxTime, all[20].MaxTime + 1, math.MaxInt64} {
		for _, from := range []int64{0, all[9].Base, all[25].Base + 1} {
			want := firstAtTime(all, ts, from)
			at := from
			ref, e := m.FirstAtTime(ts, at)
			for ref != nil {
				if e = pages[ref.Base].FirstAtTime(ts, at); e != nil {
					break
				}
				at = ref.End
				ref, e = m.FirstAtTime(ts, at)
			}
			if (e == nil) != (want == nil) || e != nil && e.Base != want.Base {
				t.Fatalf("time %d from %d: got %+v, want %+v", ts, from, e, want)
			}
		}
	}
}

// paged makes a manifest of entries with all but the last of them in pages of n.
func paged(all []Entry, n int) (*Manifest, map[int64]*Page) {
	pages := map[int64]*Page{}
	m := someManifest(all)
	m.PrevKey = ""
	for len(m.Entries) > n {
		p := &Page{Topic: testPart.ID, Partition: testPart.Num, Entries: m.Entries[:n:n]}
		pages[p.Entries[0].Base] = p
		m.Pages = append(m.Pages, p.Ref(3, uint64(len(m.Pages)), p.AppendTo(nil)))
		m.Entries = m.Entries[n:]
	}
	return m, pages
}

func TestManifestOfManySegmentsIsSmall(t *testing.T) {
	for _, c := range []struct{ segments, limit int }{{10_000, 1 << 20}, {1_000_000, 10 << 20}} {
		m, _ := paged(someEntries(rand.New(rand.NewPCG(7, 8)), 0, c.segments), PageEntries)
		object := m.AppendTo(nil)
		m = nil
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		got, err := DecodeManifest(object)
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		heap := int(after.HeapAlloc) - int(before.HeapAlloc)
		t.Logf("%d segments: object %d bytes, heap %d bytes, %d pages", c.segments, len(object), heap, len(got.Pages))
		if heap > c.limit {
			t.Errorf("%d segments take %d bytes of heap, want at most %d", c.segments, heap, c.limit)
		}
		runtime.KeepAlive(got)
	}
}

func TestIndexSearch(t *testing.T) {
	x := someIndex()
	for _, c := range []struct{ offset, want int64 }{
		{0, 0}, {100, 0}, {109, 0}, {110, 1 << 16}, {149, 1 << 16}, {150, 2 << 16}, {299, 2 << 16}, {300, 3 << 16}, {399, 3 << 16},
	} {
		if got := x.Position(c.offset); got != c.want {
			t.Errorf("Position(%d) = %d, want %d", c.offset, got, c.want)
		}
	}
	for _, c := range []struct{ ts, want int64 }{{0, 100}, {256, 100}, {257, 110}, {512, 110}, {513, 150}, {1 << 40, 300}} {
		if got := x.TimeFloor(c.ts); got != c.want {
			t.Errorf("TimeFloor(%d) = %d, want %d", c.ts, got, c.want)
		}
	}
	for _, c := range []struct {
		base, end int64
		want      string
	}{
		{100, 400, "[{0 0} {2 150} {5 300}]"}, {160, 300, "[{2 150}]"}, {150, 301, "[{2 150} {5 300}]"}, {300, 400, "[{5 300}]"},
	} {
		if got := fmt.Sprint(x.EpochsOf(c.base, c.end)); got != c.want {
			t.Errorf("EpochsOf(%d, %d) = %s, want %s", c.base, c.end, got, c.want)
		}
	}
}

func TestKeysParseToThemselves(t *testing.T) {
	for _, k := range []Key{
		{Kind: KindIdentity},
		{Kind: KindTopic, Partition: Partition{Topic: "a_b-c.d", ID: testPart.ID}},
		{Kind: KindDeleted, Partition: Partition{Topic: "a_b-c.d", ID: testPart.ID}},
		{Kind: KindLog, Partition: testPart, Base: math.MaxInt64, Epoch: math.MaxInt32, ID: math.MaxUint64},
		{Kind: KindIndex, Partition: testPart, Base: 5, Epoch: 0, ID: 1},
		{Kind: KindManifest, Partition: testPart, Epoch: 4, Seq: 12, ID: 0xabc},
		{Kind: KindPage, Partition: testPart, Base: 1, Last: 99, Epoch: 3, ID: 0xabc},
	} {
		got, ok := ParseKey(k.String())
		if !ok || got != k {
			t.Errorf("ParseKey(%s) = %+v, %t", k, got, ok)
		}
	}
	id := testPart.ID.String()
	for _, s := range []string{
		"", "firn.json/", "x", "t~" + id, "t~" + id + "/0", "t~" + id + "/0/x.log",
		"t~" + id + "/0/5-1-0000000000000abc.log",                                        // base not 20 digits
		"t~" + id + "/0/00000000000000000005-1-0000000000000ABC.log",                     // upper case
		"t~" + id + "/0/00000000000000000005-01-0000000000000abc.log",                    // epoch with a zero
		"t~" + id + "/00/00000000000000000005-1-0000000000000abc.log",                    // partition with a zero
		"t~" + id + "/0/00000000000000000005-1-0000000000000abc.tmp",                     // not ours
		"t~" + strings.ToLower(id) + "x/0/00000000000000000005-1-0000000000000abc.log",   // id too long
		"t~t~" + id + "/0/00000000000000000005-1-0000000000000abc.log",                   // tilde in the name
		"t~" + id + "/0/manifest/1-00000000000000000005-0000000000000abc",                // epoch not 10 digits
		"t~" + id + "/0/page/00000000000000000005-00000000000000000009-0000000000000abc", // no epoch
	} {
		if k, ok := ParseKey(s); ok {
			t.Errorf("ParseKey(%q) = %+v", s, k)
		}
	}
}

func FuzzDecodeManifest(f *testing.F) {
	m, _ := paged(someEntries(rand.New(rand.NewPCG(1, 2)), 0, 20), 8)
	f.Add(m.AppendTo(nil)[frameHeader:])
	fuzzFrame(f, manifestMagic, manifestVersion, func(b []byte) ([]byte, error) {
		m, err := DecodeManifest(b)
		if err != nil {
			return nil, err
		}
		return m.AppendTo(nil), nil
	})
}

func FuzzDecodePage(f *testing.F) {
	f.Add((&Page{Entries: someEntries(rand.New(rand.NewPCG(1, 2)), 0, 3)}).AppendTo(nil)[frameHeader:])
	fuzzFrame(f, pageMagic, pageVersion, func(b []byte) ([]byte, error) {
		p, err := DecodePage(b)
		if err != nil {
			return nil, err
		}
		return p.AppendTo(nil), nil
	})
}

func FuzzDecodeIndex(f *testing.F) {
	f.Add(someIndex().AppendTo(nil)[frameHeader:])
	fuzzFrame(f, indexMagic, indexVersion, func(b []byte) ([]byte, error) {
		x, err := DecodeIndex(b)
		if err != nil {
			return nil, err
		}
		for _, off := range []int64{0, x.FileBase, x.End - 1, math.MaxInt64} {
			if pos := x.Position(off); pos < 0 || pos >= x.Size {
				panic("position outside the file")
			}
			if o := x.TimeFloor(off); o < x.FileBase || o >= x.End {
				panic("offset outside the file")
			}
		}
		x.EpochsOf(x.FileBase, x.End)
		return x.AppendTo(nil), nil
	})
}

// fuzzFrame fuzzes a body in a frame with a right checksum: what decodes must
// encode to something that decodes to the same.
func fuzzFrame(f *testing.F, magic string, version uint16, again func([]byte) ([]byte, error)) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = again(body) // without a frame
		first, err := again(appendFrame(nil, magic, version, func(dst []byte) []byte { return append(dst, body...) }))
		if err != nil {
			return
		}
		second, err := again(first)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("decoded once but not twice: %v", err)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add(Key{Kind: KindPage, Partition: testPart, Base: 1, Last: 99, Epoch: 3, ID: 0xabc}.String())
	f.Add(Key{Kind: KindLog, Partition: testPart, Base: 1, Epoch: 3, ID: 0xabc}.String())
	f.Fuzz(func(t *testing.T, s string) {
		if k, ok := ParseKey(s); ok && k.String() != s {
			t.Fatalf("%q parses to %+v", s, k)
		}
	})
}
