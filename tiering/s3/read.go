package s3

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"firn/tiering/objstore"
)

func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	return objstore.S3GetRange(key, off, n, func(header string) (io.ReadCloser, objstore.Reply, error) {
		in := &s3.GetObjectInput{Bucket: &s.bucket, Key: s.full(key)}
		if header != "" {
			in.Range = &header
		}
		out, err := s.client.GetObject(ctx, in)
		if err != nil {
			return nil, objstore.Reply{}, s.mapped("get", key, err)
		}
		r := objstore.Reply{
			ContentRange:    aws.ToString(out.ContentRange),
			ContentLength:   -1,
			ContentEncoding: aws.ToString(out.ContentEncoding),
		}
		if out.ContentLength != nil {
			r.ContentLength = *out.ContentLength
		}
		return out.Body, r, nil
	})
}

func (s *Store) List(ctx context.Context, prefix string, yield func(objstore.Object) error) error {
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: s.full(prefix)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return s.mapped("list", prefix, err)
		}
		for _, o := range page.Contents {
			key, ok := strings.CutPrefix(aws.ToString(o.Key), s.prefix)
			if !ok || key == "" || strings.HasSuffix(key, "/") {
				continue // a console's "folder" is no object of ours
			}
			err := yield(objstore.Object{Key: key, Size: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified).UnixMilli()})
			if err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (s *Store) Folders(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: s.full(prefix), Delimiter: aws.String("/")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, s.mapped("list", prefix, err)
		}
		for _, p := range page.CommonPrefixes {
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(aws.ToString(p.Prefix), s.prefix+prefix), "/"))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (s *Store) AbortIncomplete(ctx context.Context, prefix string, keep func(key string) bool) (int, error) {
	n := 0
	pages := s3.NewListMultipartUploadsPaginator(s.client, &s3.ListMultipartUploadsInput{Bucket: &s.bucket, Prefix: s.full(prefix)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return n, s.mapped("list uploads of", prefix, err)
		}
		for _, u := range page.Uploads {
			key, ok := strings.CutPrefix(aws.ToString(u.Key), s.prefix)
			if !ok || keep(key) {
				continue
			}
			if err := s.abort(ctx, u.Key, u.UploadId); err != nil {
				return n, s.mapped("abort the upload of", key, err)
			}
			n++
		}
	}
	return n, nil
}
