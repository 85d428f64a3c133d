package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

// record is one record, taken apart, so that a test can spoil a part of it.
type record struct {
	size      int // added to the length that is right
	timestamp []byte
	delta     []byte
	key       []byte // with its length
	value     []byte // with its length
	headers   []byte // with their count
}

func varint(v int64) []byte { return binary.AppendVarint(nil, v) }

func plainOne(i int) record {
	return record{
		timestamp: varint(int64(i)), delta: varint(int64(i)), key: appendBytes(nil, []byte("key")),
		value: appendBytes(nil, bytes.Repeat([]byte{'v'}, 70)), headers: varint(0),
	}
}

func (r record) encode() []byte {
	body := slices.Concat([]byte{0}, r.timestamp, r.delta, r.key, r.value, r.headers)
	return append(varint(int64(len(body)+r.size)), body...)
}

// spoilt is a batch of n plain records, of which spoil may change number at.
func spoilt(t testing.TB, n, at int, spoil func(*record)) Batch {
	t.Helper()
	var raw []byte
	for i := range n {
		r := plainOne(i)
		if i == at {
			spoil(&r)
		}
		raw = append(raw, r.encode()...)
	}
	return withRecords(t, None, int32(n), raw)
}

// A writer that garbles its records and then takes the CRC is refused: nobody
// could read them. Wherever they stand: plain records are passed by other code
// than the rest.
func TestVerifyProducedRefusesGarbledRecords(t *testing.T) {
	const n = 140
	for name, spoil := range map[string]func(*record){
		"length too large by one":       func(r *record) { r.size = 1 },
		"length too small by one":       func(r *record) { r.size = -1 },
		"length of two records":         func(r *record) { r.size = len(plainOne(70).encode()) },
		"length beyond the batch":       func(r *record) { r.size = 1 << 20 },
		"length near the largest":       func(r *record) { r.size = math.MaxInt32 - 200 },
		"length zero":                   func(r *record) { r.size = -len(r.encode()) + 2 },
		"length negative":               func(r *record) { r.size = -1000 },
		"timestamp of 11 bytes":         func(r *record) { r.timestamp = append(bytes.Repeat([]byte{0x80}, 10), 0) },
		"timestamp of 65 bits":          func(r *record) { r.timestamp = append(bytes.Repeat([]byte{0xff}, 9), 2) },
		"offset of the one before":      func(r *record) { r.delta = previous(r.delta) },
		"offset of the next":            func(r *record) { r.delta = varint(value(r.delta) + 1) },
		"offset 8192 too large":         func(r *record) { r.delta = varint(value(r.delta) + 8192) },
		"offset negative":               func(r *record) { r.delta = varint(-1 - value(r.delta)) },
		"offset of 64 bits":             func(r *record) { r.delta = varint(value(r.delta) + 1<<32) },
		"offset of six bytes":           func(r *record) { r.delta = long(r.delta, 6) },
		"key length too large":          func(r *record) { r.key[0] += 2 },
		"key length too small":          func(r *record) { r.key[0] -= 2 },
		"key length beyond the record":  func(r *record) { r.key[0] = 0x7e },
		"key length beyond the batch":   func(r *record) { r.key = append(varint(1<<30), r.key...) },
		"key length -2":                 func(r *record) { r.key = varint(-2) },
		"key null, and a key":           func(r *record) { r.key[0] = 1 },
		"value length too large by one": func(r *record) { r.value[0] += 2 },
		"value length too small by one": func(r *record) { r.value[0] -= 2 },
		"value length far too large":    func(r *record) { r.value[1] = 0x7f },
		"value length -2":               func(r *record) { r.value = varint(-2) },
		"value length of the largest":   func(r *record) { r.value = varint(math.MaxInt32) },
		"no headers' count":             func(r *record) { r.headers = nil },
		"a header without bytes":        func(r *record) { r.headers = varint(1) },
		"a million headers":             func(r *record) { r.headers = append(varint(1<<20), make([]byte, 10)...) },
		"headers' count negative":       func(r *record) { r.headers = varint(-1) },
		"a null header key":             func(r *record) { r.headers = []byte{2, 1, 1} },
		"header key too long":           func(r *record) { r.headers = []byte{2, 8, 'k', 1} },
		"header value too long":         func(r *record) { r.headers = []byte{2, 2, 'k', 8, 'v'} },
		"a byte after no headers":       func(r *record) { r.headers = []byte{0, 0} },
		"a byte after the headers":      func(r *record) { r.headers = []byte{2, 2, 'k', 2, 'v', 0} },
	} {
		for _, at := range []int{0, 1, 63, 64, n - 2, n - 1} {
			if name == "offset of the one before" && at == 0 {
				continue
			}
			b := spoilt(t, n, at, spoil)
			if err := refusal(b); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s, record %d: got %v, want ErrInvalid", name, at, err)
			}
			if err := Verify(b); err != nil {
				t.Errorf("%s, record %d: a follower must take what its leader has: %v", name, at, err)
			}
			if err := Walk(b, Limit{}, func(Record) error { return nil }); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s, record %d: Walk: got %v, want ErrInvalid", name, at, err)
			}
		}
	}
}

