package objstore

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Times within which an outage of a store shows.
const (
	dialTimeout   = 3 * time.Second
	stallTimeout  = 15 * time.Second // no byte moved either way
	maxIdlePerSrv = 64
)

// NewTransport makes the HTTP transport that clients of object stores share: an
// outage shows within seconds, replies are taken as sent (a proxy's compression
// would move ranges, D16), and parallel range reads keep their connections.
func NewTransport() *http.Transport {
	d := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &watched{Conn: c}, nil
		},
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   maxIdlePerSrv,
		IdleConnTimeout:       60 * time.Second,
		DisableCompression:    true,
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        64 << 10,
		ForceAttemptHTTP2:     false,
	}
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
