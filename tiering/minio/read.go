package minio

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"

	"firn/tiering/objstore"
)

func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	return objstore.S3GetRange(key, off, n, func(header string) (io.ReadCloser, objstore.Reply, error) {
		var o minio.GetObjectOptions
		if header != "" {
			o.Set("Range", header)
		}
		body, _, head, err := s.client.GetObject(ctx, s.bucket, s.prefix+key, o)
		if err != nil {
			return nil, objstore.Reply{}, s.mapped("get", key, err)
		}
		r := objstore.Reply{
			ContentRange:    head.Get("Content-Range"),
			ContentLength:   -1,
			ContentEncoding: head.Get("Content-Encoding"),
		}
		if size, err := strconv.ParseInt(head.Get("Content-Length"), 10, 64); err == nil {
			r.ContentLength = size
		}
		return body, r, nil
	})
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
