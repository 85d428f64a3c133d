package broker

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/segment/batch"
)

// exchange sends frame and reads the answer into buf, without an allocation.
func (c *client) exchange(frame, buf []byte) []byte {
	if _, err := c.c.Write(frame); err != nil {
		c.t.Fatal(err)
	}
	return c.answer(buf)
}

func (c *client) answer(buf []byte) []byte {
	if _, err := io.ReadFull(c.c, buf[:4]); err != nil {
		c.t.Fatal(err)
	}
	n := binary.BigEndian.Uint32(buf)
	if _, err := io.ReadFull(c.c, buf[:n]); err != nil {
		c.t.Fatal(err)
	}
	return buf[:n]
}

// hotNode is a whole broker with real logs and a topic.
func hotNode(t testing.TB, partitions int32) *client {
	n := startNode(t, t.TempDir())
	c := n.dial()
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version, r.TimeoutMillis = 5, waitMillis
	tp := kmsg.NewCreateTopicsRequestTopic()
	tp.Topic, tp.NumPartitions, tp.ReplicationFactor = "t", partitions, 1
	r.Topics = append(r.Topics, tp)
	if code := c.call(r).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		t.Fatalf("CreateTopics: code %d", code)
	}
	return c
}

// fewestAllocs is how many allocations f takes, if that is more than most at its best.
// What the broker does meanwhile by itself is counted with it, and on a busy machine
// a run of f has time for much of that.
func fewestAllocs(most float64, f func()) float64 {
	got := testing.AllocsPerRun(100, f)
	for tries := 0; got > most && tries < 20; tries++ {
		got = min(got, testing.AllocsPerRun(100, f))
	}
	return got
}

// A request costs two allocations at most, but for one a partition by its log,
// which publishes its new offsets.
func TestRequestsAllocateLittle(t *testing.T) {
	c := hotNode(t, 4)
	buf := make([]byte, 4<<20)
	produce := produceReq(9, -1, "t", 0, realBatch(t, 16<<10))
	many := produceReq(9, 1, "t", 0, realBatch(t, 1000))
	for i := int32(1); i < 4; i++ {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = i, realBatch(t, 1000)
		many.Topics[0].Partitions = append(many.Topics[0].Partitions, p)
	}
	tail := fetchReq(12, "t", 0, 3)
	fetch := fetchReq(12, "t", 0, 0)
	small := fetchReq(12, "t", 0, 0)
	small.Topics[0].Partitions[0].PartitionMaxBytes = 1
	for _, m := range []struct {
		name  string
		frame []byte
		most  float64
	}{
		{"Produce, 16 KiB", frameOf(1, produce), 2},
		{"Produce, 4 partitions", frameOf(1, many), 5},
		{"Fetch, 1 MiB", frameOf(1, fetch), 2},
		{"Fetch, one batch", frameOf(1, small), 2},
		{"Fetch, empty answer", frameOf(1, tail), 2},
	} {
		if m.name == "Fetch, empty answer" {
			end := fetched(c.call(tail)).HighWatermark
			tail.Topics[0].Partitions[0].FetchOffset = end
			m.frame = frameOf(1, tail)
		}
		for range 100 {
			c.exchange(m.frame, buf)
		}
		got := fewestAllocs(m.most, func() { c.exchange(m.frame, buf) })
		t.Logf("%s: %.1f allocations", m.name, got)
		if got > m.most {
			t.Errorf("%s: %.1f allocations, want at most %v", m.name, got, m.most)
		}
	}
}

// A poll that waits costs no more.
func TestLongPollsAllocateLittle(t *testing.T) {
	c := hotNode(t, 1)
	p := (&testBroker{t: t, addr: c.c.RemoteAddr().String()}).dial()
	produce := frameOf(1, produceReq(9, -1, "t", 0, realBatch(t, 1000)))
	buf, pbuf := make([]byte, 64<<10), make([]byte, 64<<10)
	r := fetchReq(12, "t", 0, 0)
	r.MaxWaitMillis = waitMillis
	poll := frameOf(1, r)
	// The fetch offset stands behind a string, partition and two epochs: set it in place.
	at := len(poll) - 8 - 4 - 8 - 4 - 1 - 1 - 1 - 1 - 1 // last epoch, log start, max bytes, tags, forgotten, rack
	offset := int64(0)
	run := func() {
		binary.BigEndian.PutUint64(poll[at:], uint64(offset))
		if _, err := c.c.Write(poll); err != nil {
			t.Fatal(err)
		}
		p.exchange(produce, pbuf)
		if a := c.answer(buf); len(a) < 1000 {
			t.Fatalf("answer of %d bytes", len(a))
		}
		offset++
	}
	for range 100 {
		run()
	}
	const most = 4
	got := fewestAllocs(most, run)
	t.Logf("%.1f allocations for a poll and the Produce that ends it", got)
	if got > most {
		t.Errorf("%.1f allocations, want at most %d", got, most)
	}
}

