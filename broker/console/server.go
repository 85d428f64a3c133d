package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Source is what the console asks the broker.
type Source interface {
	// Health tells how the broker is, and what it depends on. It asks that again where
	// the last answer is older than fresh, and waits for it no longer than ctx.
	Health(ctx context.Context, fresh time.Duration) Health
	// ArchivePartitions tells where every partition that this broker leads stands.
	ArchivePartitions() []ArchivePartition
}

// Health is what /readyz answers.
type Health struct {
	Ready bool `json:"ready"`
	// Degraded says in words what doesn't work though the broker is ready.
	Degraded []string `json:"degraded,omitempty"`
	// Checks are named states: "ok", or what is missing.
	Checks map[string]string `json:"checks"`
}

// ArchivePartition is how far the archive of a partition is.
type ArchivePartition struct {
	Topic         string `json:"topic"`
	Partition     int32  `json:"partition"`
	LogStart      int64  `json:"logStart"`
	LocalStart    int64  `json:"localStart"`
	ArchivedEnd   int64  `json:"archivedEnd"`
	End           int64  `json:"end"`
	LocalBytes    int64  `json:"localBytes"`
	ArchivedBytes int64  `json:"archivedBytes"`
	PendingBytes  int64  `json:"pendingBytes"`
	// PendingSeconds is the age of the oldest record that is not archived.
	PendingSeconds float64 `json:"pendingSeconds"`
	// Reason says why nothing is uploading right now, "" if it is.
	Reason    string `json:"reason,omitempty"`
	LastError string `json:"lastError,omitempty"`
}

// Config sets up a Server.
type Config struct {
	Source   Source
	Gatherer prometheus.Gatherer
	// Log is the logger; nil discards.
	Log *slog.Logger
}

// Server is the HTTP server.
type Server struct {
	cfg  Config
	http *http.Server
}

// New makes a server; Run serves.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg}
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return s
}

const (
	// answerWithin is how long /readyz waits for others: who asks it often gives
	// up after a second, and would take a broker away that serves.
	answerWithin = 300 * time.Millisecond
	// answerFresh is how long an answer of others counts: each costs a request.
	answerFresh = 2 * time.Second
	// waitMost bounds what ?wait= may ask for.
	waitMost = 5 * time.Second
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		s.answer(w, http.StatusOK, map[string]bool{"live": true})
	})
	ready := func(w http.ResponseWriter, r *http.Request) {
		wait, fresh := answerWithin, answerFresh
		if asked, err := time.ParseDuration(r.URL.Query().Get("wait")); err == nil {
			wait, fresh = min(max(asked, 0), waitMost), 0
		}
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		h := s.cfg.Source.Health(ctx, fresh)
		code := http.StatusOK
		if !h.Ready {
			code = http.StatusServiceUnavailable
		}
		s.answer(w, code, h)
	}
	for _, path := range []string{"/readyz", "/healthz", "/v1/status/ready"} {
		mux.HandleFunc("GET "+path, ready)
	}
	mux.HandleFunc("GET /api/v1/archive/partitions", func(w http.ResponseWriter, _ *http.Request) {
		ps := s.cfg.Source.ArchivePartitions()
		if ps == nil {
			ps = []ArchivePartition{}
		}
		s.answer(w, http.StatusOK, ps)
	})
	return mux
}

// answer writes v as JSON. The peer may be gone by then; that is not our error.
func (s *Server) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.cfg.Log.Debug("write answer", "err", err)
	}
}

// Run serves l until ctx ends, then lets running requests finish for a second.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	done := make(chan error, 1)
	go func() { done <- s.http.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("console: serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.http.Shutdown(sctx); err != nil {
		s.http.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("console: serve %s: %w", l.Addr(), err)
	}
	return nil
}
