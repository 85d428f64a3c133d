package broker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
	"firn/segment/batch"
)

func TestProduceThenFetchInEveryVersion(t *testing.T) {
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {newMemLog()}})
	c := b.dial()
	for v := int16(3); v <= 13; v++ {
		p := produced(c.call(produceReq(v, -1, "t", 0, batchOf(byte(v), 3, 100))))
		if want := int64(v-3) * 3; p.ErrorCode != 0 || p.BaseOffset != want {
			t.Fatalf("Produce v%d: code %d, base offset %d, want 0, %d", v, p.ErrorCode, p.BaseOffset, want)
		}
	}
	for v := int16(4); v <= 18; v++ {
		p := fetched(c.call(fetchReq(v, "t", 0, 0)))
		if p.ErrorCode != 0 || p.HighWatermark != 33 || len(p.RecordBatches) != 1100 {
			t.Fatalf("Fetch v%d: code %d, high watermark %d, %d bytes", v, p.ErrorCode, p.HighWatermark, len(p.RecordBatches))
		}
	}
}

// v0 to v2 are advertised for librdkafka's sake, and refused in words.
func TestOldProduceVersionsAreRefused(t *testing.T) {
	log := newMemLog()
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	c := b.dial()
	for v := int16(0); v <= 2; v++ {
		if p := produced(c.call(produceReq(v, 1, "t", 0, batchOf(1, 1, 61)))); p.ErrorCode != kerr.UnsupportedVersion.Code {
			t.Errorf("v%d: code %d", v, p.ErrorCode)
		}
	}
	if log.Offsets().End != 0 {
		t.Error("something was appended")
	}
}

func TestProduceRefusals(t *testing.T) {
	log := newMemLog()
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log, nil}})
	x := *b.b.topics.Load()
	internal := *x.byName["t"]
	internal.internal = true
	x.byName = map[string]*topic{"t": x.byName["t"], "__internal": &internal}
	b.b.topics.Store(&x)
	for _, c := range []struct {
		name string
		edit func(*kmsg.ProduceRequest)
		want *kerr.Error
	}{
		{"acks 2", func(r *kmsg.ProduceRequest) { r.Acks = 2 }, kerr.InvalidRequiredAcks},
		{"acks -2", func(r *kmsg.ProduceRequest) { r.Acks = -2 }, kerr.InvalidRequiredAcks},
		{"transaction", func(r *kmsg.ProduceRequest) { r.TransactionID = new("tx") }, kerr.TransactionalIDAuthorizationFailed},
		{"no topic", func(r *kmsg.ProduceRequest) { r.Topics[0].Topic = "other" }, kerr.UnknownTopicOrPartition},
		{"no topic id", func(r *kmsg.ProduceRequest) { r.Version, r.Topics[0].TopicID = 13, [16]byte{9} }, kerr.UnknownTopicID},
		{"no partition", func(r *kmsg.ProduceRequest) { r.Topics[0].Partitions[0].Partition = 2 }, kerr.UnknownTopicOrPartition},
		{"negative partition", func(r *kmsg.ProduceRequest) { r.Topics[0].Partitions[0].Partition = -1 }, kerr.UnknownTopicOrPartition},
		{"hosted elsewhere", func(r *kmsg.ProduceRequest) { r.Topics[0].Partitions[0].Partition = 1 }, kerr.NotLeaderForPartition},
		{"internal", func(r *kmsg.ProduceRequest) { r.Topics[0].Topic = "__internal" }, kerr.InvalidTopicException},
		{"garbage", func(r *kmsg.ProduceRequest) { r.Topics[0].Partitions[0].Records = []byte("garbage") }, kerr.CorruptMessage},
	} {
		r := produceReq(9, 1, "t", 0, batchOf(1, 1, 100))
		c.edit(r)
		p := produced(b.dial().call(r))
		if p.ErrorCode != c.want.Code || p.BaseOffset != -1 {
			t.Errorf("%s: code %d, base offset %d; want %d", c.name, p.ErrorCode, p.BaseOffset, c.want.Code)
		}
	}
	if log.Offsets().End != 0 {
		t.Error("something was appended")
	}
}

