package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// storeFault is what a faultProxy does to requests.
type storeFault string

const (
	healthy     storeFault = ""
	down        storeFault = "down"      // connections are reset
	blackhole   storeFault = "blackhole" // no answer ever, until the fault ends
	slow        storeFault = "slow"      // half a second for each
	unavailable storeFault = "503"       // SlowDown
	// These hit reads of data (.log) only.
	shortReply storeFault = "short"   // half of the body, then the connection ends
	corrupted  storeFault = "corrupt" // a bit of the body is turned
	missing    storeFault = "404"     // NoSuchKey
	// missingOnce: the first read of each object finds nothing, as behind a
	// listing that lags.
	missingOnce storeFault = "404 after put"
)

// faultProxy stands between a broker and an object store.
type faultProxy struct {
	*httptest.Server
	hits atomic.Int64 // requests that met the fault

	mu struct {
		sync.Mutex
		fault storeFault
		over  chan struct{} // closed when the fault ends
		seen  map[string]bool
	}
}

// startFaultProxy starts a healthy proxy in front of endpoint.
func startFaultProxy(t testing.TB, endpoint string) *faultProxy {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p := &faultProxy{}
	p.mu.over = make(chan struct{})
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Host = r.In.Host // it is signed
		},
		Transport:      &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		ModifyResponse: p.spoil,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		FlushInterval:  -1,
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.meet(w, r, forward)
	}))
	t.Cleanup(func() { p.set(healthy); p.CloseClientConnections(); p.Close() })
	return p
}

// set changes the fault; requests that a black hole has swallowed are dropped.
func (p *faultProxy) set(f storeFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.mu.over)
	p.mu.over = make(chan struct{})
	p.mu.fault, p.mu.seen = f, map[string]bool{}
	p.hits.Store(0)
}

func (p *faultProxy) now() (storeFault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.fault, p.mu.over
}

func readsData(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".log")
}

// first tells whether the object was not asked for yet.
func (p *faultProxy) first(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.mu.seen[key]
	p.mu.seen[key] = true
	return !was
}

func (p *faultProxy) meet(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	fault, over := p.now()
	hit := func() { p.hits.Add(1) }
	switch {
	case fault == down:
		hit()
		panic(http.ErrAbortHandler)
	case fault == blackhole:
		hit()
		select {
		case <-over:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	case fault == slow:
		hit()
		time.Sleep(500 * time.Millisecond)
	case fault == unavailable:
		hit()
		answer(w, http.StatusServiceUnavailable, "SlowDown")
		return
	case fault == missing && readsData(r), fault == missingOnce && readsData(r) && p.first(r.URL.Path):
		hit()
		answer(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	forward.ServeHTTP(w, r)
}

// answer is an error as S3 words it.
func answer(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>`+code+`</Code><Message>as the test wants it</Message></Error>`)
}

// spoil changes the body of a reply that holds data.
func (p *faultProxy) spoil(r *http.Response) error {
	fault, _ := p.now()
	if !readsData(r.Request) || r.StatusCode/100 != 2 {
		return nil
	}
	switch fault {
	case shortReply:
		p.hits.Add(1)
		r.Body = &spoiled{ReadCloser: r.Body, left: r.ContentLength / 2}
	case corrupted:
		p.hits.Add(1)
		r.Body = &spoiled{ReadCloser: r.Body, left: -1, flip: r.ContentLength / 3}
	}
	return nil
}

// spoiled is a body that ends after left bytes (-1: whole) or has one bit turned at flip.
type spoiled struct {
	io.ReadCloser
	left, flip int64
}

func (s *spoiled) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	if s.left > 0 && int64(len(b)) > s.left {
		b = b[:s.left]
	}
	n, err := s.ReadCloser.Read(b)
	if s.left > 0 {
		s.left -= int64(n)
		return n, err
	}
	if s.flip >= 0 && s.flip < int64(n) {
		b[s.flip] ^= 0x10
	}
	s.flip -= int64(n)
	return n, err
}
