package stand

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"firn/e2e/storefault"
)

// Credentials of the object store.
const (
	accessKey = "firn"
	secretKey = "firn-secret"
)

// Store is a MinIO process behind a proxy that fails as it is told to.
type Store struct {
	*Proc
	Endpoint string // without the proxy
	Proxy    *storefault.Proxy
}

func newStore(dir, binary, addr string) (*Store, error) {
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("MinIO is not built: run e2e/setup.sh minio: %w", err)
	}
	s := &Store{Endpoint: "http://" + addr}
	s.Proc = &Proc{Name: "minio", Log: filepath.Join(dir, "minio.log"), Command: func() *exec.Cmd {
		cmd := exec.Command(binary, "server", "--quiet", "--address", addr, filepath.Join(dir, "minio"))
		cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+accessKey, "MINIO_ROOT_PASSWORD="+secretKey, "MINIO_BROWSER=off", "MINIO_UPDATE=off", "GOMAXPROCS=1")
		return cmd
	}}
	var err error
	if s.Proxy, err = storefault.Start(s.Endpoint); err != nil {
		return nil, err
	}
	return s, nil
}

// URL is where the archive lies, through the proxy or straight.
func (s *Store) URL(straight bool) string {
	endpoint := s.Proxy.URL
	if straight {
		endpoint = s.Endpoint
	}
	return "s3://chaos/a?endpoint=" + endpoint + "&create=true"
}

// Ready waits until the store serves: it refuses an unknown user by then.
func (s *Store) Ready(ctx context.Context) error {
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/none/none", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusForbidden {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("MinIO is not ready: %w\n%s", context.Cause(ctx), s.Tail(2<<10))
		}
	}
}
