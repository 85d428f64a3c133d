package batch

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// Where things are in a batch. The CRC covers everything from attributes on, so
// base offset and leader epoch can be stamped without touching it.
const (
	atBaseOffset      = 0
	atLength          = 8 // of what follows the field itself
	atLeaderEpoch     = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21
	atLastOffsetDelta = 23
	atBaseTimestamp   = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atCount           = 57

	// HeaderSize is the size of a batch's fixed part.
	HeaderSize = 61
	// PeekSize is how many bytes Peek needs.
	PeekSize = 17

	lengthOverhead = 12 // base offset and the length field itself
	magicV2        = 2
)

// NoProducer is the producer id of a batch that has none.
const NoProducer = -1

// Batch is one whole record batch, format v2, as it stands on the wire and on
// disk. Accessors and setters need the fixed part (HeaderSize bytes) only and
// panic on less: a Batch comes from Next, from a Builder, or from a header whose
// size Peek has checked.
type Batch []byte

// BaseOffset is the offset of the first record.
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b[atBaseOffset:])) }

// Length is the size of the whole batch in bytes, as the header tells it.
func (b Batch) Length() int {
	return int(int32(binary.BigEndian.Uint32(b[atLength:]))) + lengthOverhead
}

// LeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) LeaderEpoch() int32 { return int32(binary.BigEndian.Uint32(b[atLeaderEpoch:])) }

// Magic is the format version.
func (b Batch) Magic() int8 { return int8(b[atMagic]) }

// CRC is the checksum that the header tells.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[atCRC:]) }

// Attributes is the flag word.
func (b Batch) Attributes() Attributes {
	return Attributes(binary.BigEndian.Uint16(b[atAttributes:]))
}

// Codec is the compression of the records.
func (b Batch) Codec() Codec { return b.Attributes().Codec() }

// TimestampType tells whether timestamps are the producer's or the broker's.
func (b Batch) TimestampType() TimestampType { return b.Attributes().TimestampType() }

// IsControl tells a batch of markers, which applications do not see.
func (b Batch) IsControl() bool { return b.Attributes().IsControl() }

// IsTransactional tells a batch that belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes().IsTransactional() }

// LastOffsetDelta is the last record's offset less the base offset. Compaction
// keeps it, so it may exceed Count-1.
func (b Batch) LastOffsetDelta() int32 {
	return int32(binary.BigEndian.Uint32(b[atLastOffsetDelta:]))
}

// LastOffset is the offset of the last record.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is the offset after the last record.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// BaseTimestamp is what the records' timestamps are relative to, in Unix
// milliseconds. With Attributes.HasDeleteHorizon it is also that horizon.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[atBaseTimestamp:])) }

// MaxTimestamp is the largest timestamp of the records, or the append time.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[atMaxTimestamp:])) }

// ProducerID is the idempotent producer's id, or NoProducer.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[atProducerID:])) }

// ProducerEpoch is the producer's epoch, -1 without a producer.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[atProducerEpoch:])) }

// HasProducer tells a batch of an idempotent or transactional producer.
func (b Batch) HasProducer() bool { return b.ProducerID() > NoProducer }

// BaseSequence is the sequence number of the first record, -1 without one.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[atBaseSequence:])) }

// LastSequence is the sequence number of the last record; -1 without one.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base < 0 {
		return base
	}
	return AddSequence(base, b.LastOffsetDelta())
}

// Count is the number of records.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[atCount:])) }

// Records is the bytes of the records, compressed as Codec tells.
func (b Batch) Records() []byte { return b[HeaderSize:] }

// AddSequence adds n ≥ 0 to a sequence number, which goes from the largest int32
// on to 0.
func AddSequence(seq, n int32) int32 { return int32((int64(seq) + int64(n)) & math.MaxInt32) }

// SetBaseOffset stamps the base offset; the CRC stays good.
func (b Batch) SetBaseOffset(offset int64) {
	binary.BigEndian.PutUint64(b[atBaseOffset:], uint64(offset))
}

// SetLeaderEpoch stamps the leader epoch; the CRC stays good.
func (b Batch) SetLeaderEpoch(epoch int32) {
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(epoch))
}

// SetLogAppendTime makes ts, in Unix milliseconds, the timestamp of all records
// and computes the CRC anew. It needs the whole batch.
func (b Batch) SetLogAppendTime(ts int64) {
	binary.BigEndian.PutUint16(b[atAttributes:], uint16(b.Attributes()|flagLogAppendTime))
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(ts))
	b.seal()
}

// SetMaxTimestamp makes ts the largest timestamp of a batch of CreateTime and
// computes the CRC anew. It needs the whole batch.
func (b Batch) SetMaxTimestamp(ts int64) {
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(ts))
	b.seal()
}

// seal computes the CRC anew.
func (b Batch) seal() { binary.BigEndian.PutUint32(b[atCRC:], b.checksum()) }

func (b Batch) checksum() uint32 { return crc32.Checksum(b[atAttributes:], castagnoli) }

// castagnoli is never written: MakeTable returns one shared table that the
// hardware instruction stands behind.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)
