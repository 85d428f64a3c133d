package objstore

import (
	"context"
	"errors"
	"io"
)

// Store keeps bytes by key: an object store, a directory, or memory. Keys are
// slash-separated and relative to the prefix that the store was opened with.
// Objects are immutable to us: no key is written twice (T2), but for Create's
// one user. No key is the directory of another. Implementations pass objstoretest.Run.
type Store interface {
	// Put stores size bytes of body under key. body may be read more than once
	// (it is a ReaderAt), so a retry needs no buffer. An existing object is
	// replaced. When Put returns nil the object is durable and readable.
	Put(ctx context.Context, key string, body io.ReaderAt, size int64) error
	// Create stores value under key only if the key is absent, atomically;
	// ErrExists otherwise. After any other error the outcome is unknown: it is
	// not tried again within, so a second Create may find the first's value.
	Create(ctx context.Context, key string, value []byte) error
	// GetRange returns a stream of n bytes of key from off; n < 0 means to the
	// end. ErrNotFound if there is no such key. The stream fails with
	// io.ErrUnexpectedEOF if the store sends fewer bytes than n, and never
	// yields more. The caller closes it.
	GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)
	// List calls yield for every object whose key starts with prefix, in key
	// order, until yield returns an error, which List returns.
	List(ctx context.Context, prefix string, yield func(Object) error) error
	// Delete removes key; a missing key is no error.
	Delete(ctx context.Context, key string) error
}

// Object is what List tells of one object.
type Object struct {
	Key  string
	Size int64
	// ModTime is the store's time of the write, in Unix milliseconds. It only
	// delays deletions; no decision rests on it.
	ModTime int64
}

// Errors that callers branch on. Everything else is an outage: try again later.
var (
	ErrNotFound = errors.New("objstore: no such object")
	ErrExists   = errors.New("objstore: object exists")
	// ErrRange: the range lies outside the object.
	ErrRange = errors.New("objstore: range outside the object")
	// ErrDenied: the store refuses this operation for good (credentials, policy).
	ErrDenied = errors.New("objstore: denied")
)