// What no reader could decode is refused as Kafka refuses it: INVALID_RECORD, with
// words and, since it is the batch that is wrong, without errors of single records.
// Nothing of that partition is written, and the others of the request are.
func TestGarbledRecordsAreRefused(t *testing.T) {
	c := hotNode(t, 3)
	garbled := realBatch(t, 300)
	garbled[len(garbled)-1] = 2 // one header, which isn't there
	binary.BigEndian.PutUint32(garbled[17:], crc32.Checksum(garbled[21:], crc32.MakeTable(crc32.Castagnoli)))
	for v := int16(3); v <= 12; v++ {
		r := produceReq(v, -1, "t", 0, realBatch(t, 300))
		for i, b := range [][]byte{garbled, realBatch(t, 300)} {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = int32(i+1), b
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
		}
		ps := c.call(r).(*kmsg.ProduceResponse).Topics[0].Partitions
		written := int64(v - 3)
		if ps[0].ErrorCode != 0 || ps[0].BaseOffset != written || ps[2].ErrorCode != 0 || ps[2].BaseOffset != written {
			t.Errorf("v%d: the others: %+v, %+v", v, ps[0], ps[2])
		}
		if p := ps[1]; p.ErrorCode != kerr.InvalidRecord.Code || p.BaseOffset != -1 || len(p.ErrorRecords) != 0 || v >= 8 && p.ErrorMessage == nil {
			t.Errorf("v%d: the garbled one: %+v", v, p)
		}
	}
	for i, want := range []int64{10, 0, 10} {
		if p := fetched(c.call(fetchReq(12, "t", 0, int32(i)))); p.HighWatermark != want {
			t.Errorf("partition %d ends at %d, want %d", i, p.HighWatermark, want)
		}
	}
}

// A record from too far ahead refuses its batch as in Kafka: INVALID_TIMESTAMP, and
// from v8 on with the records that are meant.
func TestWrongTimestampsAreNamed(t *testing.T) {
	c := hotNode(t, 1)
	w := batch.NewBuilder(batch.Spec{})
	for _, ahead := range []time.Duration{0, 2 * time.Hour, time.Minute, 3 * time.Hour} {
		w.Add(time.Now().Add(ahead).UnixMilli(), nil, []byte("v"))
	}
	b, err := w.Build()
	if err != nil {
		t.Fatal(err)
	}
	for v := int16(3); v <= 12; v++ {
		p := produced(c.call(produceReq(v, -1, "t", 0, bytes.Clone(b))))
		if p.ErrorCode != kerr.InvalidTimestamp.Code || p.BaseOffset != -1 || v >= 8 && p.ErrorMessage == nil {
			t.Errorf("v%d: %+v", v, p)
		}
		var named []int32
		for _, r := range p.ErrorRecords {
			if r.ErrorMessage != nil {
				named = append(named, r.RelativeOffset)
			}
		}
		if want := []int32{1, 3}; v >= 8 && !slices.Equal(named, want) {
			t.Errorf("v%d: records %v are named, want %v", v, named, want)
		}
	}
	if p := fetched(c.call(fetchReq(12, "t", 0, 0))); p.HighWatermark != 0 {
		t.Errorf("the log ends at %d", p.HighWatermark)
	}
}

// Two batches for a partition are INVALID_RECORD, as from Kafka: none of them is
// written, and the other partitions of the request are.
func TestOneBatchForAPartition(t *testing.T) {
	c := hotNode(t, 2)
	for v := int16(3); v <= 12; v++ {
		r := produceReq(v, -1, "t", 0, slices.Concat(realBatch(t, 300), realBatch(t, 300)))
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = 1, realBatch(t, 300)
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
		ps := c.call(r).(*kmsg.ProduceResponse).Topics[0].Partitions
		if p := ps[0]; p.ErrorCode != kerr.InvalidRecord.Code || p.BaseOffset != -1 || v >= 8 && p.ErrorMessage == nil {
			t.Errorf("v%d: two batches: %+v", v, p)
		}
		if p := ps[1]; p.ErrorCode != 0 || p.BaseOffset != int64(v-3) {
			t.Errorf("v%d: the other partition: %+v", v, p)
		}
	}
	for i, want := range []int64{0, 10} {
		if p := fetched(c.call(fetchReq(12, "t", 0, int32(i)))); p.HighWatermark != want {
			t.Errorf("partition %d ends at %d, want %d", i, p.HighWatermark, want)
		}
	}
}

