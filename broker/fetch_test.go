package broker

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication"
	"firn/segment"
)

func filled(batches, size int) *memLog {
	l := newMemLog()
	for range batches {
		if _, err := l.Append(batchOf(1, 1, size), segment.AppendOptions{}); err != nil {
			panic(err)
		}
	}
	return l
}

func TestFetchWaitsForRecords(t *testing.T) {
	log := newMemLog()
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	c := b.dial()
	r := fetchReq(12, "t", 0, 0)
	r.MaxWaitMillis = 60_000
	corr := c.send(r)
	eventually(t, "the fetch waits", func() bool { return b.waiting("t", 0) == 1 })
	b.dial().call(produceReq(9, 1, "t", 0, batchOf(1, 1, 100)))
	if p := fetched(c.recv(corr, r)); len(p.RecordBatches) != 100 || p.HighWatermark != 1 {
		t.Errorf("%d bytes, high watermark %d", len(p.RecordBatches), p.HighWatermark)
	}
	if n := b.waiting("t", 0); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

func TestFetchWaitsForItsMinimum(t *testing.T) {
	log := newMemLog()
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	c, p := b.dial(), b.dial()
	r := fetchReq(12, "t", 0, 0)
	r.MaxWaitMillis, r.MinBytes = 60_000, 250
	corr := c.send(r)
	for range 3 {
		eventually(t, "the fetch waits", func() bool { return b.waiting("t", 0) == 1 })
		p.call(produceReq(9, 1, "t", 0, batchOf(1, 1, 100)))
	}
	if p := fetched(c.recv(corr, r)); len(p.RecordBatches) != 300 {
		t.Errorf("%d bytes", len(p.RecordBatches))
	}
}

func TestFetchEndsAtMaxWait(t *testing.T) {
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {filled(1, 100)}})
	r := fetchReq(12, "t", 0, 0)
	r.MaxWaitMillis, r.MinBytes = 30, 1000
	start := time.Now()
	p := fetched(b.dial().call(r))
	if d := time.Since(start); p.ErrorCode != 0 || d < 30*time.Millisecond {
		t.Errorf("code %d after %v", p.ErrorCode, d)
	}
}

// An answer holds at most max bytes over all partitions, but the first batch
// that there is comes whole (KIP-74).
func TestFetchLimits(t *testing.T) {
	empty, a, b2 := newMemLog(), filled(10, 1000), filled(10, 1000)
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {empty, a, b2}})
	for _, l := range []*memLog{a, b2} {
		l.SetHighWatermark(10)
	}
	c := b.dial()
	for _, q := range []struct {
		max, partition int32
		want           []int
	}{
		{50_000, 50_000, []int{0, 10_000, 10_000}},
		{12_000, 50_000, []int{0, 10_000, 2000}},
		{50_000, 3500, []int{0, 3000, 3000}},
		{1, 50_000, []int{0, 1000, 0}},
		{50_000, 1, []int{0, 1000, 0}},
		{10_000, 10_000, []int{0, 10_000, 0}},
	} {
		r := fetchReq(12, "t", 0, 0, 1, 2)
		r.MaxBytes = q.max
		for i := range r.Topics[0].Partitions {
			r.Topics[0].Partitions[i].PartitionMaxBytes = q.partition
		}
		resp := c.call(r).(*kmsg.FetchResponse)
		var got []int
		for _, p := range resp.Topics[0].Partitions {
			got = append(got, len(p.RecordBatches))
			if p.RecordBatches == nil || p.ErrorCode != 0 {
				t.Errorf("partition %d: null records or code %d", p.Partition, p.ErrorCode)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(q.want) {
			t.Errorf("max %d, %d a partition: %v, want %v", q.max, q.partition, got, q.want)
		}
	}
}

func TestFetchErrors(t *testing.T) {
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {newMemLog(), nil}})
	for _, c := range []struct {
		name    string
		version int16
		edit    func(*kmsg.FetchRequest)
		want    *kerr.Error
	}{
		{"no topic", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Topic = "x" }, kerr.UnknownTopicOrPartition},
		{"no id", 13, func(r *kmsg.FetchRequest) { r.Topics[0].TopicID = [16]byte{9} }, kerr.UnknownTopicID},
		{"no partition", 13, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = 2 }, kerr.UnknownTopicOrPartition},
		{"elsewhere", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = 1 }, kerr.NotLeaderForPartition},
		{"beyond the end", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 5 }, kerr.OffsetOutOfRange},
		{"old epoch", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 4 }, kerr.FencedLeaderEpoch},
		{"new epoch", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 6 }, kerr.UnknownLeaderEpoch},
		{"replica", 12, func(r *kmsg.FetchRequest) { r.ReplicaID = 2 }, kerr.ClusterAuthorizationFailed},
		{"replica by tag", 15, func(r *kmsg.FetchRequest) { r.ReplicaState.ID = 2 }, kerr.ClusterAuthorizationFailed},
	} {
		r := fetchReq(c.version, "t", 0, 0)
		r.MaxWaitMillis = 60_000 // these don't wait
		c.edit(r)
		p := fetched(b.dial().call(r))
		if p.ErrorCode != c.want.Code || p.HighWatermark != -1 || p.RecordBatches == nil {
			t.Errorf("%s: code %d, want %d; high watermark %d, records %v", c.name, p.ErrorCode, c.want.Code, p.HighWatermark, p.RecordBatches)
		}
	}
}

