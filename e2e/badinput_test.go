package e2e

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/e2e/harness"
)

// dial connects to a broker; the connection ends with the test.
func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// greet makes c a connection that has sent something valid: an ApiVersions request.
func greet(c net.Conn) error {
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("e2e")).AppendRequest(nil, &kmsg.ApiVersionsRequest{}, 1)
	if _, err := c.Write(frame); err != nil {
		return err
	}
	return skipFrame(c)
}

// skipFrame reads one answer.
func skipFrame(c net.Conn) error {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, bufio.NewReaderSize(c, 4096), int64(binary.BigEndian.Uint32(size[:])))
	return err
}

// each runs f for so many connections, some at a time, and fails with the first error.
func each(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	failed := make(chan error, n)
	slots := make(chan struct{}, 64)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				failed <- fmt.Errorf("connection %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
}

// closed waits until the broker has ended the connection.
func closed(c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		return fmt.Errorf("the broker keeps the connection: %w", err)
	}
	return nil // closed, or reset
}

// TestBadInput sends what no client sends. The broker ends those connections,
// goes on serving the others, and none of it makes a panic.
func TestBadInput(t *testing.T) {
	f := harness.Start(t, harness.Options{Data: ramDir(t)})
	hot := startHot(t, f.Addr)
	try := func(name string, n int, f func(i int, rng *rand.Rand) error) {
		t.Run(name, func(t *testing.T) {
			each(t, n, func(i int) error { return f(i, rand.New(rand.NewPCG(uint64(i), uint64(len(name))))) })
			t.Logf("beside it: slowest write so far %v", hot.slowest("write"))
		})
	}
	connect := func() (net.Conn, error) { return net.DialTimeout("tcp", f.Addr, 30*time.Second) }

	try("garbage", 200, func(_ int, rng *rand.Rand) error {
		c, err := connect()
		if err != nil {
			return err
		}
		defer c.Close()
		b := make([]byte, 5000)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		b[0] |= 0x40 // an impossible length
		_, _ = c.Write(b)
		return closed(c)
	})
	try("lengths", 200, func(i int, _ *rand.Rand) error {
		c, err := connect()
		if err != nil {
			return err
		}
		defer c.Close()
		if i%2 == 0 {
			if err := greet(c); err != nil {
				return err
			}
		}
		length := []uint32{0, 1, 7, 0x7fffffff, 0xffffffff, 0x80000000, 200 << 20}[i%7]
		_, _ = c.Write(binary.BigEndian.AppendUint32(nil, length))
		_, _ = c.Write(make([]byte, 7))
		return closed(c)
	})
	try("halves", 200, func(i int, _ *rand.Rand) error {
		c, err := connect()
		if err != nil {
			return err
		}
		defer c.Close()
		whole := kmsg.NewRequestFormatter(kmsg.FormatterClientID("e2e")).AppendRequest(nil, kmsg.NewPtrMetadataRequest(), 1)
		_, err = c.Write(whole[:i%len(whole)])
		return err
	})
	// A valid header before a body that means nothing, for every API and version.
	try("bodies", 100*20, func(i int, rng *rand.Rand) error {
		c, err := connect()
		if err != nil {
			return err
		}
		defer c.Close()
		b := binary.BigEndian.AppendUint16(nil, uint16(i/20))
		b = binary.BigEndian.AppendUint16(b, uint16(i%20))
		b = binary.BigEndian.AppendUint32(b, 1)
		b = binary.BigEndian.AppendUint16(b, 1)
		b = append(b, 'x')
		for range rng.IntN(200) {
			b = append(b, byte(rng.Uint32())>>(rng.IntN(3)*3)) // small numbers go deeper
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = io.Copy(io.Discard, c)
		return nil
	})
	t.Run("slowloris", func(t *testing.T) {
		var conns []net.Conn
		for range 2000 {
			conns = append(conns, dial(t, f.Addr))
		}
		for round := range 3 {
			each(t, len(conns), func(i int) error {
				_, err := conns[i].Write([]byte{[]byte{0, 0, 1}[round]})
				return err
			})
			time.Sleep(200 * time.Millisecond)
		}
		cl := dial(t, f.Addr)
		if err := greet(cl); err != nil {
			t.Errorf("beside 2000 slow connections: %v", err)
		}
	})
	hot.finish()
	t.Logf("beside all that %d records; slowest write %v, read %v", hot.n, hot.slowest("write"), hot.slowest("read"))
	if strings.Contains(f.Log(), "panic") {
		t.Errorf("a panic:\n%s", f.Log())
	}
	f.Stop()
}
