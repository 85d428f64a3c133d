package objstore

import (
	"context"
	"fmt"
	"io"
)

// Exact makes a reply of a store keep GetRange's promise: the stream yields n
// bytes and then io.EOF, or fails with io.ErrUnexpectedEOF; what the store
// sends beyond n is not read. n < 0 takes the stream as it is.
func Exact(body io.ReadCloser, n int64) io.ReadCloser {
	if n < 0 {
		return body
	}
	return &exact{body: body, left: n}
}

type exact struct {
	body io.ReadCloser
	left int64
}

func (e *exact) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > e.left {
		p = p[:e.left]
	}
	n, err := e.body.Read(p)
	e.left -= int64(n)
	switch {
	case e.left == 0:
		// Whatever the store has to add does not concern this range.
		err = nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (e *exact) Close() error { return e.body.Close() }

func (e *exact) TakeFile() (File, int64, bool) { return TakeFile(e.body) }

// ReadAll reads the whole object under key, which must not be larger than limit.
func ReadAll(ctx context.Context, s Store, key string, limit int64) ([]byte, error) {
	r, err := s.GetRange(ctx, key, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("objstore: read %s: %w", key, err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("objstore: %s is larger than %d bytes", key, limit)
	}
	return b, nil
}

// ReadRange fills b with the bytes of key from off.
func ReadRange(ctx context.Context, s Store, key string, off int64, b []byte) error {
	r, err := s.GetRange(ctx, key, off, int64(len(b)))
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.ReadFull(r, b); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("objstore: read %s from %d: %w", key, off, err)
	}
	return nil
}
