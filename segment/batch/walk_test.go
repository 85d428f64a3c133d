package batch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// big makes a batch of about a MiB of records of all sizes.
func big(t testing.TB, spec Spec) Batch {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	b := NewBuilder(spec)
	for i := range 200 {
		value := bytes.Repeat([]byte(fmt.Sprintf("%d,", rng.Uint64())), 1<<rng.IntN(12))
		b.Add(int64(i), []byte("key"), value, Header{"a", []byte("b")})
	}
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func TestEveryCodecSaysTheSame(t *testing.T) {
	want := dumpAll(t, big(t, Spec{BaseOffset: 7}))
	for _, codec := range codecs {
		for _, level := range []int{0, -1, 1, 9, 17, 22} {
			b := big(t, Spec{BaseOffset: 7, Codec: codec, Level: level})
			if err := refusal(b); err != nil {
				t.Errorf("%v %d: %v", codec, level, err)
			}
			if got := dumpAll(t, b); !slices.Equal(got, want) {
				t.Errorf("%v %d: got %d records that differ", codec, level, len(got))
			}
		}
	}
}

func TestWalkStopsWhenAsked(t *testing.T) {
	mine := errors.New("mine")
	for _, codec := range codecs {
		b := big(t, Spec{Codec: codec})
		for _, c := range []struct{ say, want error }{{Stop, nil}, {mine, mine}} {
			n := 0
			err := Walk(b, Limit{}, func(Record) error {
				if n++; n == 3 {
					return c.say
				}
				return nil
			})
			if err != c.want || n != 3 {
				t.Errorf("%v: got %v after %d, want %v after 3", codec, err, n, c.want)
			}
		}
	}
}

func TestAWalkMayWalk(t *testing.T) {
	b := build(t, Spec{Codec: Zstd}, 3)
	n := 0
	err := Walk(b, Limit{}, func(Record) error {
		return Walk(b, Limit{}, func(Record) error { n++; return nil })
	})
	if n != 9 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

// withRecords is a batch of count records whose encoding is raw.
func withRecords(t testing.TB, codec Codec, count int32, raw []byte) Batch {
	t.Helper()
	b := NewBuilder(Spec{Codec: codec})
	b.buf = append(b.buf, raw...)
	b.count = count
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func TestWalkRefusesRecordsThatDoNotFit(t *testing.T) {
	one := appendRecord(nil, 0, 0, []byte("k"), []byte("v"), []Header{{"h", nil}})
	two := appendRecord(nil, 0, 1, nil, nil, nil)
	with := func(at int, v byte) []byte {
		p := bytes.Clone(one)
		p[at] = v
		return p
	}
	// one: length 11, attributes, timestamp, offset, key 1 "k", value 1 "v", 1 header, "h" null.
	if len(one) != 12 || !bytes.Equal(one, []byte("\x16\x00\x00\x00\x02k\x02v\x02\x02h\x01")) {
		t.Fatalf("the record is not what this test takes apart: %q", one)
	}
	for _, c := range []struct {
		name  string
		count int32
		raw   []byte
	}{
		{"nothing", 1, nil},
		{"fewer than promised", 2, one},
		{"more than promised", 1, slices.Concat(one, two)},
		{"a byte more", 1, append(bytes.Clone(one), 0)},
		{"same offset twice", 2, slices.Concat(one, one)},
		{"falling offsets", 2, slices.Concat(two, one)},
		{"offset beyond the last", 1, two},
		{"negative offset", 1, with(3, 1)},
		{"length cut off", 1, []byte{0x80}},
		{"length never ends", 1, bytes.Repeat([]byte{0xff}, 12)},
		{"negative length", 1, with(0, 0x17)},
		{"length too small", 1, with(0, 0x14)},
		{"length too large", 1, with(0, 0x18)},
		{"length zero", 1, with(0, 0)},
		{"a byte behind the last header, inside", 1, append(with(0, 0x18), 0)},
		{"key longer than the record", 1, with(4, 0x7e)},
		{"value longer than the record", 1, with(6, 0x7e)},
		{"too many headers", 1, with(8, 0x7e)},
		{"negative headers", 1, with(8, 1)},
		{"null header key", 1, with(9, 1)},
		{"header value longer than the record", 1, with(11, 2)},
		{"offset of 64 bits", 1, appendRecordOffset(1 << 32)},
	} {
		for _, codec := range codecs {
			err := Walk(withRecords(t, codec, c.count, c.raw), Limit{}, func(Record) error { return nil })
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s, %v: got %v, want ErrInvalid", c.name, codec, err)
			}
		}
	}
}

// appendRecordOffset makes a record with an offset delta that is no int32.
func appendRecordOffset(delta int64) []byte {
	r := appendRecord(nil, delta, 0, nil, nil, nil)
	// Timestamp and offset delta change places: both are varints.
	return slices.Concat(r[:2], []byte{0}, r[2:len(r)-4], r[len(r)-3:])
}

func TestWalkOfDamagedStreams(t *testing.T) {
	for _, codec := range codecs[1:] {
		good := big(t, Spec{Codec: codec})
		for _, n := range []int{0, 1, 3, 5, 12, 17, 20, 100, len(good) / 2, len(good) - HeaderSize - 1} {
			cut := append(Batch{}, good[:HeaderSize+n]...)
			cut = changed(cut, atLength, u32(int32(len(cut)-lengthOverhead))...)
			if err := Walk(cut, Limit{}, func(Record) error { return nil }); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrInvalid) {
				t.Errorf("%v cut to %d: got %v", codec, n, err)
			}
		}
		// The same stream still decodes, which shows that the kept decoders recover.
		if got := dumpAll(t, good); len(got) != 200 {
			t.Errorf("%v: got %d records after the damage", codec, len(got))
		}
	}
}

func TestUnknownCodec(t *testing.T) {
	b := changed(build(t, Spec{}, 1), atAttributes, u16(6)...)
	if err := Walk(b, Limit{}, nil); !errors.Is(err, ErrUnknownCodec) {
		t.Errorf("walk: got %v", err)
	}
	if _, err := oneRecord(7).Build(); !errors.Is(err, ErrUnknownCodec) {
		t.Errorf("build: got %v", err)
	}
}

// oneRecord begins a batch of one record in codec.
func oneRecord(codec Codec) *Builder {
	b := NewBuilder(Spec{Codec: codec})
	b.Add(0, nil, nil)
	return b
}

// Levels 20 to 22 announce windows of up to 128 MiB.
func TestZstdOfWideWindows(t *testing.T) {
	value := make([]byte, 6<<20)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range value {
		value[i] = byte(rng.IntN(4))
	}
	record := appendRecord(nil, 0, 0, nil, value, nil)
	two := slices.Concat(record, appendRecord(nil, 0, 1, nil, value, nil))
	for _, c := range []struct {
		name   string
		raw    []byte
		count  int32
		opts   []zstd.EOption
		stream bool
	}{
		{"one segment within a window of ours", record, 1, []zstd.EOption{zstd.WithSingleSegment(true)}, false},
		{"one segment beyond it", two, 2, []zstd.EOption{zstd.WithSingleSegment(true)}, false},
		{"a stream of a wide window that needs none", record, 1, []zstd.EOption{zstd.WithWindowSize(64 << 20)}, true},
	} {
		var buf bytes.Buffer
		w, err := zstd.NewWriter(&buf, append(c.opts, zstd.WithEncoderConcurrency(1))...)
		if err != nil {
			t.Fatal(err)
		}
		var p []byte
		if c.stream {
			for part := range slices.Chunk(c.raw, 1<<20) {
				if _, err := w.Write(part); err != nil {
					t.Fatal(err)
				}
			}
			w.Close()
			p = buf.Bytes()
		} else {
			p = w.EncodeAll(c.raw, nil)
		}
		b := changed(wrap(Zstd, p), atCount, u32(c.count)...)
		b = changed(b, atLastOffsetDelta, u32(c.count-1)...)
		n := int32(0)
		err = Walk(b, Limit{}, func(r Record) error {
			if !bytes.Equal(r.Value, value) {
				t.Errorf("%s: record %d differs", c.name, n)
			}
			n++
			return nil
		})
		if err != nil || n != c.count {
			t.Errorf("%s: got %d records, %v, want %d", c.name, n, err, c.count)
		}
	}
	var h zstd.Header
	if err := h.Decode(golden(t, "java-zstd22.bin").Records()); err != nil || h.WindowSize <= zstdWindow {
		t.Errorf("Java at level 22: window of %d, %v: no test of a wide one", h.WindowSize, err)
	}
}

func TestXerialStreamsMayFollowOneAnother(t *testing.T) {
	one := withRecords(t, Snappy, 2, appendRecord(nil, 0, 0, nil, []byte("one"), nil))
	two := withRecords(t, Snappy, 2, appendRecord(nil, 0, 1, nil, []byte("two"), nil))
	both := append(append(Batch{}, one...), two.Records()...)
	both = changed(both, atLength, u32(int32(len(both)-lengthOverhead))...)
	got := strings.Join(dumpAll(t, both), "; ")
	if want := `0 @0 null="one"; 1 @0 null="two"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A copy from offset 0 means something to S2, snappy's successor, but a consumer
// would choke on it.
func TestSnappyIsNoS2(t *testing.T) {
	good := []byte("\x08\x0cabcd\x01\x04") // 8 bytes: abcd, and 4 from 4 back
	s2 := []byte("\x0c\x0cabcd\x01\x04\x01\x00")
	for p, want := range map[string]string{string(good): "abcdabcd", string(s2): ""} {
		var r snappyReader
		r.reset([]byte(p), 100)
		if got, err := io.ReadAll(&r); string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, %v", p, got, err)
		}
	}
}

func TestRecompressChangesNothingElse(t *testing.T) {
	for _, from := range codecs {
		b := big(t, Spec{BaseOffset: 99, LeaderEpoch: 4, Codec: from, Producer: &Producer{ID: 3, Epoch: 2, Sequence: 1}, Transactional: true})
		b.SetLogAppendTime(500)
		want := dumpAll(t, b)
		for _, to := range codecs {
			got, err := Recompress(b, to, 0, Limit{})
			if err != nil {
				t.Fatalf("%v to %v: %v", from, to, err)
			}
			if err := Verify(got); err != nil || got.Codec() != to {
				t.Errorf("%v to %v: %v, codec %v", from, to, err, got.Codec())
			}
			if !slices.Equal(dumpAll(t, got), want) {
				t.Errorf("%v to %v: other records", from, to)
			}
			back := changed(got, atAttributes, b[atAttributes:atAttributes+2]...)
			if !bytes.Equal(back[atLeaderEpoch:atCRC], b[atLeaderEpoch:atCRC]) || !bytes.Equal(back[atAttributes:HeaderSize], b[atAttributes:HeaderSize]) {
				t.Errorf("%v to %v: another header", from, to)
			}
			if to == None && from == None && !bytes.Equal(got, b) {
				t.Error("none to none: other bytes")
			}
		}
	}
}

func TestRecompressRefusesWhatWalkRefuses(t *testing.T) {
	b := withRecords(t, Zstd, 2, appendRecord(nil, 0, 0, nil, nil, nil))
	if _, err := Recompress(b, Gzip, 0, Limit{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestFilterKeepsOffsets(t *testing.T) {
	for _, codec := range codecs {
		b := build(t, Spec{BaseOffset: 10, Codec: codec, Producer: &Producer{ID: 1, Sequence: 7}}, 5)
		got, err := Filter(b, Limit{}, func(r Record) bool { return r.Offset%2 == 1 })
		if err != nil || Verify(got) != nil {
			t.Fatalf("%v: %v, %v", codec, err, Verify(got))
		}
		s := fmt.Sprint(got.Codec(), dumpAll(t, got), got.BaseOffset(), got.LastOffset(), got.Count(), got.MaxTimestamp(), got.LastSequence())
		if want := fmt.Sprint(codec, ` [11 @1001 "\x01"="value" 13 @1003 "\x03"="value"] 10 14 2 1003 11`); s != want {
			t.Errorf("got  %s\nwant %s", s, want)
		}
		none, err := Filter(b, Limit{}, func(Record) bool { return false })
		if err != nil || Verify(none) != nil {
			t.Fatalf("%v: %v, %v", codec, err, Verify(none))
		}
		s = fmt.Sprint(len(none), none.Codec(), none.Count(), none.LastOffset(), none.LastSequence())
		if want := "61 none 0 14 11"; s != want {
			t.Errorf("none kept: got %s, want %s", s, want)
		}
	}
}

func TestMarkersOfOtherVersionsAndTypes(t *testing.T) {
	control := func(key, value []byte) Batch {
		b := NewBuilder(Spec{Control: true})
		b.Add(0, key, value)
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return batch
	}
	for _, c := range []struct {
		name string
		b    Batch
		want Marker
		err  error
	}{
		{"version 1 with more behind", control([]byte{0, 1, 0, 1, 9}, []byte{0, 1, 0, 0, 0, 5, 9}), Marker{Commit, 5}, nil},
		{"leader change", control([]byte{0, 0, 0, 2}, []byte("anything")), Marker{2, -1}, nil},
		{"key too short", control([]byte{0, 0, 0}, make([]byte, 6)), Marker{}, ErrInvalid},
		{"negative version", control([]byte{0xff, 0xff, 0, 1}, make([]byte, 6)), Marker{}, ErrInvalid},
		{"value too short", control([]byte{0, 0, 0, 1}, make([]byte, 5)), Marker{}, ErrInvalid},
		{"null value", control([]byte{0, 0, 0, 0}, nil), Marker{}, ErrInvalid},
		{"no control batch", build(t, Spec{}, 1), Marker{}, ErrInvalid},
		{"no record", golden(t, "java-empty.bin"), Marker{}, ErrInvalid},
	} {
		got, err := ParseMarker(c.b)
		if !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("%s: got %+v, %v, want %+v, %v", c.name, got, err, c.want, c.err)
		}
	}
}

func TestBuilderRefusesAnEmptyBatch(t *testing.T) {
	if _, err := NewBuilder(Spec{}).Build(); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// More than there are slots, so that some wait.
func TestRecompressConcurrently(t *testing.T) {
	b := build(t, Spec{Codec: Zstd}, 10)
	want := dumpAll(t, b)
	var wg sync.WaitGroup
	for range 4 * cap(slots) {
		wg.Go(func() {
			for _, codec := range codecs {
				got, err := Recompress(b, codec, 0, Limit{})
				if err != nil || !slices.Equal(dumpAll(t, got), want) {
					t.Errorf("%v: %v", codec, err)
				}
			}
		})
	}
	wg.Wait()
}
