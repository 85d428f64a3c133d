package minio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"

	"firn/tiering/objstore"
)

func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := objstore.CheckKey(key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, fmt.Errorf("minio: get %s: from %d: %w", key, off, objstore.ErrRange)
	}
	if n == 0 {
		return s.empty(ctx, key)
	}
	var o minio.GetObjectOptions
	if h := objstore.RangeHeader(off, n); h != "" {
		o.Set("Range", h)
	}
	body, _, head, err := s.client.GetObject(ctx, s.bucket, s.prefix+key, o)
	if err != nil {
		return nil, s.mapped("get", key, err)
	}
	r := objstore.Reply{
		ContentRange:    head.Get("Content-Range"),
		ContentLength:   -1,
		ContentEncoding: head.Get("Content-Encoding"),
	}
	if size, err := strconv.ParseInt(head.Get("Content-Length"), 10, 64); err == nil {
		r.ContentLength = size
	}
	n, err = r.Check(off, n)
	if err != nil {
		body.Close()
		return nil, fmt.Errorf("minio: get %s: %w", key, err)
	}
	return objstore.Exact(body, n), nil
}

// empty answers a Get of no bytes: it tells whether the object is there.
// S3 has no such range, so it asks for a byte.
func (s *Store) empty(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := s.GetRange(ctx, key, 0, 1)
	switch {
	case err == nil:
		r.Close()
	case !errors.Is(err, objstore.ErrRange):
		return nil, err
	}
	return http.NoBody, nil
}

func (s *Store) List(ctx context.Context, prefix string, yield func(objstore.Object) error) error {
	list, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing, should yield have enough
	for o := range s.client.Client.ListObjectsIter(list, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return s.mapped("list", prefix, o.Err)
		}
		key, ok := strings.CutPrefix(o.Key, s.prefix)
		if !ok || key == "" || strings.HasSuffix(key, "/") {
			continue // a console's "folder" is no object of ours
		}
		if err := yield(objstore.Object{Key: key, Size: o.Size, ModTime: o.LastModified.UnixMilli()}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (s *Store) Folders(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	list, cancel := context.WithCancel(ctx)
	defer cancel()
	for o := range s.client.Client.ListObjectsIter(list, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + prefix}) {
		if o.Err != nil {
			return nil, s.mapped("list", prefix, o.Err)
		}
		if name, ok := strings.CutSuffix(strings.TrimPrefix(o.Key, s.prefix+prefix), "/"); ok && name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, ctx.Err()
}
