package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"firn/zkmeta/zktest"
)

// TestAnHTTPServerIsNoBroker: who names the admin listener with -b is told so.
func TestAnHTTPServerIsNoBroker(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	var conns atomic.Int64
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	at := strings.TrimPrefix(srv.URL, "http://")
	err := admin(at, func(a *kadm.Client) error {
		_, err := a.BrokerMetadata(t.Context())
		return err
	})
	if !errors.Is(err, errUnreachable) || !strings.Contains(err.Error(), at) {
		t.Errorf("%v", err)
	}
	// The client's own, and two looks of two each; one that tried again would go on for 20 s.
	if n := conns.Load(); n > 5 {
		t.Errorf("after %d connections", n)
	}

	cl, err := connect(at)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := answers(t.Context(), cl, at); !errors.Is(err, errUnreachable) {
		t.Errorf("%v", err)
	}
}

// TestWhatIsNoBrokerIsTold: whatever listens where a broker was looked for, the error
// says what it is, and nothing of what a client library makes of it.
func TestWhatIsNoBrokerIsTold(t *testing.T) {
	serve := func(answer func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var conns sync.WaitGroup
		conns.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				conns.Go(func() { defer c.Close(); answer(c) })
			}
		})
		t.Cleanup(func() { l.Close(); conns.Wait() })
		return l.Addr().String()
	}
	https := httptest.NewTLSServer(http.NotFoundHandler())
	defer https.Close()
	https.Config.ErrorLog = log.New(io.Discard, "", 0)
	for at, want := range map[string]string{
		fmt.Sprint("127.0.0.1:", zktest.Ports(t, 1)[0]): "start one with",
		https.Listener.Addr().String():                  "speaks TLS",
		serve(func(c net.Conn) {}):                      "does not answer as a broker",
		serve(func(c net.Conn) { fmt.Fprint(c, "SSH-2.0-OpenSSH\r\n"); io.Copy(io.Discard, c) }): "does not answer as a broker",
	} {
		var err error
		for range 3 { // who answers, but on a machine that stood still for as long as a look takes, is asked again
			began := time.Now()
			err = admin(at, func(a *kadm.Client) error {
				_, err := a.BrokerMetadata(t.Context())
				return err
			})
			if time.Since(began) < lookTime || err != nil && strings.Contains(err.Error(), want) {
				break
			}
		}
		if !errors.Is(err, errUnreachable) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), at) {
			t.Errorf("%q is not in: %v", want, err)
		}
		for _, theirs := range []string{"unable to", "BrokerMaxReadBytes", "is TLS missing"} {
			if err != nil && strings.Contains(err.Error(), theirs) {
				t.Errorf("a library's words: %v", err)
			}
		}
	}
	for _, brokers := range []string{"localhost:x", "localhost:0", " , "} {
		if _, err := connect(brokers); err == nil || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("-b %q: %v", brokers, err)
		}
	}
}

// TestAnErrorOfARunningBrokerIsNotThatNobodyAnswers: where -b does answer, the error is
// about another broker, and names it.
func TestAnErrorOfARunningBrokerIsNotThatNobodyAnswers(t *testing.T) {
	dir := t.TempDir()
	b, err := startEmbedded(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.stop()
	theirs := &kadm.ShardErrors{Name: "ListOffsets", Errs: []kadm.ShardError{
		{Broker: kadm.BrokerDetail{NodeID: 2, Host: "h", Port: 9092}, Err: fmt.Errorf("unable to dial: %w", io.EOF)},
		{Broker: kadm.BrokerDetail{NodeID: -1}, Err: kerr.LeaderNotAvailable},
	}}
	err = reach(b.addr, fmt.Errorf("offsets of t: %w", theirs))
	if want := "offsets of t: broker 2 at h:9092: EOF; LEADER_NOT_AVAILABLE: it has no leader now"; err.Error() != want || !errors.Is(err, kerr.LeaderNotAvailable) {
		t.Errorf("%v\nwant %s", err, want)
	}
	if log, err := os.ReadFile(filepath.Join(dir, "firn.log")); err != nil || strings.Contains(string(log), "frame too large") {
		t.Errorf("the broker complains of how it was looked at: %v\n%s", err, log)
	}
}

func TestABrokerThatHangsDoesNotAnswer(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092}
	err := fmt.Errorf("list topics: %w", &net.OpError{Op: "read", Net: "tcp", Addr: at, Err: os.ErrDeadlineExceeded})
	if got := ourWords(err); got.Error() != "list topics: 127.0.0.1:9092 does not answer" || !errors.Is(got, os.ErrDeadlineExceeded) {
		t.Errorf("%v", got)
	}
}