// What lies in files arrives as it was appended: by sendfile, through the buffer,
// and in every mixture.
func TestRecordsOfFilesArriveAsAppended(t *testing.T) {
	c := hotNode(t, 3)
	rng := rand.New(rand.NewPCG(1, 2))
	var sent [3][][]byte
	for range 60 {
		r := produceReq(9, 1, "t", 0, nil)
		r.Topics[0].Partitions = nil
		for i := range sent {
			b := realBatch(t, 100+rng.IntN(1<<(8+rng.IntN(10))))
			for j := range b[100 : len(b)-1] { // within the value
				b[100+j] = byte(i + 1)
			}
			binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
			sent[i] = append(sent[i], b)
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = int32(i), b
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
		}
		if p := produced(c.call(r)); p.ErrorCode != 0 {
			t.Fatalf("code %d", p.ErrorCode)
		}
	}
	for _, most := range []int32{1, 1000, 60_000, 70_000, 300_000, 10 << 20} {
		var got [3]int // batches
		for got != [3]int{60, 60, 60} {
			r := fetchReq(12, "t", 0, 0, 1, 2)
			rng.Shuffle(3, func(i, j int) {
				ps := r.Topics[0].Partitions
				ps[i], ps[j] = ps[j], ps[i]
			})
			for i := range r.Topics[0].Partitions {
				p := &r.Topics[0].Partitions[i]
				p.PartitionMaxBytes, p.FetchOffset = most, int64(got[p.Partition])
			}
			for _, p := range c.call(r).(*kmsg.FetchResponse).Topics[0].Partitions {
				for rest := p.RecordBatches; len(rest) > 0; {
					want := sent[p.Partition][got[p.Partition]]
					if len(rest) < len(want) {
						break // cut by the limit, as Kafka does
					}
					if !bytes.Equal(rest[16:len(want)], want[16:]) || binary.BigEndian.Uint64(rest) != uint64(got[p.Partition]) {
						t.Fatalf("max %d: batch %d of partition %d is not what was appended", most, got[p.Partition], p.Partition)
					}
					rest = rest[len(want):]
					got[p.Partition]++
				}
			}
		}
	}
}

// realBatch is a batch of one record that takes about size bytes, as a log takes it.
func realBatch(t testing.TB, size int) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.Spec{})
	b.Add(time.Now().UnixMilli(), nil, make([]byte, max(0, size-80)))
	out, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func benchmarkProduce(b *testing.B, size int) {
	c := hotNode(b, 1)
	frame, buf := frameOf(1, produceReq(9, -1, "t", 0, realBatch(b, size))), make([]byte, 4096)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		c.exchange(frame, buf)
	}
}

func BenchmarkProduce1K(b *testing.B)  { benchmarkProduce(b, 1<<10) }
func BenchmarkProduce16K(b *testing.B) { benchmarkProduce(b, 16<<10) }

func benchmarkFetch(b *testing.B, most int32) {
	c := hotNode(b, 1)
	frame, buf := frameOf(1, produceReq(9, -1, "t", 0, realBatch(b, 16<<10))), make([]byte, 4<<20)
	for range 200 {
		c.exchange(frame, buf)
	}
	r := fetchReq(12, "t", 0, 0)
	r.Topics[0].Partitions[0].PartitionMaxBytes = most
	frame = frameOf(1, r)
	b.SetBytes(int64(most))
	b.ReportAllocs()
	for b.Loop() {
		c.exchange(frame, buf)
	}
}

func BenchmarkFetch32K(b *testing.B) { benchmarkFetch(b, 32<<10) }
func BenchmarkFetch1M(b *testing.B)  { benchmarkFetch(b, 1<<20) }
