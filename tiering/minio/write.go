package minio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"firn/tiering/objstore"
)

// crcHeader carries the checksum that the store compares with what it received.
const crcHeader = "x-amz-checksum-crc32c"

func (s *Store) Put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	switch {
	case size < 0:
		return fmt.Errorf("minio: put %s: negative size %d", key, size)
	case size > objstore.SinglePut:
		return s.putParts(ctx, key, body, size)
	}
	return s.mapped("put", key, s.put(ctx, s.client, key, body, size, minio.PutObjectOptions{}))
}

func (s *Store) Create(ctx context.Context, key string, value []byte) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	return s.putIf(ctx, "create", key, value, o)
}

func (s *Store) Swap(ctx context.Context, key string, old, value []byte) error {
	return objstore.S3Swap(key, old, func() (io.ReadCloser, string, error) {
		body, info, _, err := s.client.GetObject(ctx, s.bucket, s.prefix+key, minio.GetObjectOptions{})
		if err != nil {
			return nil, "", s.mapped("swap", key, err)
		}
		return body, info.ETag, nil
	}, func(tag string) error {
		var o minio.PutObjectOptions
		o.SetMatchETag(tag)
		return s.putIf(ctx, "swap", key, value, o)
	})
}

func (s *Store) putIf(ctx context.Context, op, key string, value []byte, o minio.PutObjectOptions) error {
	return objstore.S3PutIf(ctx, func() error {
		return s.mapped(op, key, s.put(ctx, s.single, key, bytes.NewReader(value), int64(len(value)), o))
	})
}

// put sends one PUT. The body can be sought, so a repetition reads it again.
func (s *Store) put(ctx context.Context, client minio.Core, key string, body io.ReaderAt, size int64, o minio.PutObjectOptions) error {
	if s.unsigned {
		sum, err := objstore.S3Checksum(body, size)
		if err != nil {
			return err
		}
		o.DisableContentSha256 = true
		o.UserMetadata = map[string]string{crcHeader: sum}
	}
	_, err := client.PutObject(ctx, s.bucket, s.prefix+key, io.NewSectionReader(body, 0, size), size, "", "", o)
	return err
}

// putParts uploads an object in parts, all of it or nothing.
func (s *Store) putParts(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	full := s.prefix + key
	var o minio.PutObjectOptions
	if s.unsigned {
		o.UserMetadata = map[string]string{"X-Amz-Checksum-Algorithm": "CRC32C"}
	}
	upload, err := s.client.NewMultipartUpload(ctx, s.bucket, full, o)
	if err != nil {
		return s.mapped("begin the upload of", key, err)
	}
	parts := make([]minio.CompletePart, objstore.NumParts(size))
	err = objstore.Parts(ctx, body, size, func(ctx context.Context, num int, part *io.SectionReader) error {
		p, err := s.putPart(ctx, full, upload, num, part)
		parts[num-1] = p
		return s.mapped(fmt.Sprintf("put part %d of", num), key, err)
	})
	if err == nil {
		_, err = s.client.CompleteMultipartUpload(ctx, s.bucket, full, upload, parts, minio.PutObjectOptions{})
		err = s.mapped("finish the upload of", key, err)
	}
	if err != nil {
		s.abort(ctx, full, upload)
	}
	return err
}

func (s *Store) putPart(ctx context.Context, full, upload string, num int, part *io.SectionReader) (minio.CompletePart, error) {
	var o minio.PutObjectPartOptions
	c := minio.CompletePart{PartNumber: num}
	if s.unsigned {
		sum, err := objstore.S3Checksum(part, part.Size())
		if err != nil {
			return c, err
		}
		o.DisableContentSha256 = true
		o.CustomHeader = http.Header{crcHeader: {sum}}
		c.ChecksumCRC32C = sum
	}
	p, err := s.client.PutObjectPart(ctx, s.bucket, full, upload, num, part, part.Size(), o)
	c.ETag = p.ETag
	return c, err
}

// abort removes the parts of a failed upload; the caller's ctx may be over.
func (s *Store) abort(ctx context.Context, full, upload string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return s.client.AbortMultipartUpload(ctx, s.bucket, full, upload)
}

func (s *Store) Delete(ctx context.Context, key string) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	err := s.mapped("delete", key, s.client.RemoveObject(ctx, s.bucket, s.prefix+key, minio.RemoveObjectOptions{}))
	if errors.Is(err, objstore.ErrNotFound) {
		return nil // some stores answer so
	}
	return err
}

// AbortIncomplete finds nothing on a MinIO, which lists unfinished uploads only
// by their whole key, and removes them by itself after a day.
func (s *Store) AbortIncomplete(ctx context.Context, prefix string, keep func(key string) bool) (int, error) {
	n := 0
	list, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing
	for u := range s.client.ListIncompleteUploads(list, s.bucket, s.prefix+prefix, true) {
		if u.Err != nil {
			return n, s.mapped("list uploads of", prefix, u.Err)
		}
		key, ok := strings.CutPrefix(u.Key, s.prefix)
		if !ok || keep(key) {
			continue
		}
		if err := s.abort(ctx, u.Key, u.UploadID); err != nil {
			return n, s.mapped("abort the upload of", key, err)
		}
		n++
	}
	return n, nil
}
