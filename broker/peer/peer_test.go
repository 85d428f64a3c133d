package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"firn/broker/wire"
	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers the requests of each connection by answer, which gets the frame
// without its length and returns a whole frame; nil closes the connection.
func serve(t testing.TB, answer func(frame []byte) []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					var h [4]byte
					if _, err := io.ReadFull(c, h[:]); err != nil {
						return
					}
					frame := make([]byte, binary.BigEndian.Uint32(h[:]))
					if _, err := io.ReadFull(c, frame); err != nil {
						return
					}
					out := answer(frame)
					if out == nil {
						return
					}
					if _, err := c.Write(out); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func client(t testing.TB, address string) *Client {
	c := New(Config{
		Self:     func() meta.Member { return meta.Member{ID: 7, Epoch: 42} },
		Address:  func() (string, error) { return address, nil },
		Timeout:  time.Minute,
		ClientID: "follower",
	})
	t.Cleanup(c.Close)
	return c
}

// respond makes the frame of an answer that kmsg knows.
func respond(frame []byte, resp kmsg.Response) []byte {
	out := wire.BeginResponse(nil, int32(binary.BigEndian.Uint32(frame[4:])), resp.IsFlexible())
	out = resp.AppendTo(out)
	wire.EndResponse(out, 0, 0)
	return out
}

// What we write kmsg reads, and what kmsg writes we read.
func TestFetchIsKafkas(t *testing.T) {
	var got kmsg.FetchRequest
	address := serve(t, func(frame []byte) []byte {
		h, body, err := wire.ParseHeader(frame)
		if err != nil || h.Key != wire.KeyFetch || string(h.ClientID) != "follower" {
			t.Errorf("header %+v, %v", h, err)
		}
		body, err = wire.SkipHeaderTags(body)
		got = kmsg.NewFetchRequest()
		got.Version = h.Version
		if err = errors.Join(err, got.ReadFrom(body)); err != nil {
			t.Error(err)
		}
		resp := got.ResponseKind().(*kmsg.FetchResponse)
		resp.SetVersion(h.Version)
		resp.SessionID = 99
		for i := range 2 {
			rt := kmsg.NewFetchResponseTopic()
			rt.TopicID = [16]byte{byte(i + 1)}
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.HighWatermark, p.LastStableOffset, p.LogStartOffset, p.RecordBatches = int32(i), 10, 9, 3, []byte("records")
			a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			a.ProducerID = 5
			p.AbortedTransactions = append(p.AbortedTransactions, a)
			p.CurrentLeader.LeaderID = 4
			if i == 1 {
				p.ErrorCode = kerr.OffsetMovedToTieredStorage.Code
				p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 2, 17
			}
			rt.Partitions = append(rt.Partitions, p)
			resp.Topics = append(resp.Topics, rt)
		}
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host = 4, "elsewhere"
		resp.Brokers = append(resp.Brokers, b)
		return respond(frame, resp)
	})
	key := func(topic byte, index int32) replication.FetchKey {
		return replication.FetchKey{TopicID: meta.TopicID{topic}, Topic: "t", Index: index}
	}
	var a replication.FetchAnswer
	err := client(t, address).Fetch(t.Context(), &replication.FetchRequest{
		Session: 99, SessionEpoch: 3, MaxWait: 500 * time.Millisecond, MinBytes: 1, MaxBytes: 1 << 20,
		Partitions: []replication.FetchPartition{
			{FetchKey: key(1, 0), Epoch: 8, Offset: 100, LastEpoch: 7, LogStart: 5, MaxBytes: 1 << 10},
			{FetchKey: key(1, 1), Epoch: 9, Offset: 101, LastEpoch: -1, MaxBytes: 1 << 10},
			{FetchKey: key(2, 0), Epoch: 9, MaxBytes: 1 << 10},
		},
		Forgotten: []replication.FetchKey{key(3, 4), key(3, 5)},
	}, &a)
	if err != nil {
		t.Fatal(err)
	}
	if got.ReplicaState.ID != 7 || got.ReplicaState.Epoch != 42 || got.SessionID != 99 || got.SessionEpoch != 3 || got.MaxWaitMillis != 500 || got.MaxBytes != 1<<20 ||
		len(got.Topics) != 2 || len(got.Topics[0].Partitions) != 2 || len(got.ForgottenTopics) != 2 || got.ForgottenTopics[1].Partitions[0] != 5 {
		t.Errorf("arrived as %+v", got)
	}
	if p := got.Topics[0].Partitions[0]; p.CurrentLeaderEpoch != 8 || p.FetchOffset != 100 || p.LastFetchedEpoch != 7 || p.LogStartOffset != 5 || p.PartitionMaxBytes != 1<<10 {
		t.Errorf("arrived as %+v", p)
	}
	if a.Session != 99 || len(a.Partitions) != 2 {
		t.Fatalf("answer %+v", a)
	}
	none := segment.EpochEnd{Epoch: -1, End: -1}
	if p := a.Partitions[0]; p.Err != nil || p.HighWatermark != 10 || p.LogStart != 3 || string(p.Records) != "records" || p.Diverging != none {
		t.Errorf("answer %+v", p)
	}
	if p := a.Partitions[1]; !errors.Is(p.Err, replication.ErrMovedToArchive) || p.Diverging != (segment.EpochEnd{Epoch: 2, End: 17}) {
		t.Errorf("answer %+v", p)
	}
}

// After whatever goes wrong the next request finds a new connection.
func TestABrokenConnectionIsMadeAnew(t *testing.T) {
	var n atomic.Int32 // each connection is served by a goroutine of its own
	ok := func(frame []byte) []byte {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = epochVersion
		resp := req.ResponseKind()
		resp.SetVersion(epochVersion)
		return respond(frame, resp)
	}
	address := serve(t, func(frame []byte) []byte {
		switch n.Add(1) {
		case 1:
			return nil // it closes
		case 2:
			return []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0} // an impossible length
		case 3:
			out := ok(frame)
			out[7]++ // another's answer
			return out
		case 4:
			return append(ok(frame), 0) // more than there should be
		case 5:
			out := ok(frame)
			return append(binary.BigEndian.AppendUint32(nil, 6), append(out[4:8:8], 0xff, 0xff)...) // cut off
		}
		return ok(frame)
	})
	c := client(t, address)
	for i := range 7 {
		_, err := c.EpochEnds(t.Context(), nil, nil)
		if (err == nil) != (i >= 5) {
			t.Errorf("request %d: %v", i+1, err)
		}
	}
}

