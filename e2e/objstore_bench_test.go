package e2e

import (
	"fmt"
	"io"
	"sync"
	"testing"

	"firn/e2e/minio"
	"firn/tiering"
	"firn/tiering/objstore"
)

// BenchmarkObjectStore moves objects to and from a MinIO on this machine, both
// ends on its cores: PUT of a segment, range GETs one and four at a time.
//
//	go test ./e2e -run '^$' -bench ObjectStore -benchtime 20x
func BenchmarkObjectStore(b *testing.B) {
	endpoint, _, _ := minio.Start(b)
	b.Setenv("AWS_ACCESS_KEY_ID", minio.AccessKey)
	b.Setenv("AWS_SECRET_ACCESS_KEY", minio.SecretKey)
	for _, client := range clients {
		for _, unsigned := range []bool{false, true} {
			s := benchStore(b, endpoint, client, unsigned)
			b.Run(fmt.Sprintf("%s/put-64MiB/unsigned=%t", client, unsigned), func(b *testing.B) {
				b.SetBytes(64 << 20)
				for i := range b.N {
					if err := s.Put(b.Context(), fmt.Sprintf("put-%d", i%4), noise{}, 64<<20); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		s := benchStore(b, endpoint, client, true)
		if err := s.Put(b.Context(), "get", noise{}, 64<<20); err != nil {
			b.Fatal(err)
		}
		for _, c := range []struct {
			size     int64
			parallel int
		}{{1 << 20, 1}, {8 << 20, 1}, {8 << 20, 4}} {
			b.Run(fmt.Sprintf("%s/get-%dMiB/x%d", client, c.size>>20, c.parallel), func(b *testing.B) {
				b.SetBytes(c.size * int64(c.parallel))
				b.ReportAllocs()
				for range b.N {
					var wg sync.WaitGroup
					for i := range c.parallel {
						wg.Go(func() {
							r, err := s.GetRange(b.Context(), "get", int64(i)*c.size, c.size)
							if err == nil {
								_, err = io.Copy(io.Discard, r)
								r.Close()
							}
							if err != nil {
								b.Error(err)
							}
						})
					}
					wg.Wait()
				}
			})
		}
	}
}

func benchStore(b *testing.B, endpoint, client string, unsigned bool) objstore.Store {
	b.Helper()
	s, err := tiering.OpenStore(b.Context(), fmt.Sprintf("s3://bench?create=true&endpoint=%s&client=%s&unsigned_payload=%t", endpoint, client, unsigned), tiering.OpenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// noise is a body of any size that does not compress and costs little.
type noise struct{}

func (noise) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		p[i] = byte((off + int64(i)) * 167 >> 5)
	}
	return len(p), nil
}
