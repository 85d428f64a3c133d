package batch

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// build makes a batch of n small records.
func build(t testing.TB, spec Spec, n int) Batch {
	t.Helper()
	b := NewBuilder(spec)
	for i := range n {
		b.Add(int64(1000+i), []byte{byte(i)}, []byte("value"))
	}
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// changed is b with some of its header overwritten and the CRC made good.
func changed(b Batch, at int, p ...byte) Batch {
	c := append(Batch{}, b...)
	copy(c[at:], p)
	c.seal()
	return c
}

func u16(v int16) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v)) }
func u32(v int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
func u64(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }

func TestNextSplitsWithoutLookingInside(t *testing.T) {
	one, two := build(t, Spec{}, 1), build(t, Spec{BaseOffset: 1}, 1)
	one[len(one)-1]++ // the CRC is not Next's
	b, rest, err := Next(append(append([]byte{}, one...), two...))
	if err != nil || len(b) != len(one) || cap(b) != len(one) {
		t.Fatalf("first: %d bytes, %v", len(b), err)
	}
	if b, rest, err = Next(rest); err != nil || b.BaseOffset() != 1 || len(rest) != 0 {
		t.Fatalf("second: offset %d, %d bytes after it, %v", b.BaseOffset(), len(rest), err)
	}
}

func TestNextTellsTornFromCorruptFromOld(t *testing.T) {
	good := build(t, Spec{}, 1)
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrShort},
		{"less than a header", good[:PeekSize-1], ErrShort},
		{"less than a batch", good[:len(good)-1], ErrShort},
		{"format 0", changed(good, atMagic, 0), ErrOldFormat},
		{"format 1", changed(good, atMagic, 1), ErrOldFormat},
		{"zeros", make([]byte, 100), ErrCorrupt},
		{"unknown format", changed(good, atMagic, 3), ErrCorrupt},
		{"smaller than a header", changed(good, atLength, u32(HeaderSize-lengthOverhead-1)...), ErrCorrupt},
		{"negative length", changed(good, atLength, u32(-1)...), ErrCorrupt},
		{"the largest length", changed(good, atLength, u32(math.MaxInt32)...), ErrShort},
	} {
		if _, rest, err := Next(c.b); !errors.Is(err, c.want) || len(rest) != len(c.b) {
			t.Errorf("%s: got %v and %d bytes left, want %v and all", c.name, err, len(rest), c.want)
		}
	}
}

func TestStampingKeepsTheCRC(t *testing.T) {
	b := build(t, Spec{}, 3)
	b.SetBaseOffset(1 << 40)
	b.SetLeaderEpoch(7)
	if err := Verify(b); err != nil || b.BaseOffset() != 1<<40 || b.LeaderEpoch() != 7 {
		t.Fatalf("offset %d, epoch %d, %v", b.BaseOffset(), b.LeaderEpoch(), err)
	}
}

