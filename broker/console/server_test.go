package console

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type source struct {
	h            Health
	waits, fresh time.Duration // what Health was last given
}

func (s *source) Health(ctx context.Context, fresh time.Duration) Health {
	end, _ := ctx.Deadline()
	s.waits, s.fresh = time.Until(end), fresh
	return s.h
}

func (s *source) ArchivePartitions() []ArchivePartition { return nil }

func start(t *testing.T, src Source) string {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "firn_test_total", Help: "x"}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- New(Config{Source: src, Gatherer: reg}).Run(ctx, l) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return "http://" + l.Addr().String()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestStoreDownIsDegradedNotUnready(t *testing.T) {
	src := &source{h: Health{Ready: true, Degraded: []string{"archive: connection refused"}, Checks: map[string]string{"metadata": "ok"}}}
	url := start(t, src)
	for _, path := range []string{"/readyz", "/healthz", "/v1/status/ready"} {
		code, body := get(t, url+path)
		var h Health
		if err := json.Unmarshal([]byte(body), &h); err != nil || code != 200 || !h.Ready || len(h.Degraded) != 1 {
			t.Errorf("%s = %d %s", path, code, body)
		}
	}
	src.h.Ready = false
	if code, _ := get(t, url+"/readyz"); code != 503 {
		t.Errorf("not ready: %d, want 503", code)
	}
}

func TestOnlyReadsAreServed(t *testing.T) {
	url := start(t, &source{})
	if _, body := get(t, url+"/metrics"); !strings.Contains(body, "firn_test_total") {
		t.Errorf("metrics: %s", body)
	}
	if _, body := get(t, url+"/api/v1/archive/partitions"); strings.TrimSpace(body) != "[]" {
		t.Errorf("partitions: %s", body)
	}
	r, err := http.Post(url+"/readyz", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST = %d", r.StatusCode)
	}
}

// TestHealthWaitsNoLongerThanAsked: a probe that gives up after a second must not take a
// broker away because others are slow.
func TestHealthWaitsNoLongerThanAsked(t *testing.T) {
	src := &source{h: Health{Ready: true}}
	url := start(t, src)
	for query, most := range map[string]time.Duration{"": answerWithin, "?wait=3s": 3 * time.Second, "?wait=1h": waitMost, "?wait=x": answerWithin, "?wait=-1s": 0} {
		if get(t, url+"/readyz"+query); src.waits > most || most > 0 && src.waits <= 0 {
			t.Errorf("%q waits %v, want %v", query, src.waits, most)
		}
		if anew := most != answerWithin; (src.fresh == 0) != anew {
			t.Errorf("%q takes answers of %v", query, src.fresh)
		}
	}
}