// An error of the storage is held until max wait: clients ask again at once.
func TestStorageErrorsAreHeld(t *testing.T) {
	for _, err := range []error{segment.ErrFailed, segment.ErrCorrupt} {
		log, fine := newMemLog(), newMemLog()
		log.readErr = err
		b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log, fine}})
		c := b.dial()
		r := fetchReq(12, "t", 0, 0)
		r.MaxWaitMillis = 40
		start := time.Now()
		if p := fetched(c.call(r)); p.ErrorCode != errorCode(err) || time.Since(start) < 40*time.Millisecond {
			t.Errorf("%v: code %d after %v", err, p.ErrorCode, time.Since(start))
		}
		// Beside records it doesn't wait.
		b.dial().call(produceReq(9, 1, "t", 1, batchOf(1, 1, 100)))
		r = fetchReq(12, "t", 0, 0, 1)
		r.MaxWaitMillis = 60_000
		resp := c.call(r).(*kmsg.FetchResponse)
		if p := resp.Topics[0].Partitions; p[0].ErrorCode != errorCode(err) || len(p[1].RecordBatches) != 100 {
			t.Errorf("%v: %+v", err, p)
		}
	}
}

func TestReadCommittedListsAbortedTransactions(t *testing.T) {
	log := filled(1, 100)
	log.aborted = []segment.AbortedTxn{{ProducerID: 4, First: 2}}
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	log.SetHighWatermark(1)
	r := fetchReq(12, "t", 0, 0)
	if p := fetched(b.dial().call(r)); len(p.AbortedTransactions) != 0 {
		t.Errorf("read uncommitted: %+v", p.AbortedTransactions)
	}
	r.IsolationLevel = 1
	p := fetched(b.dial().call(r))
	if len(p.AbortedTransactions) != 1 || p.AbortedTransactions[0].ProducerID != 4 || p.AbortedTransactions[0].FirstOffset != 2 {
		t.Errorf("read committed: %+v", p.AbortedTransactions)
	}
}

// A cold partition holds up no hot one, and an answer comes as soon as the first
// of several has something.
func TestColdPartitionsWaitForTheArchive(t *testing.T) {
	cold := []*memLog{filled(1, 100), filled(1, 100), filled(1, 100)}
	hot := newMemLog()
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {cold[0], cold[1], cold[2], hot}})
	arrive := make([]chan struct{}, len(cold))
	for i, l := range cold {
		l.SetHighWatermark(1)
		arrive[i] = make(chan struct{})
		l.setPending(arrive[i])
	}
	c := b.dial()
	r := fetchReq(12, "t", 0, 0, 1, 2, 3)
	r.MaxWaitMillis = 60_000

	corr := c.send(r)
	eventually(t, "the fetch waits", func() bool { return b.waiting("t", 3) == 1 })
	b.dial().call(produceReq(9, 1, "t", 3, batchOf(9, 1, 100)))
	if p := c.recv(corr, r).(*kmsg.FetchResponse).Topics[0].Partitions; len(p[3].RecordBatches) != 100 || len(p[0].RecordBatches) != 0 {
		t.Fatalf("with a hot record: %d, %d bytes", len(p[3].RecordBatches), len(p[0].RecordBatches))
	}

	r.Topics[0].Partitions[3].FetchOffset = 1
	corr = c.send(r)
	eventually(t, "the fetch waits", func() bool { return b.waiting("t", 3) == 1 })
	cold[1].setPending(nil)
	close(arrive[1])
	if p := c.recv(corr, r).(*kmsg.FetchResponse).Topics[0].Partitions; len(p[1].RecordBatches) != 100 || len(p[0].RecordBatches) != 0 {
		t.Fatalf("with an arrival: %d, %d bytes", len(p[1].RecordBatches), len(p[0].RecordBatches))
	}

	// What hasn't arrived by max wait is empty, and no error.
	r = fetchReq(12, "t", 0, 0)
	r.MaxWaitMillis = 20
	if p := fetched(c.call(r)); p.ErrorCode != 0 || len(p.RecordBatches) != 0 {
		t.Errorf("at max wait: code %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
	}
}

// No byte of one partition shows up in another's answer (G5): buffers come back
// poisoned in tests, and every payload is signed.
func TestPayloadsStayApart(t *testing.T) {
	logs := []replication.Log{newMemLog(), newMemLog(), newMemLog(), newMemLog()}
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": logs})
	done := make(chan error, len(logs))
	for i := range logs {
		c := b.dial()
		go func() {
			done <- func() error {
				for n := range 60 {
					tag := byte(i + 1)
					c.call(produceReq(9, 1, "t", int32(i), batchOf(tag, 1, 100+n*n*20)))
					p := fetched(c.call(fetchReq(12, "t", int64(n), int32(i))))
					if want := max(100+n*n*20, 61); len(p.RecordBatches) != want || !bytes.Equal(p.RecordBatches[61:], bytes.Repeat([]byte{tag}, want-61)) {
						return fmt.Errorf("partition %d, batch %d: foreign bytes", i, n)
					}
				}
				return nil
			}()
		}()
	}
	for range logs {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
