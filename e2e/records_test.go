package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/e2e/harness"
	"firn/segment/batch"
)

// batchAround is a batch with the right header and CRC around records that may
// be anything.
func batchAround(records []byte, count int32, codec batch.Codec) batch.Batch {
	one := batch.NewBuilder(batch.Spec{})
	one.Add(1, nil, nil)
	b, err := one.Build()
	if err != nil {
		panic(err)
	}
	b = append(b[:batch.HeaderSize], records...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	b[22] = byte(codec)
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
	if _, err := batch.VerifyProduced(batchAround(many, 70, batch.None)); err != nil || !canonical(many, 70) {
		f.Fatalf("the seeds are no records: %v", err)
	}
	f.Fuzz(func(t *testing.T, count int32, records []byte) {
		if count < 1 || int(count) > len(records) {
			return
		}
		b := batchAround(records, count, batch.None)
		_, err := batch.VerifyProduced(b)
		if errors.Is(err, batch.ErrTimestamp) {
			return // beyond 64 bits, which franz-go would wrap
		}
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

// TestConsumeNamesWhatNobodyCanDecode: a compressed batch is stored as it comes.
// `firn consume` prints what is before the garbled record, then says where it is
// and how to go on; it doesn't stand still.
func TestConsumeNamesWhatNobodyCanDecode(t *testing.T) {
	f := harness.Start(t, harness.Options{})
	createTopic(t, f.Addr, "g", 3, nil)
	cl := newClient(t, f.Addr)
	t.Cleanup(cl.Close)
	md, err := kadm.NewClient(cl).Metadata(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	write := func(partition int32, b batch.Batch) {
		t.Helper()
		r := produceOne("g", md.Topics["g"].ID, -1).(*kmsg.ProduceRequest)
		p := &r.Topics[0].Partitions[0]
		p.Partition, p.Records = partition, b
		if code := codeOf(t, cl, r); code != 0 {
			t.Fatalf("code %d", code)
		}
	}
	records := func(values ...string) (raw []byte) {
		for i, v := range values {
			body := (&kmsg.Record{OffsetDelta: int32(i), Value: []byte(v)}).AppendTo(nil)[1:]
			raw = append(kbin.AppendVarint(raw, int32(len(body))), body...)
		}
		return raw
	}
	garbled := records("three", "four", "five")
	garbled[len(garbled)-1] = 2 // one header, which isn't there
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	w.Write(garbled)
	w.Close()
	write(0, batchAround(records("one", "two"), 2, batch.None))
	write(0, batchAround(zipped.Bytes(), 3, batch.Gzip))
	write(0, batchAround(records("six"), 1, batch.None))
	write(1, batchAround([]byte("no stream"), 7, batch.Zstd))
	write(1, batchAround(records("eight"), 1, batch.None))
	write(2, batchAround(zipped.Bytes(), 3, batch.Gzip))

	bin := harness.Binary(t)
	for _, c := range []struct{ what, out, where, on, rest string }{
		{"g:0", "one\ntwo\nthree\nfour\n", "g: partition 0, offset 4: nobody can decode the batch with offsets 2 to 4", "g:0 --from 5", "six\n"},
		{"g:1", "", "g: partition 1, offset 0: nobody can decode the batch with offsets 0 to 6", "g:1 --from 7", "eight\n"},
		{"g:2", "three\nfour\n", "g: partition 2, offset 2: nobody can decode the batch with offsets 0 to 2", "g:2 --from 3", ""},
	} {
		o := harness.Run(t, time.Minute, "", bin, "consume", c.what, "-b", f.Addr)
		if o.Err == nil || o.Stdout != c.out || !strings.Contains(o.Stderr, c.where) || !strings.Contains(o.Stderr, "firn consume "+c.on) {
			t.Errorf("%s: %v\n%s%s", c.what, o.Err, o.Stdout, o.Stderr)
		}
		args := append([]string{"consume", "-b", f.Addr}, strings.Fields(c.on)...)
		if got := harness.Must(t, time.Minute, "", bin, args...); got != c.rest {
			t.Errorf("%s: %q, want %q", c.on, got, c.rest)
		}
	}
}
