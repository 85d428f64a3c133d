// Package minio keeps objects in the bucket of a MinIO, or of another store that
// speaks S3, through minio-go. It implements objstore.Store and knows nothing of
// what the objects mean; it is the only importer of minio-go but for tests.
//
// It differs from tiering/s3 in the client underneath, not in what it does: one
// PUT up to 64 MiB, parts of 16 MiB above, read straight from the caller's
// ReaderAt; CRC32C in place of a signed payload over TLS, chunks signed as they
// are read over plain HTTP; three tries, but one for what must not be repeated.
//
// Of minio-go it uses the calls that map to one request each: its object reader
// and its own multipart upload decide more than we want decided, such as when a
// request is sent and what an early end of a reply means.
package minio
