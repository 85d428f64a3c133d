package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/wire"
	"firn/replication"
)

func TestApiVersionsTellsTheTable(t *testing.T) {
	b := startBroker(t, Network{}, nil)
	c := b.dial()
	for v := int16(0); v <= 4; v++ {
		r := kmsg.NewPtrApiVersionsRequest()
		r.Version, r.ClientSoftwareName, r.ClientSoftwareVersion = v, "test", "1.0"
		resp := c.call(r).(*kmsg.ApiVersionsResponse)
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(apis()) {
			t.Fatalf("v%d: code %d, %d keys", v, resp.ErrorCode, len(resp.ApiKeys))
		}
		if k := resp.ApiKeys[0]; k.ApiKey != 0 || k.MinVersion != 0 { // KAFKA-18659
			t.Fatalf("v%d: Produce is advertised as %+v", v, k)
		}
		if len(resp.SupportedFeatures)+len(resp.FinalizedFeatures) != 0 {
			t.Fatalf("v%d: features", v)
		}
	}
}

// A client that is newer than we are asks again in a version that the answer,
// readable to every client, tells it (KIP-511).
func TestUnknownApiVersionsVersionIsAnsweredInV0(t *testing.T) {
	b := startBroker(t, Network{}, nil)
	c := b.dial()
	for _, v := range []int16{5, 6, 1000, -1} {
		frame := []byte{0, 18, 0, 0, 0, 0, 0, 7, 0, 1, 'c', 0, 5, 'j', 'u', 'n', 'k'}
		binary.BigEndian.PutUint16(frame[2:], uint16(v))
		if _, err := c.c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			t.Fatal(err)
		}
		corr, body := c.frame()
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(body); err != nil || corr != 7 || resp.ErrorCode != kerr.UnsupportedVersion.Code {
			t.Fatalf("v%d: correlation %d, code %d, %v", v, corr, resp.ErrorCode, err)
		}
		if len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 4 {
			t.Fatalf("v%d: %+v", v, resp.ApiKeys)
		}
	}
}

func TestApiVersionsWithABadSoftwareName(t *testing.T) {
	b := startBroker(t, Network{}, nil)
	for name, want := range map[string]int16{"apache-kafka-java": 0, "x": 0, "": 42, "-x": 42, "x.": 42, "a b": 42} {
		r := kmsg.NewPtrApiVersionsRequest()
		r.Version, r.ClientSoftwareName, r.ClientSoftwareVersion = 3, name, "1"
		if got := b.dial().call(r).(*kmsg.ApiVersionsResponse).ErrorCode; got != want {
			t.Errorf("%q: code %d, want %d", name, got, want)
		}
	}
}

func TestWhatIsNotServedClosesTheConnection(t *testing.T) {
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {newMemLog()}})
	ok := frameOf(1, produceReq(3, 1, "t", 0, batchOf(1, 1, 61)))
	for name, frame := range map[string][]byte{
		"unknown API":       {0, 0, 0, 10, 3, 0xe8, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
		"negative API":      {0, 0, 0, 10, 0xff, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
		"unknown version":   {0, 0, 0, 10, 0, 1, 0, 99, 0, 0, 0, 1, 0xff, 0xff},
		"Fetch below floor": {0, 0, 0, 10, 0, 1, 0, 3, 0, 0, 0, 1, 0xff, 0xff},
		"HTTP":              []byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n"),
		"TLS":               {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
		"empty frame":       {0, 0, 0, 0},
		"short header":      {0, 0, 0, 3, 0, 0, 0},
		"cut body":          append([]byte{0, 0, 0, 40}, ok[4:44]...),
		"bad client id":     {0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0x7f, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			c := b.dial()
			if _, err := c.c.Write(frame); err != nil {
				t.Fatal(err)
			}
			c.closed()
		})
	}
	if p := produced(b.dial().call(produceReq(9, 1, "t", 0, batchOf(1, 1, 61)))); p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Errorf("afterwards: code %d, base offset %d", p.ErrorCode, p.BaseOffset)
	}
}

// Requests that come byte by byte, or many at once, are answered in order.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	log := newMemLog()
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	var all []byte
	var reqs []kmsg.Request
	for i := range 60 {
		var r kmsg.Request
		switch i % 3 {
		case 0:
			r = produceReq(9, -1, "t", 0, batchOf(1, 2, 200+i*1000))
		case 1:
			r = fetchReq(12, "t", 0, 0)
		case 2:
			v := kmsg.NewPtrApiVersionsRequest()
			v.Version = 2
			r = v
		}
		reqs = append(reqs, r)
		all = append(all, frameOf(int32(i), r)...)
	}
	for _, step := range []int{1, 13, 4096, len(all)} {
		t.Run(fmt.Sprint("step ", step), func(t *testing.T) {
			c := b.dial()
			go func() {
				for rest := all; len(rest) > 0; {
					n := min(step, len(rest))
					if step == 1 && len(rest) < len(all)-3000 {
						n = len(rest) // the first ones byte by byte
					}
					if _, err := c.c.Write(rest[:n]); err != nil {
						return
					}
					rest = rest[n:]
				}
			}()
			for i, r := range reqs {
				c.recv(int32(i), r)
			}
		})
	}
}

// Acks are held back while whole requests are buffered: they leave together.
func TestAcksLeaveTogether(t *testing.T) {
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {newMemLog()}})
	c := b.dial()
	var all []byte
	for i := range 50 {
		all = append(all, frameOf(int32(i), produceReq(7, 1, "t", 0, batchOf(1, 1, 100)))...)
	}
	if _, err := c.c.Write(all); err != nil {
		t.Fatal(err)
	}
	r := produceReq(7, 1, "t", 0, nil)
	for i := range 50 {
		if p := produced(c.recv(int32(i), r)); p.BaseOffset != int64(i) {
			t.Fatalf("request %d: base offset %d", i, p.BaseOffset)
		}
	}
}

