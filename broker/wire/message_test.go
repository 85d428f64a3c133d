package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// body cuts the header off a frame that kmsg formatted, and checks it.
func body(t *testing.T, r kmsg.Request, client string) []byte {
	t.Helper()
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(client)).AppendRequest(nil, r, 77)[4:]
	h, rest, err := ParseHeader(frame)
	if err != nil || h.Key != r.Key() || h.Version != r.GetVersion() || h.Correlation != 77 || string(h.ClientID) != client {
		t.Fatalf("header %+v, %v", h, err)
	}
	if r.IsFlexible() {
		if rest, err = SkipHeaderTags(rest); err != nil {
			t.Fatal(err)
		}
	}
	return rest
}

func randomID(rng *rand.Rand) (id [16]byte) {
	for i := range id {
		id[i] = byte(rng.Uint32())
	}
	return id
}

// maybe is v or other, by chance.
func maybe[T any](rng *rand.Rand, v, other T) T {
	if rng.IntN(2) == 0 {
		return v
	}
	return other
}

func unknownTags(rng *rand.Rand, flexible bool) (tags kmsg.Tags) {
	if flexible {
		for i := range rng.IntN(3) {
			tags.Set(uint32(100+i), bytes.Repeat([]byte{9}, rng.IntN(300)))
		}
	}
	return tags
}

func TestProduceRequestReadsWhatKmsgWrites(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var got ProduceRequest
	for v := int16(3); v <= 13; v++ {
		for range 50 {
			want := kmsg.NewPtrProduceRequest()
			want.Version, want.Acks, want.TimeoutMillis = v, int16(rng.IntN(3)-1), rng.Int32()
			if rng.IntN(2) == 0 {
				want.TransactionID = new("tx")
			}
			want.UnknownTags = unknownTags(rng, v >= 9)
			for range rng.IntN(4) {
				tp := kmsg.NewProduceRequestTopic()
				if v >= 13 {
					tp.TopicID = randomID(rng)
				} else {
					tp.Topic = fmt.Sprint("topic-", rng.IntN(1e6))
				}
				tp.UnknownTags = unknownTags(rng, v >= 9)
				for range rng.IntN(4) {
					p := kmsg.NewProduceRequestTopicPartition()
					p.Partition = rng.Int32()
					p.Records = maybe(rng, nil, bytes.Repeat([]byte{7}, rng.IntN(500)))
					p.UnknownTags = unknownTags(rng, v >= 9)
					tp.Partitions = append(tp.Partitions, p)
				}
				want.Topics = append(want.Topics, tp)
			}
			if err := got.Parse(v, body(t, want, "me")); err != nil {
				t.Fatalf("v%d: %v", v, err)
			}
			if diff := produceDiff(&got, want); diff != "" {
				t.Fatalf("v%d: %s", v, diff)
			}
		}
	}
}

func produceDiff(got *ProduceRequest, want *kmsg.ProduceRequest) string {
	if (got.TransactionalID == nil) != (want.TransactionID == nil) || got.Acks != want.Acks ||
		got.TimeoutMillis != want.TimeoutMillis || len(got.Topics) != len(want.Topics) {
		return fmt.Sprintf("%+v, want %+v", got, want)
	}
	for i, w := range want.Topics {
		g := got.Topics[i]
		if string(g.Name) != w.Topic || g.ID != w.TopicID || g.Below-g.From != len(w.Partitions) {
			return fmt.Sprintf("topic %+v, want %+v", g, w)
		}
		for j, wp := range w.Partitions {
			gp := got.Partitions[g.From+j]
			if gp.Index != wp.Partition || !bytes.Equal(gp.Records, wp.Records) || (gp.Records == nil) != (wp.Records == nil) {
				return fmt.Sprintf("partition %+v, want %+v", gp, wp)
			}
		}
	}
	return ""
}

