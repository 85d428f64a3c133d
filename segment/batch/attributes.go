package batch

import "fmt"

// Attributes is a batch's flag word:
//
//	bit 0-2  compression
//	bit 3    timestamp type: 0 the producer's, 1 the broker's
//	bit 4    transactional
//	bit 5    control
//	bit 6    base timestamp is a delete horizon (set by compaction only)
type Attributes int16

const (
	maskCodec           Attributes = 0b111
	flagLogAppendTime   Attributes = 1 << 3
	flagTransactional   Attributes = 1 << 4
	flagControl         Attributes = 1 << 5
	flagDeleteHorizon   Attributes = 1 << 6
	maskKnownAttributes            = maskCodec | flagLogAppendTime | flagTransactional | flagControl | flagDeleteHorizon
)

// Codec is the compression of the records.
func (a Attributes) Codec() Codec { return Codec(a & maskCodec) }

// TimestampType tells whose clock the timestamps are from.
func (a Attributes) TimestampType() TimestampType {
	if a&flagLogAppendTime != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// IsTransactional tells a batch that belongs to a transaction.
func (a Attributes) IsTransactional() bool { return a&flagTransactional != 0 }

// IsControl tells a batch of markers.
func (a Attributes) IsControl() bool { return a&flagControl != 0 }

// HasDeleteHorizon tells that the base timestamp is when tombstones may go.
func (a Attributes) HasDeleteHorizon() bool { return a&flagDeleteHorizon != 0 }

// TimestampType says whose clock the timestamps of a batch are from.
type TimestampType uint8

const (
	CreateTime    TimestampType = iota // the producer's
	LogAppendTime                      // the broker's, one for the whole batch
)

// String is Kafka's name of t, as in message.timestamp.type.
func (t TimestampType) String() string {
	if t == LogAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// Codec is a compression of records.
type Codec uint8

const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// Known tells a codec that exists.
func (c Codec) Known() bool { return c <= Zstd }

// String is Kafka's name of c, as in compression.type.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec(%d)", uint8(c))
}