// Every error of the log has a code of its own, and from v8 on words: none is
// UNKNOWN_SERVER_ERROR, which makes clients send again what was appended (E14).
func TestEveryErrorOfAnAppendHasItsCode(t *testing.T) {
	for _, row := range errorTable {
		log := newMemLog()
		log.appendErr = row.err
		b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
		p := produced(b.dial().call(produceReq(9, -1, "t", 0, batchOf(1, 1, 61))))
		if p.ErrorCode != row.code.Code || p.ErrorCode == kerr.UnknownServerError.Code || p.ErrorMessage == nil {
			t.Errorf("%v: code %d, message %v", row.err, p.ErrorCode, p.ErrorMessage)
		} else if first, _, _ := strings.Cut(row.err.Error(), ": "); strings.HasPrefix(*p.ErrorMessage, first+": ") {
			t.Errorf("a client reads the name of a package: %s", *p.ErrorMessage)
		}
		b.stop()
	}
}

func TestNotLeaderNamesTheLeader(t *testing.T) {
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {nil}})
	x := *b.b.topics.Load()
	x.brokers = []meta.Broker{{ID: 7, Rack: "r", Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "seven", Port: 9}}}}
	x.byName["t"].states[0] = meta.PartitionState{Leader: meta.Member{ID: 7}, LeaderEpoch: 3}
	b.b.topics.Store(&x)
	c := b.dial()
	pr := c.call(produceReq(12, 1, "t", 0, batchOf(1, 1, 61))).(*kmsg.ProduceResponse)
	if p := produced(pr); p.CurrentLeader.LeaderID != 7 || p.CurrentLeader.LeaderEpoch != 3 || len(pr.Brokers) != 1 || pr.Brokers[0].Host != "seven" {
		t.Errorf("Produce: %+v, %+v", p.CurrentLeader, pr.Brokers)
	}
	fr := c.call(fetchReq(16, "t", 0, 0)).(*kmsg.FetchResponse)
	if p := fetched(fr); p.ErrorCode != 6 || p.CurrentLeader.LeaderID != 7 || len(fr.Brokers) != 1 || fr.Brokers[0].Port != 9 {
		t.Errorf("Fetch: %+v, %+v", p.CurrentLeader, fr.Brokers)
	}
}

func TestAcksNoneIsNotAnswered(t *testing.T) {
	log := newMemLog()
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	c := b.dial()
	c.send(produceReq(9, 0, "t", 0, batchOf(1, 1, 100)))
	if p := produced(c.call(produceReq(9, 1, "t", 0, batchOf(1, 1, 100)))); p.BaseOffset != 1 {
		t.Errorf("base offset %d, want 1", p.BaseOffset)
	}
	// A failure shows by the connection's end, so that the client looks for the leader.
	c.send(produceReq(9, 0, "nope", 0, batchOf(1, 1, 100)))
	c.closed()
}