func randomFetch(rng *rand.Rand, v int16) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.IsolationLevel = v, rng.Int32(), rng.Int32(), rng.Int32(), int8(rng.IntN(2))
	if v <= 14 {
		r.ReplicaID = int32(rng.IntN(3) - 1)
	} else if rng.IntN(2) == 0 {
		r.ReplicaState.ID, r.ReplicaState.Epoch = rng.Int32(), rng.Int64()
	}
	if v >= 7 {
		r.SessionID, r.SessionEpoch = rng.Int32(), rng.Int32()
	}
	if v >= 11 {
		r.Rack = maybe(rng, "", "rack")
	}
	if v >= 12 && rng.IntN(2) == 0 {
		r.ClusterID = new("cluster")
	}
	r.UnknownTags = unknownTags(rng, v >= 12)
	for range rng.IntN(4) {
		tp := kmsg.NewFetchRequestTopic()
		if v >= 13 {
			tp.TopicID = randomID(rng)
		} else {
			tp.Topic = fmt.Sprint("topic-", rng.IntN(1e6))
		}
		for range rng.IntN(4) {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes = rng.Int32(), rng.Int64(), rng.Int32()
			if v >= 5 {
				p.LogStartOffset = rng.Int64()
			}
			if v >= 9 {
				p.CurrentLeaderEpoch = rng.Int32()
			}
			if v >= 12 {
				p.LastFetchedEpoch = rng.Int32()
			}
			if v >= 17 {
				p.ReplicaDirectoryID = randomID(rng)
			}
			if v >= 18 {
				p.HighWatermark = maybe(rng, p.HighWatermark, rng.Int64())
			}
			p.UnknownTags = unknownTags(rng, v >= 12)
			tp.Partitions = append(tp.Partitions, p)
		}
		r.Topics = append(r.Topics, tp)
	}
	if v >= 7 {
		for range rng.IntN(3) {
			tp := kmsg.NewFetchRequestForgottenTopic()
			if v >= 13 {
				tp.TopicID = randomID(rng)
			} else {
				tp.Topic = fmt.Sprint("gone-", rng.IntN(1e6))
			}
			for range rng.IntN(4) {
				tp.Partitions = append(tp.Partitions, rng.Int32())
			}
			r.ForgottenTopics = append(r.ForgottenTopics, tp)
		}
	}
	return r
}

func TestFetchRequestReadsWhatKmsgWrites(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var got FetchRequest
	for v := int16(4); v <= 18; v++ {
		for range 50 {
			want := randomFetch(rng, v)
			if err := got.Parse(v, body(t, want, "")); err != nil {
				t.Fatalf("v%d: %v", v, err)
			}
			if diff := fetchDiff(&got, want); diff != "" {
				t.Fatalf("v%d: %s", v, diff)
			}
		}
	}
}

func fetchDiff(got *FetchRequest, want *kmsg.FetchRequest) string {
	replica, epoch := want.ReplicaID, int64(-1)
	if want.Version >= 15 {
		replica, epoch = want.ReplicaState.ID, want.ReplicaState.Epoch
	}
	if got.ReplicaID != replica || got.ReplicaEpoch != epoch || got.MaxWaitMillis != want.MaxWaitMillis ||
		got.MinBytes != want.MinBytes || got.MaxBytes != want.MaxBytes || got.Isolation != want.IsolationLevel ||
		got.SessionID != want.SessionID || got.SessionEpoch != want.SessionEpoch || string(got.Rack) != want.Rack ||
		(got.ClusterID == nil) != (want.ClusterID == nil) || len(got.Topics) != len(want.Topics) || len(got.Forgotten) != len(want.ForgottenTopics) {
		return fmt.Sprintf("%+v, want %+v", got, want)
	}
	for i, w := range want.Topics {
		g := got.Topics[i]
		if string(g.Name) != w.Topic || g.ID != w.TopicID || g.Below-g.From != len(w.Partitions) {
			return fmt.Sprintf("topic %+v, want %+v", g, w)
		}
		for j, p := range w.Partitions {
			wp := FetchPartition{p.Partition, p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch, p.LogStartOffset, p.PartitionMaxBytes, p.HighWatermark}
			gp := got.Partitions[g.From+j]
			if gp != wp {
				return fmt.Sprintf("partition %+v, want %+v", gp, wp)
			}
		}
	}
	for i, w := range want.ForgottenTopics {
		g := got.Forgotten[i]
		if string(g.Name) != w.Topic || g.ID != w.TopicID || len(w.Partitions) > 0 &&
			!reflect.DeepEqual(got.ForgottenPartitions[g.From:g.Below], w.Partitions) {
			return fmt.Sprintf("forgotten %+v, want %+v", g, w)
		}
	}
	return ""
}

func randomLeader(rng *rand.Rand, has bool) Leader {
	if !has || rng.IntN(2) == 0 {
		return NoLeader
	}
	return Leader{ID: int32(rng.IntN(5)), Epoch: int32(rng.IntN(5))}
}

var someNodes = []Node{{ID: 1, Host: "a.example", Port: 9092, Rack: "r1"}, {ID: 2, Host: "b", Port: 1}}