// Some clients give every record the offset 0. That alone is wrong with the batch,
// and numbered as it stands it is the batch that they should have sent.
func TestRenumber(t *testing.T) {
	header := []Header{{"h", []byte("v")}, {"null", nil}}
	for _, n := range []int{2, 64, 65, 8193, 20000} {
		right, raw := NewBuilder(Spec{Producer: &Producer{ID: 3, Epoch: 2, Sequence: 7}}), []byte(nil)
		for i := range n {
			ts, value := int64(i*1000), bytes.Repeat([]byte{'v'}, 50+i%30)
			right.Add(ts, nil, value, header[:(n-1-i)%3]...)
			raw = appendRecord(raw, ts, 0, nil, value, header[:(n-1-i)%3])
		}
		want, err := right.Build()
		if err != nil {
			t.Fatal(err)
		}
		got := append(bytes.Clone(want[:HeaderSize]), raw...)
		got = changed(got, atLength, u32(int32(len(got)-lengthOverhead))...)
		if err := refusal(got); err != ErrOffsets {
			t.Fatalf("%d records: %v, want ErrOffsets", n, err)
		}
		if !bytes.Equal(Renumber(got), want) {
			t.Errorf("%d records: not what a builder makes of the same", n)
		}
		garbled := changed(got, len(got)-1, 2) // headers of the last, which aren't there
		if err := refusal(garbled); !errors.Is(err, ErrInvalid) || err == ErrOffsets {
			t.Errorf("%d records, of which the last is garbled too: %v", n, err)
		}
	}
}

// Where offsets begin to take another byte, a wrong one is found too.
func TestVerifyProducedRefusesWrongOffsetsOfManyRecords(t *testing.T) {
	for _, at := range []int64{63, 64, 8191, 8192, 8193, 16384, 1<<20 - 1, 1 << 20} {
		for _, wrong := range []int64{at - 1, at + 1, at ^ 64, at ^ 8192, at & 63, at & 8191, at | 1<<13, at | 1<<20, 0} {
			var raw []byte
			for i := range at + 3 {
				delta := i
				if i == at {
					delta = wrong
				}
				raw = appendRecord(raw, 0, int32(delta), nil, []byte{}, nil)
			}
			if _, err := verifyRecords(raw, int(at+3)); (err == nil) != (wrong == at) {
				t.Errorf("offset %d at %d: %v", wrong, at, err)
			}
		}
	}
}

func value(p []byte) int64 { v, _ := binary.Varint(p); return v }

func previous(delta []byte) []byte { return varint(value(delta) - 1) }

