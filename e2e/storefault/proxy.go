// Package storefault is an object store that fails: an HTTP proxy in front of a
// real one that breaks, delays, loses or spoils what it is told to.
package storefault

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is what a Proxy does to requests.
type Fault string

// The faults.
const (
	Healthy     Fault = ""
	Down        Fault = "down"      // connections are reset
	BlackHole   Fault = "blackhole" // no answer ever, until the fault ends
	Slow        Fault = "slow"      // half a second for each
	Unavailable Fault = "503"       // SlowDown
	// These hit reads of data (.log) only.
	ShortReply Fault = "short"   // half of the body, then the connection ends
	Corrupted  Fault = "corrupt" // a bit of the body is turned
	Missing    Fault = "404"     // NoSuchKey
	// MissingOnce: the first read of each object finds nothing, as behind a
	// listing that lags.
	MissingOnce Fault = "404 after put"
)

// Proxy stands between a broker and an object store.
type Proxy struct {
	URL    string
	hits   atomic.Int64 // requests that met the fault
	server *http.Server
	done   chan struct{} // closed when server has ended

	mu struct {
		sync.Mutex
		fault Fault
		over  chan struct{} // closed when the fault ends
		seen  map[string]bool
	}
}

// Start starts a healthy proxy in front of endpoint, on a free port.
func Start(endpoint string) (*Proxy, error) {
	target, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{URL: "http://" + ln.Addr().String(), done: make(chan struct{})}
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
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	p.server = &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.meet(w, r, forward) }),
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(ln) // until Close
	}()
	return p, nil
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.Set(Healthy)
	p.server.Close()
	<-p.done
}

// Hits is how many requests have met the present fault.
func (p *Proxy) Hits() int64 { return p.hits.Load() }

// Set changes the fault; requests that a black hole has swallowed are dropped.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.mu.over)
	p.mu.over = make(chan struct{})
	p.mu.fault, p.mu.seen = f, map[string]bool{}
	p.hits.Store(0)
}

func (p *Proxy) now() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.fault, p.mu.over
}

func readsData(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".log")
}

// first tells whether the object was not asked for yet.
func (p *Proxy) first(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.mu.seen[key]
	p.mu.seen[key] = true
	return !was
}

func (p *Proxy) meet(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	fault, over := p.now()
	hit := func() { p.hits.Add(1) }
	switch {
	case fault == Down:
		hit()
		panic(http.ErrAbortHandler)
	case fault == BlackHole:
		hit()
		select {
		case <-over:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	case fault == Slow:
		hit()
		time.Sleep(500 * time.Millisecond)
	case fault == Unavailable:
		hit()
		answer(w, http.StatusServiceUnavailable, "SlowDown")
		return
	case fault == Missing && readsData(r), fault == MissingOnce && readsData(r) && p.first(r.URL.Path):
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
func (p *Proxy) spoil(r *http.Response) error {
	fault, _ := p.now()
	if !readsData(r.Request) || r.StatusCode/100 != 2 {
		return nil
	}
	switch fault {
	case ShortReply:
		p.hits.Add(1)
		r.Body = &spoiled{ReadCloser: r.Body, left: r.ContentLength / 2}
	case Corrupted:
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
