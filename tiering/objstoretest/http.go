package objstoretest

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firn/tiering/objstore"
)

// RunHTTP serves replies that are not what was asked for, or not now, to
// clients of S3's protocol (D16, D19): none may take them for good bytes, nor
// an outage for a lost object. open makes a client of the server at endpoint,
// of the bucket "bucket" without a prefix.
func RunHTTP(t *testing.T, open func(t *testing.T, endpoint string) objstore.Store) {
	body := noise(10_000)
	ranged := func(w http.ResponseWriter, from, to int) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(body)))
		w.Header().Set("Content-Length", strconv.Itoa(to-from))
		w.WriteHeader(http.StatusPartialContent)
	}
	s3Error := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(status)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>said the test</Message></Error>", code)
		}
	}
	// Each is asked for bytes [2000, 6000).
	for _, c := range []struct {
		name   string
		reply  http.HandlerFunc
		is     error // that the read must fail with, if not nil
		isNot  error
		repeat bool // the client asks again
	}{
		{"short body", func(w http.ResponseWriter, _ *http.Request) {
			ranged(w, 2000, 6000)
			w.Write(body[2000:4000])
		}, nil, objstore.ErrNotFound, false},
		{"short range", func(w http.ResponseWriter, _ *http.Request) {
			ranged(w, 2000, 4000)
			w.Write(body[2000:4000])
		}, io.ErrUnexpectedEOF, nil, false},
		{"another range", func(w http.ResponseWriter, _ *http.Request) {
			ranged(w, 3000, 7000)
			w.Write(body[3000:7000])
		}, nil, objstore.ErrNotFound, false},
		{"whole object", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			w.Write(body)
		}, nil, objstore.ErrNotFound, false},
		{"compressed on the way", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 2000-5999/%d", len(body)))
			w.WriteHeader(http.StatusPartialContent)
			z := gzip.NewWriter(w)
			z.Write(body[2000:6000])
			z.Close()
		}, nil, objstore.ErrNotFound, false},
		{"unreadable Content-Range", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes all of them")
			w.WriteHeader(http.StatusPartialContent)
			w.Write(body[2000:6000])
		}, nil, objstore.ErrNotFound, false},
		{"reset", func(w http.ResponseWriter, _ *http.Request) {
			ranged(w, 2000, 6000)
			w.Write(body[2000:3000])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, nil, objstore.ErrNotFound, false},
		{"ends inside the object", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 2000-2999/3000")
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusPartialContent)
			w.Write(body[2000:3000])
		}, objstore.ErrRange, nil, false},
		{"404", s3Error(404, "NoSuchKey"), objstore.ErrNotFound, nil, false},
		{"no bucket", s3Error(404, "NoSuchBucket"), objstore.ErrNoBucket, objstore.ErrNotFound, false},
		{"403", s3Error(403, "AccessDenied"), objstore.ErrDenied, nil, false},
		{"416", s3Error(416, "InvalidRange"), objstore.ErrRange, nil, false},
		{"clock skewed", s3Error(403, "RequestTimeTooSkewed"), nil, objstore.ErrDenied, false},
		{"token expired", s3Error(400, "ExpiredToken"), nil, objstore.ErrDenied, false},
		{"500", s3Error(500, "InternalError"), nil, objstore.ErrNotFound, true},
		{"503", s3Error(503, "SlowDown"), nil, objstore.ErrNotFound, true},
		{"502 by a proxy", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			io.WriteString(w, "<html>Bad Gateway</html>")
		}, nil, objstore.ErrNotFound, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				c.reply(w, r)
			})
			got, err := get(t, open(t, srv.URL), "k", 2000, 4000)
			if err == nil {
				t.Fatalf("read %d bytes without an error", len(got))
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v, want %v", err, c.is)
			}
			if c.isNot != nil && errors.Is(err, c.isNot) {
				t.Errorf("error %v, which must not be %v", err, c.isNot)
			}
			switch n := asked.Load(); {
			case c.repeat && n < 2, n > objstore.Attempts:
				t.Errorf("asked %d times, want 2 to %d", n, objstore.Attempts)
			case c.is != nil && n != 1:
				t.Errorf("asked %d times for a clear answer", n)
			}
		})
	}
	t.Run("a Create is sent once", func(t *testing.T) {
		t.Parallel()
		var puts atomic.Int64
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				if r.Header.Get("If-None-Match") != "*" {
					t.Errorf("If-None-Match: %q", r.Header.Get("If-None-Match"))
				}
				puts.Add(1)
			}
			s3Error(500, "InternalError")(w, r)
		})
		err := open(t, srv.URL).Create(t.Context(), "k", []byte("v"))
		if err == nil || errors.Is(err, objstore.ErrExists) {
			t.Errorf("Create = %v, want an outage", err)
		}
		if n := puts.Load(); n != 1 {
			t.Errorf("sent %d times, want once: the answer to a second would not tell who wrote", n)
		}
	})
	t.Run("an ended context ends a stalled read", func(t *testing.T) {
		t.Parallel()
		done := make(chan struct{})
		srv := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			ranged(w, 2000, 6000)
			w.Write(body[2000:2100])
			w.(http.Flusher).Flush()
			<-done
		})
		defer close(done)
		s := open(t, srv.URL)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := s.GetRange(ctx, "k", 2000, 4000)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := io.ReadFull(r, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(100*time.Millisecond, cancel) // by when the read waits
		if _, err := io.ReadAll(r); err == nil {
			t.Error("the read of a stalled reply ended without an error")
		}
	})
}

// serve answers for objects as reply does; the bucket itself is there.
func serve(t *testing.T, reply http.HandlerFunc) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("ETag", `"0"`)
		if strings.Trim(r.URL.Path, "/") != "bucket" {
			reply(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}
