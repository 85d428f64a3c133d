package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/e2e/harness"
)

// memoryLimit is what a broker may have had resident at most, in each test.
const memoryLimit = 512 << 20

// status is a size that /proc tells of a process.
func status(t testing.TB, f *harness.Firn, field string) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("no %s", field)
	return 0
}

func checkPeak(t testing.TB, f *harness.Firn, what string) {
	t.Helper()
	peak := status(t, f, "VmHWM")
	t.Logf("%s: VmHWM %d MB", what, peak>>20)
	if peak > memoryLimit {
		t.Errorf("%s: VmHWM %d MB, limit %d MB", what, peak>>20, memoryLimit>>20)
	}
}

func TestMemoryOfIdleConnections(t *testing.T) {
	f := harness.Start(t, harness.Options{Data: ramDir(t)})
	createTopic(t, f.Addr, "wide", 1000, nil)
	var conns []net.Conn
	for range 1000 {
		conns = append(conns, dial(t, f.Addr))
	}
	each(t, len(conns), func(i int) error { return greet(conns[i]) })
	time.Sleep(2 * time.Second)
	checkPeak(t, f, "1 000 idle connections, 1 000 partitions")
}

// TestMemoryOfLargeRequests has 200 connections send a Produce request of 50 MB
// at the same time.
func TestMemoryOfLargeRequests(t *testing.T) {
	const connections, size, limit = 200, 50_000_000, 30 * time.Second
	f := harness.Start(t, harness.Options{Data: ramDir(t)})
	createTopic(t, f.Addr, "big", 1, nil)
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 7, -1, 10_000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "big"
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = make([]byte, size)
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("e2e")).AppendRequest(nil, req, 2)

	var conns []net.Conn
	for range connections {
		conns = append(conns, dial(t, f.Addr))
	}
	each(t, len(conns), func(i int) error { return greet(conns[i]) })
	deadline := time.Now().Add(limit)
	answered := make(chan bool, connections)
	for _, c := range conns {
		go func() {
			_ = c.SetDeadline(deadline)
			_, err := c.Write(frame)
			if err == nil {
				err = skipFrame(c)
			}
			answered <- err == nil
		}()
	}
	began, n := time.Now(), 0
	for range conns {
		if <-answered {
			n++
		}
	}
	t.Logf("%d of %d requests of 50 MB answered in %v", n, connections, time.Since(began).Round(time.Millisecond))
	if n == 0 {
		t.Error("no request was answered")
	}
	checkPeak(t, f, "200 requests of 50 MB at once")
	if err := write(t, f.Addr, "big"); err != nil {
		t.Errorf("a write after that: %v", err)
	}
}

// slowConn reads so many bytes a second.
type slowConn struct {
	net.Conn
	perSecond int
	total     *atomic.Int64
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), c.perSecond/10)])
	c.total.Add(int64(n))
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.perSecond))
	return n, err
}

// TestMemoryOfSlowColdReaders has 100 consumers read the archive at 100 KB/s each.
func TestMemoryOfSlowColdReaders(t *testing.T) {
	const readers, partitions = 100, 4
	f := harness.Start(t, harness.Options{Data: ramDir(t), Set: restless()})
	createTopic(t, f.Addr, victimTopic, partitions, map[string]string{"segment.bytes": "8388608", "local.retention.ms": "1"})
	l := startLoad(t, f.Addr, victimTopic, loadShape{producers: partitions, partitions: partitions, valueBytes: 10_000, burst: 64,
		pause: time.Millisecond, limit: 4000, batchBytes: 1 << 20})
	l.more(partitions * 4000)
	l.finish()
	(&victim{t: t, Firn: f}).waitArchived(victimTopic)
	from := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		from[p] = kgo.NewOffset().At(0)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	var total atomic.Int64
	var wg sync.WaitGroup
	for range readers {
		cl := newClient(t, f.Addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{victimTopic: from}),
			kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				if tcp, ok := c.(*net.TCPConn); ok {
					_ = tcp.SetReadBuffer(64 << 10) // else the kernel takes a whole answer
				}
				return slowConn{c, 100_000, &total}, err
			}))
		t.Cleanup(cl.Close)
		wg.Go(func() {
			for ctx.Err() == nil {
				cl.PollFetches(ctx)
			}
		})
	}
	// Ten seconds, or as long as it takes to read half of what they could.
	harness.Eventually(t, time.Minute, "they have read", func() bool {
		return time.Since(began) > 10*time.Second && total.Load() > readers*100_000*5
	})
	cancel()
	wg.Wait()
	t.Logf("%d readers took %d MB in %v", readers, total.Load()>>20, time.Since(began).Round(time.Millisecond))
	checkPeak(t, f, "100 cold readers at 100 KB/s")
}

// TestMemoryOfAnnouncedRequests has 10 000 connections announce 100 MB and send
// hardly anything of it.
func TestMemoryOfAnnouncedRequests(t *testing.T) {
	const connections, each64 = 10_000, 64 << 10
	f := harness.Start(t, harness.Options{Data: ramDir(t)})
	before := status(t, f, "VmRSS")
	conns := make([]net.Conn, connections)
	each(t, connections, func(i int) error {
		c, err := net.DialTimeout("tcp", f.Addr, 30*time.Second)
		if err != nil {
			return err
		}
		conns[i] = c
		if err := greet(c); err != nil {
			return err
		}
		_, err = c.Write([]byte{0x05, 0xf5, 0xe1, 0x00, 0}) // 100 000 000, and a byte
		return err
	})
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	for range 2 { // the byte of every ten seconds, sooner
		time.Sleep(time.Second)
		each(t, connections, func(i int) error { _, err := conns[i].Write([]byte{0}); return err })
	}
	peak := status(t, f, "VmHWM")
	per := (peak - before) / connections
	t.Logf("%d connections that announce 100 MB: %d KiB each (%d MB at most)", connections, per>>10, peak>>20)
	if per > each64 {
		t.Errorf("a connection costs %d bytes", per)
	}
	hot := dial(t, f.Addr)
	if err := greet(hot); err != nil {
		t.Errorf("beside them: %v", err)
	}
}
