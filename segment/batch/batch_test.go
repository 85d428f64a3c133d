package batch

import (
	"encoding/binary"
	"errors"
	"testing"
)

// header makes a batch without records.
func header() Batch {
	b := make(Batch, HeaderSize)
	binary.BigEndian.PutUint32(b[atLength:], HeaderSize-lengthOverhead)
	b[atMagic] = magicV2
	binary.BigEndian.PutUint64(b[atProducerID:], ^uint64(0))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], ^uint16(0))
	binary.BigEndian.PutUint32(b[atBaseSequence:], ^uint32(0))
	b.seal()
	return b
}

func TestNextSplitsWithoutLookingInside(t *testing.T) {
	one, two := header(), header()
	two.SetBaseOffset(1)
	b, rest, err := Next(append(append([]byte{}, one...), two...))
	if err != nil || len(b) != HeaderSize || cap(b) != HeaderSize {
		t.Fatalf("first: %d bytes, %v", len(b), err)
	}
	if b, rest, err = Next(rest); err != nil || b.BaseOffset() != 1 || len(rest) != 0 {
		t.Fatalf("second: offset %d, %d bytes after it, %v", b.BaseOffset(), len(rest), err)
	}
}

func TestNextTellsTornFromCorruptFromOld(t *testing.T) {
	old := header()
	old[atMagic] = 1
	small := header()
	binary.BigEndian.PutUint32(small[atLength:], HeaderSize-lengthOverhead-1)
	future := header()
	future[atMagic] = 3
	negative := header()
	binary.BigEndian.PutUint32(negative[atLength:], 1<<31)
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrShort},
		{"less than a header", header()[:16], ErrShort},
		{"less than a batch", header()[:60], ErrShort},
		{"format 1", old, ErrOldFormat},
		{"zeros", make([]byte, 100), ErrCorrupt},
		{"smaller than a header", small, ErrCorrupt},
		{"unknown format", future, ErrCorrupt},
		{"negative length", negative, ErrCorrupt},
	} {
		if _, rest, err := Next(c.b); !errors.Is(err, c.want) || len(rest) != len(c.b) {
			t.Errorf("%s: got %v and %d bytes left, want %v and all", c.name, err, len(rest), c.want)
		}
	}
}

func TestStampingKeepsTheCRC(t *testing.T) {
	b := header()
	b.SetBaseOffset(1 << 40)
	b.SetLeaderEpoch(7)
	if err := Verify(b); err != nil || b.BaseOffset() != 1<<40 || b.LeaderEpoch() != 7 {
		t.Fatalf("offset %d, epoch %d, %v", b.BaseOffset(), b.LeaderEpoch(), err)
	}
	b.SetLogAppendTime(1234)
	if err := Verify(b); err != nil || b.TimestampType() != LogAppendTime || b.MaxTimestamp() != 1234 {
		t.Fatalf("%v %d, %v", b.TimestampType(), b.MaxTimestamp(), err)
	}
}

func TestSequenceWraps(t *testing.T) {
	for _, c := range []struct{ base, n, want int32 }{
		{0, 0, 0}, {5, 2, 7}, {1<<31 - 1, 0, 1<<31 - 1}, {1<<31 - 1, 1, 0}, {1<<31 - 3, 5, 2},
	} {
		if got := AddSequence(c.base, c.n); got != c.want {
			t.Errorf("%d + %d: got %d, want %d", c.base, c.n, got, c.want)
		}
	}
}
