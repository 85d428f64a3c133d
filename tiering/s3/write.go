package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"firn/tiering/objstore"
)

func (s *Store) Put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	switch {
	case size < 0:
		return fmt.Errorf("s3: put %s: negative size %d", key, size)
	case size > objstore.SinglePut:
		return s.putParts(ctx, key, body, size)
	}
	return s.mapped("put", key, s.put(ctx, &s3.PutObjectInput{Key: s.full(key)}, body, size))
}

func (s *Store) Create(ctx context.Context, key string, value []byte) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	return s.putIf(ctx, "create", key, value, func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") })
}

func (s *Store) Swap(ctx context.Context, key string, old, value []byte) error {
	return objstore.S3Swap(key, old, func() (io.ReadCloser, string, error) {
		got, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: s.full(key)})
		if err != nil {
			return nil, "", s.mapped("swap", key, err)
		}
		return got.Body, aws.ToString(got.ETag), nil
	}, func(tag string) error {
		return s.putIf(ctx, "swap", key, value, func(in *s3.PutObjectInput) { in.IfMatch = &tag })
	})
}

func (s *Store) putIf(ctx context.Context, op, key string, value []byte, condition func(*s3.PutObjectInput)) error {
	return objstore.S3PutIf(ctx, func() error {
		in := &s3.PutObjectInput{Key: s.full(key)}
		condition(in)
		return s.mapped(op, key, s.put(ctx, in, bytes.NewReader(value), int64(len(value)), once))
	})
}

func (s *Store) put(ctx context.Context, in *s3.PutObjectInput, body io.ReaderAt, size int64, opts ...func(*s3.Options)) error {
	in.Bucket = &s.bucket
	in.Body = io.NewSectionReader(body, 0, size)
	in.ContentLength = &size
	in.ContentType = aws.String("application/octet-stream")
	if s.unsigned {
		sum, err := objstore.S3Checksum(body, size)
		if err != nil {
			return err
		}
		in.ChecksumCRC32C = &sum
		opts = append(opts, unsigned)
	}
	_, err := s.client.PutObject(ctx, in, opts...)
	return err
}

// putParts uploads an object in parts, all of it or nothing.
func (s *Store) putParts(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	in := &s3.CreateMultipartUploadInput{Bucket: &s.bucket, Key: s.full(key), ContentType: aws.String("application/octet-stream")}
	if s.unsigned {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	}
	up, err := s.client.CreateMultipartUpload(ctx, in)
	if err != nil {
		return s.mapped("begin the upload of", key, err)
	}
	parts := make([]types.CompletedPart, objstore.NumParts(size))
	err = objstore.Parts(ctx, body, size, func(ctx context.Context, num int, part *io.SectionReader) error {
		p, err := s.putPart(ctx, key, up.UploadId, int32(num), part)
		parts[num-1] = p
		return err
	})
	if err == nil {
		_, err = s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &s.bucket, Key: s.full(key), UploadId: up.UploadId,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
		})
		err = s.mapped("finish the upload of", key, err)
	}
	if err != nil {
		s.abort(ctx, s.full(key), up.UploadId)
	}
	return err
}

func (s *Store) putPart(ctx context.Context, key string, upload *string, num int32, part *io.SectionReader) (types.CompletedPart, error) {
	size := part.Size()
	in := &s3.UploadPartInput{Bucket: &s.bucket, Key: s.full(key), UploadId: upload, PartNumber: &num, Body: part, ContentLength: &size}
	var opts []func(*s3.Options)
	if s.unsigned {
		sum, err := objstore.S3Checksum(part, size)
		if err != nil {
			return types.CompletedPart{}, s.mapped("put", key, err)
		}
		in.ChecksumCRC32C = &sum
		opts = append(opts, unsigned)
	}
	out, err := s.client.UploadPart(ctx, in, opts...)
	if err != nil {
		return types.CompletedPart{}, s.mapped(fmt.Sprintf("put part %d of", num), key, err)
	}
	return types.CompletedPart{ETag: out.ETag, PartNumber: &num, ChecksumCRC32C: in.ChecksumCRC32C}, nil
}

// abort removes the parts of a failed upload; the caller's ctx may be over.
func (s *Store) abort(ctx context.Context, key, upload *string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: key, UploadId: upload})
	return err
}

func (s *Store) Delete(ctx context.Context, key string) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: s.full(key)})
	if err = s.mapped("delete", key, err); errors.Is(err, objstore.ErrNotFound) {
		return nil // some stores answer so
	}
	return err
}

// unsigned sends the payload without signing it; its CRC32C goes along.
func unsigned(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}

func (s *Store) full(key string) *string {
	k := s.prefix + key
	return &k
}