func kmsgHead(dst []byte, corr int32, flexible bool) []byte {
	dst = be.AppendUint32(dst, uint32(corr))
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

func TestProduceResponseWritesWhatKmsgWould(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for v := int16(0); v <= 13; v++ {
		for range 50 {
			want := kmsg.NewPtrProduceResponse()
			want.Version, want.ThrottleMillis = v, rng.Int32()
			w := ProduceResponse{B: []byte("before")}
			n := rng.IntN(4)
			w.Begin(v, 9, n)
			for range n {
				rt := ProduceTopic{Below: rng.IntN(4)}
				wt := kmsg.NewProduceResponseTopic()
				if v >= 13 {
					rt.ID = randomID(rng)
					wt.TopicID = rt.ID
				} else {
					rt.Name = []byte("some-topic")
					wt.Topic = "some-topic"
				}
				w.Topic(&rt)
				for range rt.Below {
					r := ProduceResult{rng.Int32(), int16(rng.IntN(100)), rng.Int64(), rng.Int64(), rng.Int64(), nil, maybe(rng, "", "why"), randomLeader(rng, v >= 10)}
					wp := kmsg.NewProduceResponseTopicPartition()
					wp.Partition, wp.ErrorCode, wp.BaseOffset, wp.LogAppendTime, wp.LogStartOffset = r.Index, r.Code, r.BaseOffset, r.LogAppendTime, r.LogStart
					if r.Message != "" {
						wp.ErrorMessage = &r.Message
					}
					for range rng.IntN(3) {
						e := RecordError{rng.Int32(), maybe(rng, "", "why this")}
						we := kmsg.NewProduceResponseTopicPartitionErrorRecord()
						if we.RelativeOffset = e.Index; e.Message != "" {
							we.ErrorMessage = &e.Message
						}
						r.Records, wp.ErrorRecords = append(r.Records, e), append(wp.ErrorRecords, we)
					}
					wp.CurrentLeader.LeaderID, wp.CurrentLeader.LeaderEpoch = r.Leader.ID, r.Leader.Epoch
					at := w.Partition(&r)
					if rng.IntN(4) == 0 {
						FailProduce(w.B, at, 7)
						wp.ErrorCode, wp.BaseOffset = 7, -1
					}
					wt.Partitions = append(wt.Partitions, wp)
				}
				w.EndTopic()
				want.Topics = append(want.Topics, wt)
			}
			nodes := maybe(rng, nil, someNodes)
			w.End(want.ThrottleMillis, nodes)
			if v >= 10 {
				for _, n := range nodes {
					b := kmsg.NewProduceResponseBroker()
					b.NodeID, b.Host, b.Port, b.Rack = n.ID, n.Host, n.Port, rack(n)
					want.Brokers = append(want.Brokers, b)
				}
			}
			checkFrame(t, v, w.B, want.AppendTo(kmsgHead(nil, 9, v >= 9)))
		}
	}
}

// What turns out not to be committed is told as if it had been known at once.
func TestAFailureToldLaterReadsAsOneToldAtOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for v := int16(10); v <= 13; v++ {
		for range 50 {
			late, want := ProduceResponse{}, ProduceResponse{}
			now, nodes := maybe(rng, nil, someNodes[:1]), someNodes
			late.Begin(v, 9, 1)
			want.Begin(v, 9, 1)
			rt := ProduceTopic{Name: []byte("t"), Below: 4}
			late.Topic(&rt)
			want.Topic(&rt)
			var at []int
			var leaders []Leader
			for i := range int32(4) {
				r := ProduceResult{i, 0, rng.Int64(), rng.Int64(), rng.Int64(), nil, "", NoLeader}
				at = append(at, late.Partition(&r))
				leaders = append(leaders, randomLeader(rng, true))
				if l := leaders[i]; l != NoLeader {
					r.Code, r.BaseOffset, r.Leader = 6, -1, l
				}
				want.Partition(&r)
			}
			late.EndTopic()
			want.EndTopic()
			late.End(7, now)
			want.End(7, nodes)
			b := late.B
			for _, i := range rng.Perm(4) {
				if leaders[i] == NoLeader {
					continue
				}
				FailProduce(b, at[i], 6)
				var moved int
				b, moved = TellLeader(b, at[i], leaders[i])
				for j := i + 1; j < 4; j++ {
					at[j] += moved
				}
			}
			if b = TellNodes(b, now, nodes); !bytes.Equal(b, want.B) {
				t.Fatalf("v%d:\n%x, want\n%x", v, b, want.B)
			}
		}
	}
}

func rack(n Node) *string {
	if n.Rack == "" {
		return nil
	}
	return &n.Rack
}

func checkFrame(t *testing.T, v int16, got, want []byte) {
	t.Helper()
	got = bytes.TrimPrefix(got, []byte("before"))
	if n := be.Uint32(got); int(n) != len(got)-4 || !bytes.Equal(got[4:], want) {
		t.Fatalf("v%d: length %d\n got %x\nwant %x", v, n, got[4:], want)
	}
}