// long is the same number in n bytes.
func long(p []byte, n int) []byte {
	for len(p) < n {
		p[len(p)-1] |= 0x80
		p = append(p, 0)
	}
	return p
}

func TestVerifyProducedCountsRecords(t *testing.T) {
	good := spoilt(t, 140, -1, nil)
	records := func(n int) []byte { return spoilt(t, n, -1, nil).Records() }
	if err := refusal(good); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]Batch{
		"one fewer than promised": withRecords(t, None, 141, good.Records()),
		"one more than promised":  withRecords(t, None, 139, good.Records()),
		"a byte behind":           withRecords(t, None, 140, append(records(140), 0)),
		"a byte short":            withRecords(t, None, 140, records(140)[:len(records(140))-1]),
		"zeros":                   withRecords(t, None, 2, make([]byte, 100)),
		"bytes of 0xff":           withRecords(t, None, 2, bytes.Repeat([]byte{0xff}, 100)),
	} {
		if err := refusal(b); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}

// What the format allows is accepted, at each size that takes a byte more.
func TestVerifyProducedAcceptsWhatTheFormatAllows(t *testing.T) {
	check := func(b Batch, what ...any) {
		t.Helper()
		if err := refusal(b); err != nil {
			t.Errorf("%s: %v", fmt.Sprintln(what...), err)
		}
	}
	for _, size := range []int{-1, 0, 1, 55, 63, 64, 65, 8180, 8191, 8192, 8193, 1<<20 - 1, 1 << 20} {
		p := appendBytes(nil, make([]byte, max(size, 0)))
		if size < 0 {
			p = appendBytes(nil, nil)
		}
		for _, at := range []int{0, 1, 2} {
			check(spoilt(t, 3, at, func(r *record) { r.value = p }), "value of", size)
			check(spoilt(t, 3, at, func(r *record) { r.key = p }), "key of", size)
			if size >= 0 {
				check(spoilt(t, 3, at, func(r *record) { r.headers = slices.Concat(varint(2), p, varint(-1), p, p) }), "headers of", size)
			}
		}
	}
	for shift := range 64 {
		for _, ts := range []int64{1 << shift, -1 << shift, 1<<shift - 1} {
			check(spoilt(t, 3, 1, func(r *record) { r.timestamp = varint(ts) }), "timestamp delta", ts)
		}
	}
	for n := 1; n <= 5; n++ {
		check(spoilt(t, 3, 1, func(r *record) { r.delta = long(r.delta, n) }), "offset delta in", n, "bytes")
		check(spoilt(t, 3, 1, func(r *record) { r.key = append(long(varint(3), n), "key"...) }), "length in", n, "bytes")
	}
	b := NewBuilder(Spec{})
	for range 1<<20 + 2 { // offsets of one to four bytes
		b.Add(0, nil, nil)
	}
	many, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	check(many, "a million records")
	for _, codec := range codecs {
		check(withRecords(t, codec, 1, appendRecord(nil, 0, 0, nil, nil, nil)), codec)
	}
	// Nobody looks into what is compressed.
	check(withRecords(t, Zstd, 2, []byte("no record")), "compressed")
}

