package main

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
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
	if !errors.Is(err, errHTTP) || !strings.Contains(err.Error(), at) {
		t.Errorf("%v", err)
	}
	if n := conns.Load(); n > 4 { // a client that tried again would go on for 20 s
		t.Errorf("after %d connections", n)
	}

	cl, err := connect(at)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := answers(t.Context(), cl, at); !errors.Is(err, errHTTP) {
		t.Errorf("%v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if got := httpServer(silent.Addr().String()); got != "" {
		t.Errorf("%s passes for an HTTP server", got)
	}
}