func TestFetchResponseWritesWhatKmsgWould(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for v := int16(4); v <= 18; v++ {
		for range 50 {
			want := kmsg.NewPtrFetchResponse()
			want.Version = v
			if v >= 7 {
				want.ErrorCode, want.SessionID = int16(rng.IntN(100)), rng.Int32()
			}
			var w FetchResponse
			type piece struct {
				at int
				b  []byte
			}
			var bodies []piece
			n := rng.IntN(4)
			w.Begin(v, 9, want.ErrorCode, want.SessionID, n)
			for range n {
				wt := kmsg.NewFetchResponseTopic()
				var name []byte
				if v >= 13 {
					wt.TopicID = randomID(rng)
				} else {
					wt.Topic = "some-topic"
					name = []byte(wt.Topic)
				}
				m := rng.IntN(4)
				w.Topic(name, wt.TopicID, m)
				for range m {
					wp, r := randomFetchResult(rng, v)
					bodies = append(bodies, piece{w.Partition(&r), wp.RecordBatches})
					wt.Partitions = append(wt.Partitions, wp)
				}
				w.EndTopic()
				want.Topics = append(want.Topics, wt)
			}
			nodes := maybe(rng, nil, someNodes)
			w.End(nodes)
			if v >= 16 {
				for _, n := range nodes {
					b := kmsg.NewFetchResponseBroker()
					b.NodeID, b.Host, b.Port, b.Rack = n.ID, n.Host, n.Port, rack(n)
					want.Brokers = append(want.Brokers, b)
				}
			}
			var got []byte
			from := 0
			for _, p := range bodies {
				got = append(append(got, w.B[from:p.at]...), p.b...)
				from = p.at
			}
			got = append(got, w.B[from:]...)
			checkFrame(t, v, got, want.AppendTo(kmsgHead(nil, 9, v >= 12)))
		}
	}
}

func randomFetchResult(rng *rand.Rand, v int16) (kmsg.FetchResponseTopicPartition, FetchResult) {
	r := FetchResult{
		Index: rng.Int32(), Code: int16(rng.IntN(100)), HighWatermark: rng.Int64(), Stable: rng.Int64(), LogStart: rng.Int64(),
		PreferredRead: -1, Leader: randomLeader(rng, v >= 12), DivergingEpoch: DivergingEpoch{Epoch: -1},
	}
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset = r.Index, r.Code, r.HighWatermark, r.Stable, r.LogStart
	p.PreferredReadReplica = -1
	p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	for range rng.IntN(3) {
		a := Aborted{rng.Int64(), rng.Int64()}
		r.Aborted = append(r.Aborted, a)
		k := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		k.ProducerID, k.FirstOffset = a.ProducerID, a.FirstOffset
		p.AbortedTransactions = append(p.AbortedTransactions, k)
	}
	p.RecordBatches = bytes.Repeat([]byte{5}, maybe(rng, 0, rng.IntN(1000)))
	r.Records = len(p.RecordBatches)
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = r.Leader.ID, r.Leader.Epoch
	if v >= 12 && rng.IntN(2) == 0 {
		r.DivergingEpoch = DivergingEpoch{int32(rng.IntN(9)), rng.Int64()}
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = r.DivergingEpoch.Epoch, r.DivergingEpoch.End
	}
	return p, r
}

// Every cut of a message is refused, not believed.
func TestCutMessagesAreRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for v := int16(4); v <= 18; v++ {
		b := body(t, randomFetch(rng, v), "")
		var f FetchRequest
		for n := range len(b) {
			if f.Parse(v, b[:n]) == nil {
				t.Fatalf("v%d: %d of %d bytes are taken for a whole request", v, n, len(b))
			}
		}
	}
}

// A few bytes must not buy much memory (S2).
func TestLengthsBuyNoMemory(t *testing.T) {
	huge := []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff} // acks, timeout, 2³¹−1 topics
	flex := []byte{0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f}
	var p ProduceRequest
	if n := testing.AllocsPerRun(10, func() {
		if p.Parse(3, huge) == nil || p.Parse(9, flex) == nil {
			t.Fatal("accepted")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTooManyPartitionsAreRefused(t *testing.T) {
	b := []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 't'}
	b = be.AppendUint32(b, maxPartitions+1)
	b = append(b, make([]byte, 8*(maxPartitions+1))...)
	var p ProduceRequest
	if err := p.Parse(3, b); err != ErrTooMany {
		t.Errorf("got %v, want %v", err, ErrTooMany)
	}
}

func TestParsingAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	fb := body(t, randomFetch(rng, 12), "")
	var f FetchRequest
	pb := body(t, &kmsg.ProduceRequest{Version: 9, Topics: []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, 100)}}}}}, "")
	var p ProduceRequest
	if n := testing.AllocsPerRun(100, func() {
		if f.Parse(12, fb) != nil || p.Parse(9, pb) != nil {
			t.Fatal("refused")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