// The times of a batch are the least and the largest that its records have,
// wherever they stand, and in however many bytes.
func TestVerifyProducedTellsTheTimesOfTheRecords(t *testing.T) {
	const base, n = 1 << 40, 70
	at := func(base int64, i int, ts []byte, more ...func(*record)) Batch {
		b := spoilt(t, n, i, func(r *record) {
			r.timestamp = ts
			for _, f := range more {
				f(r)
			}
		})
		return changed(changed(b, atBaseTimestamp, u64(base)...), atMaxTimestamp, u64(7)...)
	}
	notPlain := func(r *record) { r.headers = []byte{2, 2, 'k', 2, 'v'} }
	for shift := range 62 {
		for _, delta := range []int64{1 << shift, -1 << shift, 1<<shift - 1, 1<<shift + 1<<(shift/2), -1<<shift - 1<<(shift/3)} {
			for _, i := range []int{0, 1, n - 2, n - 1} {
				want := Times{base + min(delta, 0), base + max(delta, n-1)}
				switch i { // the ones beside it are the first and the last then
				case 0:
					want.Oldest = base + min(delta, 1)
				case n - 1:
					want.Newest = base + max(delta, n-2)
				}
				enc := varint(delta)
				for _, b := range []Batch{at(base, i, enc), at(base, i, enc, notPlain), at(base, i, long(bytes.Clone(enc), 10))} {
					if got, err := VerifyProduced(b); err != nil || got != want {
						t.Fatalf("record %d with delta %d: %v, %v; want %v", i, delta, got, err, want)
					}
				}
			}
		}
	}
	for _, c := range []struct{ base, delta int64 }{{1, math.MaxInt64}, {math.MaxInt64, 1}, {math.MaxInt64, math.MaxInt64}, {-1, math.MinInt64}} {
		if err := refusal(at(c.base, 1, varint(c.delta))); !errors.Is(err, ErrTimestamp) {
			t.Errorf("%d + %d: %v, want ErrTimestamp", c.base, c.delta, err)
		}
	}
	// Of what is compressed, the header is all there is.
	b := changed(changed(withRecords(t, Zstd, 2, []byte("no record")), atBaseTimestamp, u64(9)...), atMaxTimestamp, u64(5)...)
	if got, err := VerifyProduced(b); err != nil || got != (Times{5, 5}) {
		t.Errorf("compressed: %v, %v", got, err)
	}
}

// FuzzVerifyRecords: what is refused and what is passed is what Walk, which
// decodes record by record, refuses and passes. (That other readers agree is a
// fuzz target of e2e.)
func FuzzVerifyRecords(f *testing.F) {
	seeds(f, func(b Batch) { f.Add(b.Count(), []byte(b.Records())) })
	for _, at := range []int{0, 1, 9} {
		f.Add(int32(10), []byte(spoilt(f, 10, at, func(r *record) { r.headers = []byte{2, 2, 'k', 2, 'v'} }).Records()))
		f.Add(int32(10), []byte(spoilt(f, 10, at, func(r *record) { r.timestamp = varint(1 << 50) }).Records()))
		f.Add(int32(10), []byte(spoilt(f, 10, at, func(r *record) { r.timestamp = append(bytes.Repeat([]byte{0x80}, 5), 0) }).Records()))
		f.Add(int32(70), []byte(spoilt(f, 70, at, func(r *record) { r.value = varint(-1) }).Records()))
	}
	// All is well if the timestamp is taken for one byte, or two, less than it has.
	for n := 3; n <= 10; n++ {
		ts := append(bytes.Repeat([]byte{0x80}, n-1), 0)
		for _, r := range []record{
			{timestamp: ts, delta: varint(1), key: []byte{2, 4}, value: []byte{2, 'v'}, headers: varint(0)},
			{timestamp: ts, delta: varint(0), key: []byte{4, 0, 2}, value: []byte{2, 'v'}, headers: varint(0)},
		} {
			f.Add(int32(2), append(r.encode(), plainOne(1).encode()...))
		}
	}
	f.Fuzz(func(t *testing.T, count int32, p []byte) {
		count = max(count&0xffff, 1)
		b := changed(wrap(None, p), atCount, u32(count)...)
		b = changed(b, atLastOffsetDelta, u32(count-1)...)
		deltas, err := verifyRecords(p, int(count))
		want := Times{Oldest: math.MaxInt64, Newest: math.MinInt64}
		if werr := Walk(b, Limit{}, func(r Record) error { want = want.with(r.Timestamp); return nil }); (werr == nil) != (err == nil) {
			t.Fatalf("%d records: got %v, Walk says %v", count, err, werr)
		}
		if err == nil && deltas != want {
			t.Fatalf("%d records: timestamps %v, Walk says %v", count, deltas, want)
		}
	})
}