// With acks=all and others in sync, acks wait, later requests are appended
// meanwhile, and all are answered in order.
func TestAcksAllWaitsForReplicas(t *testing.T) {
	log := newMemLog()
	log.hold = true // as if the high watermark waited for a follower
	quick := newMemLog()
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log, quick}})
	c := b.dial()
	slow := produceReq(9, -1, "t", 0, batchOf(1, 1, 100))
	fast := produceReq(9, -1, "t", 1, batchOf(2, 1, 100))
	one := c.send(slow)
	two := c.send(fast)
	three := c.send(slow)
	eventually(t, "all are appended", func() bool { return log.Offsets().End == 2 && quick.Offsets().End == 1 })
	log.flush()
	for corr, want := range map[int32]int64{one: 0} {
		if p := produced(c.recv(corr, slow)); p.ErrorCode != 0 || p.BaseOffset != want {
			t.Errorf("request %d: code %d, base offset %d", corr, p.ErrorCode, p.BaseOffset)
		}
	}
	if p := produced(c.recv(two, fast)); p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Errorf("request 2: code %d, base offset %d", p.ErrorCode, p.BaseOffset)
	}
	if p := produced(c.recv(three, slow)); p.ErrorCode != 0 || p.BaseOffset != 1 {
		t.Errorf("request 3: code %d, base offset %d", p.ErrorCode, p.BaseOffset)
	}
	// And when the queue is empty again, the reader answers by itself.
	if p := produced(c.call(fast)); p.BaseOffset != 1 {
		t.Errorf("afterwards: base offset %d", p.BaseOffset)
	}
}

// A due flush holds every ack, that of acks=1 too (S6).
func TestAcksOneWaitsForADueFlush(t *testing.T) {
	log := newMemLog()
	log.hold = true
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	c := b.dial()
	r := produceReq(9, 1, "t", 0, batchOf(1, 1, 100))
	corr := c.send(r)
	eventually(t, "the ack waits", func() bool { return b.waiting("t", 0) == 1 })
	log.flush()
	if p := produced(c.recv(corr, r)); p.ErrorCode != 0 {
		t.Errorf("code %d", p.ErrorCode)
	}
}

func TestAckThatTakesTooLong(t *testing.T) {
	log := newMemLog()
	log.hold = true
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	r := produceReq(9, -1, "t", 0, batchOf(1, 1, 100))
	r.TimeoutMillis = 20
	if p := produced(b.dial().call(r)); p.ErrorCode != kerr.RequestTimedOut.Code || p.BaseOffset != -1 {
		t.Errorf("code %d, base offset %d", p.ErrorCode, p.BaseOffset)
	}
}

// What isn't a Produce waits for the acks before it: answers keep their order.
func TestOtherRequestsWaitForAcks(t *testing.T) {
	log := newMemLog()
	log.hold = true
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	c := b.dial()
	p, f, v := produceReq(9, -1, "t", 0, batchOf(1, 1, 100)), fetchReq(12, "t", 0, 0), kmsg.NewPtrApiVersionsRequest()
	corr := []int32{c.send(p), c.send(f), c.send(v)}
	eventually(t, "the ack waits", func() bool { return b.waiting("t", 0) == 1 })
	log.flush()
	c.recv(corr[0], p)
	if got := fetched(c.recv(corr[1], f)); len(got.RecordBatches) != 100 {
		t.Errorf("fetched %d bytes", len(got.RecordBatches))
	}
	c.recv(corr[2], v)
}

// The queue of acks is bounded: then the connection isn't read.
func TestQueueOfAcksIsBounded(t *testing.T) {
	log := newMemLog()
	log.hold = true
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	c := b.dial()
	r := produceReq(9, -1, "t", 0, batchOf(1, 1, 61))
	r.TimeoutMillis = 60_000 // the last ack waits for all others
	const n = 2 * maxAcks
	for range n {
		c.send(r)
	}
	eventually(t, "the queue is full", func() bool { return log.Offsets().End > maxAcks })
	if end := log.Offsets().End; end > maxAcks+1 {
		t.Errorf("%d appended, with a queue of %d", end, maxAcks)
	}
	for i := range int32(n) {
		eventually(t, "it is appended", func() bool { return log.Offsets().End > int64(i) }) // or this flush misses it
		log.flush()
		if p := produced(c.recv(i+1, r)); p.BaseOffset != int64(i) {
			t.Fatalf("ack %d: base offset %d", i, p.BaseOffset)
		}
	}
}