func TestInterruptEndsTheRequestUnderWay(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	address := serve(t, func([]byte) []byte { close(asked); <-goOn; return nil })
	defer close(goOn)
	c := client(t, address)
	c.Interrupt() // of nothing
	done := make(chan error)
	go func() {
		var a replication.FetchAnswer
		done <- c.Fetch(context.Background(), &replication.FetchRequest{MaxWait: time.Minute}, &a)
	}()
	<-asked
	c.Interrupt()
	if err := <-done; !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	c.Close()
	if _, err := c.Starts(t.Context(), nil, nil); !errors.Is(err, ErrInterrupted) {
		t.Fatalf("after Close: %v", err)
	}
}

// What we don't understand is no answer, whatever it is.
func FuzzFetchAnswer(f *testing.F) {
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(wire.ReplicaFetchVersion)
	t := kmsg.NewFetchResponseTopic()
	p := kmsg.NewFetchResponseTopicPartition()
	p.RecordBatches = []byte("records")
	p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 2, 17
	t.Partitions = append(t.Partitions, p, p)
	resp.Topics = append(resp.Topics, t)
	f.Add(append([]byte{0}, resp.AppendTo(nil)...))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, body []byte) {
		c := New(Config{})
		var a replication.FetchAnswer
		if c.takeFetch(body, &a) != nil {
			return
		}
		want := kmsg.NewPtrFetchResponse()
		want.SetVersion(wire.ReplicaFetchVersion)
		rest, err := wire.SkipHeaderTags(body)
		if err != nil || want.ReadFrom(rest) != nil {
			return // kmsg's bounds are tighter in places
		}
		n := 0
		for i := range want.Topics {
			for j := range want.Topics[i].Partitions {
				w, got := &want.Topics[i].Partitions[j], &a.Partitions[n]
				n++
				if got.TopicID != want.Topics[i].TopicID || got.Index != w.Partition || got.HighWatermark != w.HighWatermark ||
					got.LogStart != w.LogStartOffset || string(got.Records) != string(w.RecordBatches) {
					t.Fatalf("%+v, want %+v", got, w)
				}
			}
		}
		if n != len(a.Partitions) || want.SessionID != a.Session {
			t.Fatalf("%d partitions, want %d", len(a.Partitions), n)
		}
	})
}

func TestFetchAllocatesLittle(t *testing.T) {
	records := make([]byte, 256<<10)
	var w wire.FetchResponse
	address := serve(t, func(frame []byte) []byte {
		w.B = w.B[:0]
		w.Begin(wire.ReplicaFetchVersion, int32(binary.BigEndian.Uint32(frame[4:])), 0, 1, 1)
		w.Topic(nil, [16]byte{1}, 1)
		at := w.Partition(&wire.FetchResult{Records: len(records), Leader: wire.NoLeader, DivergingEpoch: wire.DivergingEpoch{Epoch: -1}, PreferredRead: -1})
		w.EndTopic()
		w.End(nil)
		out := make([]byte, 0, len(w.B)+len(records))
		out = append(out, w.B[:at]...)
		out = append(out, records...)
		return append(out, w.B[at:]...)
	})
	c := client(t, address)
	r := &replication.FetchRequest{Partitions: []replication.FetchPartition{{FetchKey: replication.FetchKey{TopicID: meta.TopicID{1}}}}}
	var a replication.FetchAnswer
	fetch := func() {
		if err := c.Fetch(context.Background(), r, &a); err != nil || len(a.Partitions) != 1 || len(a.Partitions[0].Records) != len(records) {
			t.Fatal(err, len(a.Partitions))
		}
	}
	fetch()
	const server = 3 // frame, answer, and what the test's server wants besides
	if n := testing.AllocsPerRun(100, fetch); n > server+2 {
		t.Errorf("%v allocations a fetch", n)
	}
}
