package broker

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"firn/replication"
	"firn/replication/isr"
	"firn/replication/meta"
	"firn/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memLog is a log in memory: batches as they came, with their offsets stamped.
type memLog struct {
	replication.Log // what tests don't use

	mu        sync.Mutex
	batches   [][]byte
	last      []int64 // of each batch
	o         segment.Offsets
	onCounted func()
	hold      bool // appends wait for flush before they count
	appendErr error
	readErr   error
	// cold: records at or above the local start alone are here; below it, Pending.
	pending chan struct{}
	aborted []segment.AbortedTxn
}

func newMemLog() *memLog { return &memLog{o: segment.Offsets{ArchivedEnd: -1}} }

func (l *memLog) Append(b []byte, o segment.AppendOptions) (segment.Appended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.appendErr != nil {
		return segment.Appended{}, l.appendErr
	}
	a := segment.Appended{First: l.o.End, AppendTime: -1, LogStart: l.o.LogStart}
	for len(b) > 0 {
		if len(b) < 61 {
			return segment.Appended{}, segment.ErrCorrupt
		}
		n := 12 + int(binary.BigEndian.Uint32(b[8:]))
		batch := append([]byte(nil), b[:n]...)
		binary.BigEndian.PutUint64(batch, uint64(l.o.End))
		l.o.End += int64(binary.BigEndian.Uint32(batch[23:])) + 1
		l.batches = append(l.batches, batch)
		l.last = append(l.last, l.o.End-1)
		b = b[n:]
	}
	a.Last = l.o.End - 1
	if !l.hold {
		l.o.Counted = l.o.End
	}
	return a, nil
}

func (l *memLog) flush() {
	l.mu.Lock()
	l.o.Counted = l.o.End
	l.mu.Unlock()
	l.onCounted()
}

func (l *memLog) Read(r segment.ReadRequest) (segment.ReadResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readErr != nil {
		return segment.ReadResult{}, l.readErr
	}
	if r.Offset < l.o.LogStart || r.Offset > l.o.End {
		return segment.ReadResult{}, segment.ErrOffsetOutOfRange
	}
	if l.pending != nil {
		return segment.ReadResult{Offsets: l.o, Pending: l.pending}, nil
	}
	var parts []segment.Part
	n := 0
	for i, b := range l.batches {
		if l.last[i] < r.Offset || l.last[i] >= l.o.HighWatermark {
			continue
		}
		if n+len(b) > r.MaxBytes && !(n == 0 && r.MinOne) {
			break
		}
		n += len(b)
		parts = append(parts, segment.Part{Mem: b, Len: len(b)})
	}
	res := segment.ReadResult{Offsets: l.o, Records: segment.NewRecords(nil, parts...)}
	if r.Until == segment.UntilStable {
		res.Aborted = l.aborted
	}
	return res, nil
}

func (l *memLog) Offsets() segment.Offsets {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.o
}

func (l *memLog) SetHighWatermark(hw int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.o.HighWatermark = max(l.o.HighWatermark, min(hw, l.o.Counted))
	l.o.Stable = l.o.HighWatermark
}

func (l *memLog) SetLogStart(_ context.Context, o int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.o.LogStart = o
	return nil
}

func (l *memLog) OnCounted(f func())                { l.onCounted = f }
func (l *memLog) Err() error                        { return nil }
func (l *memLog) LatestEpoch() int32                { return -1 }
func (l *memLog) Lead(context.Context, int32) error { return nil }
func (l *memLog) StopLeading()                      {}

func (l *memLog) setPending(c chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = c
}

// testBroker is a broker of topics on logs that a test made.
type testBroker struct {
	t    testing.TB
	b    *Broker
	addr string
	stop func()
}

func topicIDOf(name string) (id meta.TopicID) {
	copy(id[:], "id-of-"+name)
	return id
}

// lead makes a leader on log.
func lead(t testing.TB, topic string, index int32, log replication.Log, isrs ...meta.Member) *replication.Partition {
	t.Helper()
	members := append([]meta.Member{{ID: 0, Epoch: 1}}, isrs...)
	p := replication.New(replication.Config{
		Topic: topic, TopicID: topicIDOf(topic), Index: index, Log: log,
		Rules: isr.Rules{MinInsync: 1, Replicas: len(members)},
	})
	st := meta.PartitionState{Leader: members[0], LeaderEpoch: 5, ISR: members, ControllerEpoch: 1}
	if err := p.Become(t.Context(), st, members[0]); err != nil {
		t.Fatal(err)
	}
	return p
}

