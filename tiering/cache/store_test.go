package cache

import (
	"context"
	"io"

	"firn/tiering/objstore"
)

// slowStore delivers so many bytes of each GET, then waits for hold.
type slowStore struct {
	objstore.Store
	after int
	hold  chan struct{}
}

func (s *slowStore) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := s.Store.GetRange(ctx, key, off, n)
	return &slowBody{r, ctx, s, 0}, err
}

type slowBody struct {
	io.ReadCloser
	ctx context.Context
	s   *slowStore
	n   int
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.n >= b.s.after {
		select {
		case <-b.s.hold:
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	} else {
		p = p[:min(len(p), b.s.after-b.n)]
	}
	n, err := b.ReadCloser.Read(p)
	b.n += n
	return n, err
}
