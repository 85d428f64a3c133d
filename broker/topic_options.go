package broker

import (
	"firn/broker/config"
	"firn/segment"
	"firn/segment/batch"
)

// logOptions is what a topic's settings mean to its logs. In segment's Options a
// zero stands for Kafka's default, so a zero that somebody has set becomes one,
// which means the same.
func logOptions(t config.Topic, broker *config.Broker, internal, archived bool) segment.Options {
	o := segment.Options{
		Archived:             archived,
		SegmentBytes:         orOne(t.SegmentBytes),
		SegmentMs:            orOne(t.SegmentMs),
		SegmentJitterMs:      t.SegmentJitterMs,
		SegmentIndexBytes:    int(orOne(t.SegmentIndexBytes)),
		IndexIntervalBytes:   int(orOne(t.IndexIntervalBytes)),
		MaxMessageBytes:      int(orOne(t.MaxMessageBytes)),
		FlushMessages:        orOne(t.FlushMessages),
		FlushMs:              orOne(t.FlushMs),
		TimestampBeforeMaxMs: orOne(t.TimestampBeforeMaxMs),
		TimestampAfterMaxMs:  orOne(t.TimestampAfterMaxMs),
		RetentionMs:          orOne(t.RetentionMs),
		RetentionBytes:       orOne(t.RetentionBytes),
		FileDeleteDelayMs:    orOne(t.FileDeleteDelayMs),
		ProducerExpirationMs: orOne(broker.Int("producer.id.expiration.ms")),
	}
	if t.LogAppendTime {
		o.TimestampType = batch.LogAppendTime
	}
	o.Compression, o.CompressionLevel = compression(t)
	if internal || !t.CleanupDelete {
		// Without the policy "delete" nothing goes by age or size. Until there is
		// compaction, internal topics keep everything.
		o.RetentionMs, o.RetentionBytes = -1, -1
	}
	return o
}

func orOne(n int64) int64 {
	if n == 0 {
		return 1
	}
	return n
}

// compression is what compression.type and the levels ask of a log.
func compression(t config.Topic) (c segment.Compression, level int) {
	switch t.CompressionType {
	case "uncompressed":
		return segment.Uncompressed, 0
	case "gzip":
		return segment.Gzip, t.GzipLevel
	case "snappy":
		return segment.Snappy, 0
	case "lz4":
		return segment.LZ4, t.Lz4Level
	case "zstd":
		return segment.Zstd, t.ZstdLevel
	}
	return segment.AsProduced, 0
}