// startBroker serves topics, each a list of logs by partition.
func startBroker(t testing.TB, n Network, topics map[string][]replication.Log) *testBroker {
	t.Helper()
	n.Poison = true
	b, err := New(Config{Listeners: []Listener{{Name: "PLAINTEXT", Host: "127.0.0.1"}}, Network: n, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	x := &topicIndex{byName: map[string]*topic{}, byID: map[meta.TopicID]*topic{}}
	for name, logs := range topics {
		tp := &topic{Topic: meta.Topic{Name: name, ID: topicIDOf(name)}}
		for i, l := range logs {
			tp.Replicas = append(tp.Replicas, []int32{0})
			tp.states = append(tp.states, meta.PartitionState{Leader: meta.Member{ID: 0, Epoch: 1}, LeaderEpoch: 5})
			if l == nil {
				tp.parts = append(tp.parts, nil)
				continue
			}
			tp.parts = append(tp.parts, lead(t, name, int32(i), l))
		}
		x.byName[name], x.byID[tp.ID] = tp, tp
	}
	b.topics.Store(x)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.server.run(ctx) }()
	tb := &testBroker{t: t, b: b, addr: b.server.listeners[0].Addr().String()}
	var once sync.Once
	tb.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	t.Cleanup(tb.stop)
	return tb
}

// client speaks to a broker by hand.
type client struct {
	t    testing.TB
	c    net.Conn
	corr int32
}

func (b *testBroker) dial() *client {
	b.t.Helper()
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	return &client{t: b.t, c: c}
}

func frameOf(corr int32, r kmsg.Request) []byte {
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))
	return f.AppendRequest(nil, r, corr)
}

func (c *client) send(r kmsg.Request) int32 {
	c.t.Helper()
	c.corr++
	if _, err := c.c.Write(frameOf(c.corr, r)); err != nil {
		c.t.Fatal(err)
	}
	return c.corr
}

// recv reads the answer to r, which must be the one to request corr.
func (c *client) recv(corr int32, r kmsg.Request) kmsg.Response {
	c.t.Helper()
	got, body := c.frame()
	if got != corr {
		c.t.Fatalf("answer to request %d, want %d", got, corr)
	}
	resp := r.ResponseKind()
	if r.Key() != int16(kmsg.ApiVersions) && r.IsFlexible() {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatalf("decode %T: %v", resp, err)
	}
	return resp
}

func (c *client) frame() (corr int32, body []byte) {
	c.t.Helper()
	_ = c.c.SetReadDeadline(time.Now().Add(patience))
	var h [4]byte
	if _, err := io.ReadFull(c.c, h[:]); err != nil {
		c.t.Fatalf("read: %v", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(h[:]))
	if _, err := io.ReadFull(c.c, b); err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:]
}

func (c *client) call(r kmsg.Request) kmsg.Response {
	c.t.Helper()
	return c.recv(c.send(r), r)
}

// closed waits for the broker to close the connection.
func (c *client) closed() {
	c.t.Helper()
	_ = c.c.SetReadDeadline(time.Now().Add(patience))
	if n, err := c.c.Read(make([]byte, 1)); err == nil {
		c.t.Fatalf("read %d bytes, want a closed connection", n)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.t.Fatal("connection is still open")
	}
}

// batchOf is a batch of n records that take size bytes in all, beginning with
// tag. The test's logs look at no more.
func batchOf(tag byte, n, size int) []byte {
	b := make([]byte, max(size, 61))
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 2
	binary.BigEndian.PutUint32(b[23:], uint32(n-1))
	for i := 61; i < len(b); i++ {
		b[i] = tag
	}
	return b
}

func produceReq(version int16, acks int16, topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = version, acks, waitMillis
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, topicIDOf(topic)
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func fetchReq(version int16, topic string, offset int64, partitions ...int32) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxWaitMillis, r.MinBytes, r.MaxBytes = version, 0, 1, 50<<20
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, topicIDOf(topic)
	for _, i := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = i, offset, 1<<20, -1
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = append(r.Topics, t)
	return r
}

func produced(r kmsg.Response) kmsg.ProduceResponseTopicPartition {
	return r.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

func fetched(r kmsg.Response) kmsg.FetchResponseTopicPartition {
	return r.(*kmsg.FetchResponse).Topics[0].Partitions[0]
}

// waiting is how many wait on a partition.
func (b *testBroker) waiting(topic string, partition int32) int {
	return b.b.topics.Load().byName[topic].partition(partition).Waiters()
}

// patience is how long anything in these tests may take: no verdict hangs on how
// fast a machine is that others use too.
const patience = time.Minute

// waitMillis is how long the clients in these tests have their requests wait, and
// their groups wait for them: a stall of the machine ends neither.
const waitMillis = int32(patience / 2 / time.Millisecond)

// eventually waits until ok, which another goroutine will make true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(time.Millisecond)
	}
}