func TestLostLeadershipFailsWaitingAcks(t *testing.T) {
	log := newMemLog()
	log.hold = true
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	c := b.dial()
	r := produceReq(9, -1, "t", 0, batchOf(1, 1, 100))
	corr := c.send(r)
	eventually(t, "the ack waits", func() bool { return b.waiting("t", 0) == 1 })
	p := b.b.topics.Load().byName["t"].partition(0)
	next := meta.PartitionState{Leader: meta.Member{ID: 1, Epoch: 1}, LeaderEpoch: 6, ISR: []meta.Member{{ID: 1, Epoch: 1}}}
	if err := p.Become(t.Context(), next, meta.Member{ID: 0, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	if got := produced(c.recv(corr, r)); got.ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Errorf("code %d", got.ErrorCode)
	}
}

// KIP-951: an ack that waits when its leadership ends says who leads now, and where,
// beside what the answer told already.
func TestLostLeadershipNamesTheNextLeader(t *testing.T) {
	for v := int16(3); v <= 13; v++ {
		lost, kept := newMemLog(), newMemLog()
		lost.hold, kept.hold = true, true
		b := startBroker(t, Network{}, map[string][]replication.Log{"t": {lost, nil, kept}})
		x := *b.b.topics.Load()
		x.brokers = []meta.Broker{
			{ID: 7, Rack: "r", Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "seven", Port: 9}}},
			{ID: 8, Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "eight", Port: 10}}},
		}
		x.byName["t"].states[1] = meta.PartitionState{Leader: meta.Member{ID: 8}, LeaderEpoch: 3}
		b.b.topics.Store(&x)
		r := produceReq(v, -1, "t", 0, batchOf(1, 1, 100))
		for p := int32(1); p <= 2; p++ {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, produceReq(v, -1, "t", p, batchOf(1, 1, 100)).Topics[0].Partitions...)
		}
		c := b.dial()
		corr := c.send(r)
		eventually(t, "both acks wait", func() bool { return b.waiting("t", 0) == 1 && b.waiting("t", 2) == 1 })
		next := meta.PartitionState{Leader: meta.Member{ID: 7, Epoch: 1}, LeaderEpoch: 6, ISR: []meta.Member{{ID: 7, Epoch: 1}}}
		if err := x.byName["t"].partition(0).Become(t.Context(), next, meta.Member{ID: 0, Epoch: 1}); err != nil {
			t.Fatal(err)
		}
		kept.flush()
		resp := c.recv(corr, r).(*kmsg.ProduceResponse)
		p := resp.Topics[0].Partitions
		for i, want := range []int16{kerr.NotLeaderForPartition.Code, kerr.NotLeaderForPartition.Code, 0} {
			if p[i].Partition != int32(i) || p[i].ErrorCode != want {
				t.Errorf("v%d: partition %d: %+v, want code %d", v, i, p[i], want)
			}
		}
		if v < 10 {
			b.stop()
			continue
		}
		if l := p[0].CurrentLeader; l.LeaderID != 7 || l.LeaderEpoch != 6 {
			t.Errorf("v%d: the next leader: %+v", v, l)
		}
		if p[1].CurrentLeader.LeaderID != 8 || p[2].CurrentLeader.LeaderID != -1 || p[2].BaseOffset != 0 {
			t.Errorf("v%d: the others: %+v", v, p[1:])
		}
		if n := resp.Brokers; len(n) != 2 || n[0].Host != "eight" || n[1].Host != "seven" || n[1].Rack == nil {
			t.Errorf("v%d: brokers %+v", v, n)
		}
		b.stop()
	}
}

func TestFetchCodesAreOfTheClosedList(t *testing.T) {
	for _, row := range errorTable {
		code := fetchCode(row.err)
		ok := false
		for _, k := range fetchCodes {
			ok = ok || k.Code == code
		}
		if !ok {
			t.Errorf("%v is answered with %d, which clients can't take", row.err, code)
		}
	}
	if c := fetchCode(errors.New("anything")); c != kerr.KafkaStorageError.Code {
		t.Errorf("an error of our own: %d", c)
	}
	if c := fetchCode(segment.ErrOffsetOutOfRange); c != kerr.OffsetOutOfRange.Code {
		t.Errorf("out of range: %d", c)
	}
}
