package segment

import (
	"math"

	"firn/segment/batch"
)

// Options is what can be set per topic, under the names of Kafka's topic
// configuration. The zero value of each field means Kafka's default. Where
// Kafka gives a literal 0 a meaning of its own, 1 means the same here.
type Options struct {
	// Archived tells that the old part of the log lies elsewhere: the log start
	// may then be below the local start, and SetLogStart drops nothing.
	Archived bool

	// SegmentBytes (segment.bytes) is the size that no segment exceeds. 1 GiB.
	SegmentBytes int64
	// SegmentMs (segment.ms) seals a segment so long after its first batch, by
	// the timestamps of the batches. 7 days.
	SegmentMs int64
	// SegmentJitterMs (segment.jitter.ms) is the most that is taken off
	// SegmentMs, at random per segment. 0.
	SegmentJitterMs int64
	// SegmentIndexBytes (segment.index.bytes) is the size that no index
	// exceeds; it seals the segment. 10 MiB.
	SegmentIndexBytes int
	// IndexIntervalBytes (index.interval.bytes) is how many bytes of batches
	// go by between two index entries. 4096.
	IndexIntervalBytes int
	// MaxMessageBytes (max.message.bytes) is the size of the largest batch that
	// a leader accepts. 1048588.
	MaxMessageBytes int
	// FlushMessages (flush.messages): see S6. Never.
	FlushMessages int64
	// FlushMs (flush.ms) is how long a record may stay unflushed; nothing waits
	// for that flush. Never.
	FlushMs int64
	// TimestampType (message.timestamp.type). CreateTime.
	TimestampType batch.TimestampType
	// TimestampBeforeMaxMs and TimestampAfterMaxMs
	// (message.timestamp.before.max.ms, .after.max.ms) bound how far a
	// producer's timestamp may be from the broker's clock. Unbounded; 1 hour.
	TimestampBeforeMaxMs, TimestampAfterMaxMs int64
	// Compression (compression.type). As the producer sends it.
	Compression Compression
	// CompressionLevel (compression.<codec>.level) for a Compression other than
	// the producer's; 0 is the codec's default.
	CompressionLevel int
	// RetentionMs (retention.ms); -1 is without end. 7 days.
	RetentionMs int64
	// RetentionBytes (retention.bytes); -1 is without end, and the default.
	RetentionBytes int64
	// FileDeleteDelayMs (file.delete.delay.ms) is how long a deleted file stays
	// on disk for readers that hold it, unless the disk is short of space. 60 s.
	FileDeleteDelayMs int64
	// ProducerExpirationMs (producer.id.expiration.ms) is how long a silent
	// producer is remembered. 1 day.
	ProducerExpirationMs int64
}

// Compression is what a topic does to the batches that come in.
type Compression uint8

const (
	AsProduced Compression = iota // compression.type=producer
	Uncompressed
	Gzip
	Snappy
	LZ4
	Zstd
)

// Codec is the codec that c asks for; false if it asks for none.
func (c Compression) Codec() (batch.Codec, bool) {
	if c == AsProduced {
		return batch.None, false
	}
	return batch.Codec(c - Uncompressed), true
}

const (
	dayMs = 24 * 60 * 60 * 1000
	never = math.MaxInt64
)

// withDefaults fills in the fields that are zero.
func (o Options) withDefaults() Options {
	set(&o.SegmentBytes, 1<<30)
	set(&o.SegmentMs, 7*dayMs)
	set(&o.SegmentIndexBytes, 10<<20)
	set(&o.IndexIntervalBytes, 4096)
	set(&o.MaxMessageBytes, 1048588)
	set(&o.FlushMessages, never)
	set(&o.FlushMs, never)
	set(&o.TimestampBeforeMaxMs, never)
	set(&o.TimestampAfterMaxMs, 60*60*1000)
	set(&o.RetentionMs, 7*dayMs)
	set(&o.RetentionBytes, -1)
	set(&o.FileDeleteDelayMs, 60_000)
	set(&o.ProducerExpirationMs, dayMs)
	// A position in a segment is an int32 in the index file.
	o.SegmentBytes = min(o.SegmentBytes, math.MaxInt32)
	return o
}

func set[T int | int64](field *T, def T) {
	if *field == 0 {
		*field = def
	}
}
