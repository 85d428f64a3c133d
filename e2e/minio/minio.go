// Package minio starts MinIO as a process of its own, on loopback, for tests.
package minio

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"firn/zkmeta/zktest"
)

// Credentials of a server.
const (
	AccessKey = "firn"
	SecretKey = "firn-secret"
)

// Start starts an empty MinIO and waits until it answers; it ends with the
// test. Where MinIO isn't built the test is skipped, or fails if FIRN_REQUIRE
// or FIRN_REQUIRE_MINIO is set.
func Start(t testing.TB) (endpoint, accessKey, secretKey string) {
	t.Helper()
	return New(t).Endpoint, AccessKey, SecretKey
}

// Server is a MinIO that a test can take down and bring back.
type Server struct {
	Endpoint string // http://127.0.0.1:port
	// Secret is the secret of AccessKey from the next start on.
	Secret string

	t    testing.TB
	bin  string
	addr string
	dir  string
	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended
}

// New is Start for a test that does more with the server.
func New(t testing.TB) *Server {
	t.Helper()
	bin := Binary(t)
	s := &Server{t: t, bin: bin, dir: t.TempDir(), Secret: SecretKey}
	t.Cleanup(s.Kill)
	s.addr = fmt.Sprintf("127.0.0.1:%d", zktest.Ports(t, 1)[0])
	s.Endpoint = "http://" + s.addr
	if s.start() {
		return s
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	t.Fatalf("MinIO does not start:\n%s", log)
	return nil
}

// Kill ends the server at once, as a crash would. Restart brings it back.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	<-s.gone
	s.cmd = nil
}

// Restart starts the server again on its port, with its data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if !s.start() {
		s.t.Fatal("MinIO does not start again")
	}
}

// start starts the process and tells whether it became ready.
func (s *Server) start() bool {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(s.bin, "server", "--quiet", "--address", s.addr, filepath.Join(s.dir, "data"))
	s.cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+AccessKey, "MINIO_ROOT_PASSWORD="+s.Secret, "MINIO_BROWSER=off", "MINIO_UPDATE=off")
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	gone, cmd := make(chan struct{}), s.cmd
	s.gone = gone
	go func() { cmd.Wait(); close(gone) }()

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if ready(ctx, s.Endpoint) {
			return true
		}
		select {
		case <-tick.C:
		case <-gone:
			s.cmd = nil
			return false
		case <-ctx.Done():
			s.Kill()
			return false
		}
	}
}

// ready asks for an object too: a server that says it is ready may still refuse
// everything until it has read who its users are.
func ready(ctx context.Context, endpoint string) bool {
	return answers(ctx, endpoint+"/minio/health/ready", http.StatusOK) && answers(ctx, endpoint+"/none/none", http.StatusForbidden)
}

func answers(ctx context.Context, url string, status int) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == status
}

// Binary finds MinIO where `make minio` builds it.
func Binary(t testing.TB) string {
	t.Helper()
	cache := os.Getenv("FIRN_CACHE")
	if cache == "" {
		_, file, _, _ := runtime.Caller(0)
		cache = filepath.Join(filepath.Dir(file), "..", "..", ".cache")
	}
	bin := filepath.Join(cache, "bin", "minio")
	if _, err := os.Stat(bin); err == nil {
		return bin
	}
	missing := fmt.Sprintf("MinIO is not built: %s is missing; run e2e/setup.sh minio", bin)
	if required() {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

func required() bool {
	if os.Getenv("FIRN_REQUIRE_MINIO") != "" {
		return true
	}
	for w := range strings.SplitSeq(os.Getenv("FIRN_REQUIRE"), ",") {
		if w == "all" || w == "minio" {
			return true
		}
	}
	return false
}
