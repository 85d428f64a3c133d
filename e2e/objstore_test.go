package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"firn/e2e/minio"
	"firn/tiering"
	"firn/tiering/objstore"
	"firn/tiering/objstoretest"
)

// clients are the two that speak to a bucket.
var clients = []string{"aws", "minio"}

// credentials puts those of the tests' MinIO where both clients look.
func credentials(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", minio.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", minio.SecretKey)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// TestObjectStoreContract runs the contract of objstore.Store against a real
// MinIO, through both clients, with the payload signed and not.
func TestObjectStoreContract(t *testing.T) {
	endpoint, _, _ := minio.Start(t)
	credentials(t)
	n := 0
	for _, client := range clients {
		for _, unsigned := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/unsigned=%t", client, unsigned), func(t *testing.T) {
				open := func(t *testing.T) objstore.Store {
					n++
					url := fmt.Sprintf("s3://contract/run-%d/x?endpoint=%s&client=%s&unsigned_payload=%t&create=true", n, endpoint, client, unsigned)
					s, err := tiering.OpenStore(t.Context(), url, tiering.OpenOptions{})
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				objstoretest.Run(t, open)
				objstoretest.RunParts(t, open)
			})
		}
	}
}

// TestObjectStoreMisconfigured: what an operator got wrong is said in words.
func TestObjectStoreMisconfigured(t *testing.T) {
	endpoint, _, _ := minio.Start(t)
	for _, client := range clients {
		t.Run(client, func(t *testing.T) {
			credentials(t)
			open := func(bucket string) error {
				_, err := tiering.OpenStore(t.Context(), "s3://"+bucket+"?endpoint="+endpoint+"&client="+client, tiering.OpenOptions{})
				return err
			}
			if err := open("missing"); err == nil || !strings.Contains(err.Error(), "create=true") {
				t.Errorf("missing bucket: %v, want the parameter's name", err)
			}
			if err := open("made-" + client + "?create=true&x"); err == nil {
				t.Error("a second question mark was accepted")
			}
			t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
			if err := open("missing"); err == nil || !strings.Contains(err.Error(), "credentials") {
				t.Errorf("wrong secret: %v, want credentials named", err)
			}
		})
	}
}

// TestObjectStoreOutage: a store that is down fails within seconds, as an
// outage; when it is back, so are its objects, without a new client.
func TestObjectStoreOutage(t *testing.T) {
	srv := minio.New(t)
	credentials(t)
	var stores []objstore.Store
	for _, client := range clients {
		s, err := tiering.OpenStore(t.Context(), "s3://outage/"+client+"?create=true&endpoint="+srv.Endpoint+"&client="+client, tiering.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Put(t.Context(), "k", strings.NewReader("value"), 5); err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	srv.Kill()
	for i, s := range stores {
		for what, op := range map[string]func() error{
			"get":    func() error { _, err := objstore.ReadAll(t.Context(), s, "k", 10); return err },
			"put":    func() error { return s.Put(t.Context(), "k2", strings.NewReader("v"), 1) },
			"create": func() error { return s.Create(t.Context(), "k3", []byte("v")) },
			"list":   func() error { return s.List(t.Context(), "", func(objstore.Object) error { return nil }) },
			"delete": func() error { return s.Delete(t.Context(), "k") },
		} {
			start := time.Now()
			err := op()
			if err == nil || errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrDenied) {
				t.Errorf("%s, %s while down: %v, want an outage", clients[i], what, err)
			}
			if d := time.Since(start); d > time.Minute { // two or three seconds, but no client may try for ever
				t.Errorf("%s, %s while down took %v", clients[i], what, d)
			}
		}
	}
	srv.Restart()
	for i, s := range stores {
		if b, err := objstore.ReadAll(t.Context(), s, "k", 10); err != nil || string(b) != "value" {
			t.Errorf("%s after the restart: %q, %v", clients[i], b, err)
		}
	}
}

// watched is a body that tells when it has been read so far.
type watched struct {
	at   int64
	tell func()
}

func (w watched) ReadAt(p []byte, off int64) (int, error) {
	if off >= w.at {
		w.tell()
	}
	return len(p), nil
}

// TestMultipartLeavesNothing: an upload in parts that fails, or is given up,
// leaves neither an object nor parts (D18).
func TestMultipartLeavesNothing(t *testing.T) {
	endpoint, _, _ := minio.Start(t)
	credentials(t)
	for _, client := range clients {
		t.Run(client, func(t *testing.T) {
			s, err := tiering.OpenStore(t.Context(), "s3://parts/"+client+"?create=true&endpoint="+endpoint+"&client="+client, tiering.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			const size = objstore.SinglePut + 3*objstore.PartBytes
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if err := s.Put(ctx, "given-up", watched{objstore.SinglePut, cancel}, size); err == nil {
				t.Error("a Put that was given up succeeded")
			}
			if err := s.Put(t.Context(), "short", bytes.NewReader(make([]byte, size-1)), size); err == nil {
				t.Error("a Put of a short body succeeded")
			}
			for _, key := range []string{"given-up", "short"} {
				n, err := objstore.AbortIncomplete(t.Context(), s, key, func(string) bool { return false })
				if err != nil || n != 0 {
					t.Errorf("%s left %d unfinished uploads, %v", key, n, err)
				}
				if _, err := objstore.ReadAll(t.Context(), s, key, 10); !errors.Is(err, objstore.ErrNotFound) {
					t.Errorf("%s: %v, want ErrNotFound", key, err)
				}
			}
		})
	}
}

// TestObjectStoreCredentialsRotate: when the store refuses what the credentials
// file said, it is read again, without a restart (D19).
func TestObjectStoreCredentialsRotate(t *testing.T) {
	srv := minio.New(t)
	credentials(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	write := func(secret string) {
		text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", minio.AccessKey, secret)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(minio.SecretKey)
	var stores []objstore.Store
	for _, client := range clients {
		s, err := tiering.OpenStore(t.Context(), "s3://rotated?create=true&endpoint="+srv.Endpoint+"&client="+client, tiering.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	put := func(s objstore.Store) error { return s.Put(t.Context(), "k", strings.NewReader("v"), 1) }
	srv.Secret = "another-secret"
	srv.Restart()
	for i, s := range stores {
		if err := put(s); !errors.Is(err, objstore.ErrDenied) {
			t.Errorf("%s, with the old secret: %v, want ErrDenied", clients[i], err)
		}
	}
	write("another-secret")
	for i, s := range stores {
		if err := put(s); err != nil {
			t.Errorf("%s, after the rotation: %v", clients[i], err)
		}
	}
}
