package objstore

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Times within which an outage of a store shows.
const (
	dialTimeout  = 3 * time.Second
	stallTimeout = 15 * time.Second // no byte moved either way
)

// idlePerHost is how many connections wait for the next requests.
const idlePerHost = 64

// Attempts is how often a client tries a request that may be repeated, and
// MaxBackoff the longest that it waits in between.
const (
	Attempts   = 3
	MaxBackoff = time.Second
)

// NewTransport makes the HTTP transport that clients of object stores share.
func NewTransport() *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	Tune(t)
	return t
}

// Tune sets what matters in t to a client of an object store: an outage shows
// within seconds, replies are taken as sent (a proxy's compression would move
// ranges, D16), and parallel range reads keep their connections.
func Tune(t *http.Transport) {
	d := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &watched{Conn: c}, nil
	}
	t.TLSHandshakeTimeout = 5 * time.Second
	t.ExpectContinueTimeout = time.Second
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = idlePerHost
	t.IdleConnTimeout = stallTimeout
	t.DisableCompression = true
	t.ReadBufferSize, t.WriteBufferSize = 64<<10, 64<<10
	// HTTP/2 would put all of a reader's parallel GETs on one connection.
	t.ForceAttemptHTTP2 = false
}

// watched fails a connection on which nothing has moved for stallTimeout. A
// write also extends the wait of the read beside it: the reply to a large upload
// comes only after the last byte.
type watched struct{ net.Conn }

func (w *watched) Read(p []byte) (int, error) {
	w.Conn.SetReadDeadline(time.Now().Add(stallTimeout))
	return w.Conn.Read(p)
}

func (w *watched) Write(p []byte) (int, error) {
	w.Conn.SetDeadline(time.Now().Add(stallTimeout))
	return w.Conn.Write(p)
}
