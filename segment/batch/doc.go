// Package batch reads Kafka's record batches, format v2, in place, and makes new
// ones. It knows no files, no log and no protocol.
//
//	 0  base offset        int64    ┐ stamped by the leader that appends it,
//	 8  length             int32    │ outside the CRC
//	12  leader epoch       int32    ┘
//	16  magic              int8 = 2
//	17  CRC-32C            uint32     of all that follows
//	21  attributes         int16      see Attributes
//	23  last offset delta  int32
//	27  base timestamp     int64
//	35  max timestamp      int64
//	43  producer id        int64      -1 for none
//	51  producer epoch     int16
//	53  base sequence      int32
//	57  count of records   int32
//	61  records, as one compressed stream or one after the other:
//
//	    length varint, attributes int8 = 0, timestamp delta varint, offset delta
//	    varint, key and value (length varint or -1, bytes), count of headers
//	    varint, and for each its key and value likewise
//
// The way of a batch through a broker: Next splits it off a request without
// looking inside, VerifyProduced checks CRC, header and, unless they are
// compressed, how the records are laid out, and tells their times, which
// SetMaxTimestamp puts into a header that says otherwise; SetBaseOffset and
// SetLeaderEpoch stamp it, and it goes to disk as it is. None of these allocates
// and none decompresses. Verify is for what a leader has accepted: it looks at no
// record.
// Walk is for those who must see records: lookups by time, coordinators,
// compaction; Recompress is for topics with a codec of their own, Renumber for
// clients that give all records the same offset.
//
// Bytes are input, wherever they come from. No length is believed before it is
// compared with what is there, and no more is allocated than a small multiple
// of what was received, up to a Limit. Walk's memory is one record and one
// window of its codec: 8 MiB at most, or what a zstd frame announces within the
// Limit. How many walk at once is for the caller to bound; Recompress, which
// clients set off, does so itself.
package batch