func TestLogAppendTimeIsThatOfAllRecords(t *testing.T) {
	b := build(t, Spec{Codec: LZ4}, 2)
	b.SetLogAppendTime(1234)
	if err := Verify(b); err != nil || b.TimestampType() != LogAppendTime || b.MaxTimestamp() != 1234 {
		t.Fatalf("%v %d, %v", b.TimestampType(), b.MaxTimestamp(), err)
	}
	if err := Walk(b, Limit{}, func(r Record) error {
		if r.Timestamp != 1234 {
			t.Errorf("record %d: got %d", r.Offset, r.Timestamp)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestSequenceWraps(t *testing.T) {
	for _, c := range []struct{ base, n, want int32 }{
		{0, 0, 0}, {5, 2, 7}, {math.MaxInt32, 0, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 2, 5, 2},
	} {
		if got := AddSequence(c.base, c.n); got != c.want {
			t.Errorf("%d + %d: got %d, want %d", c.base, c.n, got, c.want)
		}
	}
	b := build(t, Spec{Producer: &Producer{ID: 1, Sequence: math.MaxInt32}}, 3)
	if got := b.LastSequence(); got != 1 {
		t.Errorf("last sequence: got %d, want 1", got)
	}
	if got := build(t, Spec{}, 3).LastSequence(); got != -1 {
		t.Errorf("last sequence without a producer: got %d, want -1", got)
	}
}

func TestVerify(t *testing.T) {
	good := build(t, Spec{Producer: &Producer{ID: 5, Epoch: 1, Sequence: 0}}, 3)
	bare := build(t, Spec{}, 3)
	control := Marker{Type: Commit}.Batch(1, 1, 1)
	torn := append(Batch{}, good...)
	torn[len(torn)-1]++
	for _, c := range []struct {
		name             string
		b                Batch
		stored, produced error
	}{
		{"good", good, nil, nil},
		{"without a producer", bare, nil, nil},
		{"a flipped bit", torn, ErrCorrupt, ErrCorrupt},
		{"cut off", good[:len(good)-1], ErrCorrupt, ErrCorrupt},
		{"no header", good[:60], ErrCorrupt, ErrCorrupt},
		{"magic 3", changed(good, atMagic, 3), ErrCorrupt, ErrCorrupt},
		{"unknown codec", changed(good, atAttributes, u16(5)...), ErrUnknownCodec, ErrUnknownCodec},
		{"unknown attribute", changed(good, atAttributes, u16(1<<7)...), nil, ErrInvalid},
		{"control", control, nil, ErrInvalid},
		{"delete horizon", changed(good, atAttributes, u16(int16(flagDeleteHorizon))...), nil, ErrInvalid},
		{"LogAppendTime", changed(good, atAttributes, u16(int16(flagLogAppendTime))...), nil, ErrTimestamp},
		{"no timestamps", changed(changed(good, atBaseTimestamp, u64(-1)...), atMaxTimestamp, u64(-1)...), nil, nil},
		{"negative timestamps", changed(good, atMaxTimestamp, u64(-2)...), nil, ErrTimestamp},
		{"no records", changed(good, atCount, u32(0)...), nil, ErrInvalid},
		{"compacted", changed(good, atCount, u32(2)...), nil, ErrInvalid},
		{"more records than offsets", changed(good, atCount, u32(4)...), ErrInvalid, ErrInvalid},
		{"negative count", changed(good, atCount, u32(-1)...), ErrInvalid, ErrInvalid},
		{"negative delta", changed(good, atLastOffsetDelta, u32(-1)...), ErrInvalid, ErrInvalid},
		{"as many records as an int holds", changed(changed(good, atLastOffsetDelta, u32(math.MaxInt32-1)...), atCount, u32(math.MaxInt32)...), ErrInvalid, ErrInvalid},
		{"negative base offset", changed(good, atBaseOffset, u64(-1)...), ErrCorrupt, nil},
		{"base offset at the end", changed(good, atBaseOffset, u64(math.MaxInt64-1)...), ErrCorrupt, nil},
		{"negative producer epoch", changed(good, atProducerEpoch, u16(-1)...), nil, ErrInvalid},
		{"no sequence", changed(good, atBaseSequence, u32(-1)...), nil, ErrInvalid},
		{"producer id -2", changed(good, atProducerID, u64(-2)...), nil, ErrInvalid},
		{"transactional without a producer", changed(bare, atAttributes, u16(int16(flagTransactional))...), nil, ErrInvalid},
	} {
		if got := Verify(c.b); !errors.Is(got, c.stored) {
			t.Errorf("%s: Verify: got %v, want %v", c.name, got, c.stored)
		}
		if got := refusal(c.b); !errors.Is(got, c.produced) {
			t.Errorf("%s: VerifyProduced: got %v, want %v", c.name, got, c.produced)
		}
	}
}

func TestVerifyFindsEveryFlippedBit(t *testing.T) {
	good := build(t, Spec{}, 2)
	for i := range good {
		if i < atLength || i >= atLeaderEpoch && i < atMagic {
			continue // stamped by brokers, outside the CRC
		}
		for bit := range 8 {
			b := append(Batch{}, good...)
			b[i] ^= 1 << bit
			if Verify(b) == nil {
				t.Fatalf("byte %d, bit %d: not found", i, bit)
			}
		}
	}
}

func TestTheHotPathDoesNotAllocate(t *testing.T) {
	p := append(build(t, Spec{}, 10), build(t, Spec{Codec: Zstd}, 10)...)
	p = append(p, spoilt(t, 80, 70, func(r *record) { r.headers = []byte{2, 2, 'k', 1} })...)
	bad := changed(build(t, Spec{}, 1), atCount, u32(2)...)
	garbled := spoilt(t, 80, 70, func(r *record) { r.size++ })
	n := testing.AllocsPerRun(100, func() {
		for rest := []byte(p); len(rest) > 0; {
			var b Batch
			var err error
			if b, rest, err = Next(rest); err != nil || refusal(b) != nil {
				t.Fatal(err)
			}
			b.SetBaseOffset(9)
			b.SetLeaderEpoch(1)
			b.SetLogAppendTime(1)
			if Verify(b) != nil || refusal(bad) == nil || refusal(garbled) == nil {
				t.Fatal()
			}
			b[atAttributes+1] &^= byte(flagLogAppendTime)
			b.seal()
		}
	})
	if n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// refusal is what VerifyProduced has against b.
func refusal(b Batch) error { _, err := VerifyProduced(b); return err }