// What a handler keeps of a request stays as it is: the connection's buffer,
// poisoned and used again, is another (G5).
func TestHandlersMayKeepTheirRequest(t *testing.T) {
	b := startBroker(t, Network{}, nil)
	kept := make(chan []byte, 100)
	b.b.server.apis[kmsg.SyncGroup] = &api{kmsg.SyncGroup, 0, 5, func(_ *Broker, _ context.Context, r *request) kmsg.Response {
		kept <- r.msg.(*kmsg.SyncGroupRequest).GroupAssignment[0].MemberAssignment
		return r.msg.ResponseKind()
	}}
	c := b.dial()
	for i := range 50 {
		r := kmsg.NewPtrSyncGroupRequest()
		r.Version = 3
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberAssignment = bytes.Repeat([]byte{byte(i)}, 1000)
		r.GroupAssignment = append(r.GroupAssignment, a)
		c.call(r)
	}
	for i := range 50 {
		if got := <-kept; !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, 1000)) {
			t.Fatalf("request %d has changed", i)
		}
	}
}

func TestRefusedConnectionsBeyondTheLimit(t *testing.T) {
	b := startBroker(t, Network{MaxConnections: 2}, nil)
	r := kmsg.NewPtrApiVersionsRequest()
	c1, c2 := b.dial(), b.dial()
	c1.call(r)
	c2.call(r)
	b.dial().closed()
	c1.c.Close()
	eventually(t, "a place is free", func() bool { return len(b.b.server.all()) == 1 })
	b.dial().call(r)
}

func TestRefusedConnectionsOfOneAddress(t *testing.T) {
	b := startBroker(t, Network{MaxConnectionsPerIP: 1}, nil)
	b.dial().call(kmsg.NewPtrApiVersionsRequest())
	b.dial().closed()
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	b := startBroker(t, Network{MaxIdle: time.Second}, map[string][]replication.Log{"t": {newMemLog()}})
	idle, half := b.dial(), b.dial()
	idle.call(kmsg.NewPtrApiVersionsRequest())
	if _, err := half.c.Write([]byte{0, 0, 1}); err != nil {
		t.Fatal(err)
	}
	idle.closed()
	half.closed()
}

// A client that doesn't read its answers stops being read, and costs no more.
func TestSlowReaderIsNotReadOn(t *testing.T) {
	log := newMemLog()
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	setup := b.dial()
	for range 8 {
		setup.call(produceReq(9, 1, "t", 0, batchOf(1, 1, 1<<20)))
	}
	c := b.dial()
	frame := frameOf(1, fetchReq(12, "t", 0, 0))
	_ = c.c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	wrote := 0
	var err error
	for err == nil && wrote < 64<<20 {
		var n int
		n, err = c.c.Write(bytes.Repeat(frame, 1000))
		wrote += n
	}
	if err == nil {
		t.Fatalf("the broker took %d bytes of requests whose answers nobody reads", wrote)
	}
	// Others aren't held up.
	if p := produced(b.dial().call(produceReq(9, 1, "t", 0, batchOf(1, 1, 100)))); p.ErrorCode != 0 {
		t.Errorf("code %d", p.ErrorCode)
	}
}

func TestShutdownFinishesWhatHasArrived(t *testing.T) {
	log := newMemLog()
	b := startBroker(t, Network{StopGrace: 2 * patience}, map[string][]replication.Log{"t": {log}})
	idle, polling := b.dial(), b.dial()
	idle.call(kmsg.NewPtrApiVersionsRequest())
	poll := fetchReq(12, "t", 0, 0)
	poll.MaxWaitMillis = int32(2 * patience.Milliseconds())
	corr := polling.send(poll)
	eventually(t, "the poll waits", func() bool { return b.waiting("t", 0) == 1 })
	start := time.Now()
	b.stop()
	if d := time.Since(start); d > patience {
		t.Errorf("took %v", d)
	}
	if p := fetched(polling.recv(corr, poll)); p.ErrorCode != 0 || len(p.RecordBatches) != 0 {
		t.Errorf("the poll was answered with code %d", p.ErrorCode)
	}
	idle.closed()
	polling.closed()
}

func TestShutdownCutsOffWhatTakesTooLong(t *testing.T) {
	log := newMemLog()
	log.hold = true
	b := startBroker(t, Network{StopGrace: 50 * time.Millisecond}, map[string][]replication.Log{"t": {log}})
	c := b.dial()
	c.send(produceReq(9, -1, "t", 0, batchOf(1, 1, 100)))
	eventually(t, "the ack waits", func() bool { return b.waiting("t", 0) == 1 })
	b.stop()
	c.closed()
}

func TestFailedListenerIsToldInWords(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := int32(l.Addr().(*net.TCPAddr).Port)
	_, err = New(Config{Listeners: []Listener{{Name: "A", Host: "127.0.0.1"}, {Name: "B", Host: "127.0.0.1", Port: port}}})
	if err == nil || !strings.Contains(err.Error(), "listener B") {
		t.Errorf("got %v", err)
	}
}

func TestErrorsOfTheWireAreRefusals(t *testing.T) {
	err := error(&badRequest{wire.ErrShort})
	if !errors.Is(err, wire.ErrShort) || !strings.Contains(err.Error(), "malformed") {
		t.Error(err)
	}
}
