package e2e

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/segment/batch"
)

// batchAround is a batch with the right header and CRC around records that may
// be anything.
func batchAround(records []byte, count int32) batch.Batch {
	one := batch.NewBuilder(batch.Spec{})
	one.Add(1, nil, nil)
	b, err := one.Build()
	if err != nil {
		panic(err)
	}
	b = append(b[:batch.HeaderSize], records...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[23:], uint32(count-1))
	binary.BigEndian.PutUint32(b[57:], uint32(count))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// canonical tells whether records are count records as franz-go would write them,
// with offsets from 0.
func canonical(records []byte, count int32) bool {
	for i := range count {
		size, n := kbin.Varint(records)
		total := n + int(size)
		if n <= 0 || size < 0 || total > len(records) {
			return false
		}
		var r kmsg.Record
		if r.ReadFrom(records[:total]) != nil || r.OffsetDelta != i || !bytes.Equal(r.AppendTo(nil), records[:total]) {
			return false
		}
		records = records[total:]
	}
	return len(records) == 0
}

// FuzzReadersTakeWhatIsAccepted: franz-go decodes every record of a batch that a
// broker accepts, and a broker accepts what franz-go writes.
func FuzzReadersTakeWhatIsAccepted(f *testing.F) {
	var many []byte
	for i := range int32(70) {
		r := kmsg.Record{TimestampDelta64: int64(i), OffsetDelta: i, Value: bytes.Repeat([]byte{'v'}, int(i))}
		switch i % 8 {
		case 1:
			r.Key = []byte("key")
		case 5:
			r.Headers = []kmsg.Header{{Key: "h", Value: []byte("v")}, {}}
		case 7:
			r.Value = nil
			r.TimestampDelta64 = -1 << 40
		}
		body := r.AppendTo(nil)[1:]
		many = append(kbin.AppendVarint(many, int32(len(body))), body...)
		f.Add(i+1, bytes.Clone(many))
		f.Add(i, bytes.Clone(many))
	}
	if err := batch.VerifyProduced(batchAround(many, 70)); err != nil || !canonical(many, 70) {
		f.Fatalf("the seeds are no records: %v", err)
	}
	f.Fuzz(func(t *testing.T, count int32, records []byte) {
		if count < 1 || int(count) > len(records) {
			return
		}
		b := batchAround(records, count)
		err := batch.VerifyProduced(b)
		if err != nil {
			if canonical(records, count) {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &kmsg.FetchResponseTopicPartition{RecordBatches: b}, kgo.DefaultDecompressor(), nil)
		if fp.Err != nil || len(fp.Records) != int(count) || next != int64(count) {
			t.Fatalf("accepted %d records; franz-go reads %d, goes on at %d: %v", count, len(fp.Records), next, fp.Err)
		}
		for i, r := range fp.Records {
			if r.Offset != int64(i) {
				t.Fatalf("record %d has offset %d", i, r.Offset)
			}
		}
	})
}
