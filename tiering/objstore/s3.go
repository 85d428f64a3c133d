package objstore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What the clients of S3's protocol share: the meaning of its errors and of its
// replies. Each client library has types of its own for both.

// ErrNoBucket: the bucket does not exist. It is not ErrNotFound: no object of
// ours is lost by a wrong URL.
var ErrNoBucket = errors.New("objstore: no such bucket")

// ErrBucketName: the store gives nobody, or not us, a bucket of this name.
var ErrBucketName = errors.New("objstore: the bucket's name is refused or taken")

// ErrConflict: another conditional write of the key was under way, and this one
// was not made.
var ErrConflict = errors.New("objstore: conflicting write under way")

// S3Meaning is what an error code and HTTP status of S3 mean to callers of a
// Store; nil for an outage. Credentials that have expired and a clock that
// differs are outages (D19): they pass without anybody changing a policy.
func S3Meaning(status int, code string) error {
	switch code {
	case "NoSuchBucket":
		return ErrNoBucket
	case "InvalidBucketName", "BucketAlreadyExists":
		return ErrBucketName
	case "NoSuchKey", "NoSuchVersion":
		return ErrNotFound
	case "InvalidRange":
		return ErrRange
	case "PreconditionFailed":
		return ErrExists
	case "ConditionalRequestConflict", "OperationAborted":
		return ErrConflict
	case "NotImplemented", "MethodNotAllowed":
		return errors.ErrUnsupported
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestTimeTooSkewed", "RequestExpired",
		"NoSuchUpload", "SlowDown", "ServerNotInitialized", "XMinioServerNotInitialized":
		return nil
	}
	switch status {
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusRequestedRangeNotSatisfiable:
		return ErrRange
	case http.StatusPreconditionFailed:
		return ErrExists
	case http.StatusConflict:
		return ErrConflict
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return errors.ErrUnsupported
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrDenied
	}
	return nil
}

// S3GetRange is GetRange of a client of S3. get sends one GET with that Range
// header, or without one if it is "".
func S3GetRange(key string, off, n int64, get func(header string) (io.ReadCloser, Reply, error)) (io.ReadCloser, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, fmt.Errorf("objstore: get %s: from %d: %w", key, off, ErrRange)
	}
	if n == 0 { // S3 has no such range: a byte tells whether the object is there
		r, err := S3GetRange(key, 0, 1, get)
		switch {
		case err == nil:
			r.Close()
		case !errors.Is(err, ErrRange):
			return nil, err
		}
		return http.NoBody, nil
	}
	body, reply, err := get(rangeHeader(off, n))
	if err != nil {
		return nil, err
	}
	if n, err = reply.check(off, n); err != nil {
		body.Close()
		return nil, fmt.Errorf("objstore: get %s: %w", key, err)
	}
	return Exact(body, n), nil
}

// S3Swap is Swap of a client of S3. get reads the object and its tag; put replaces
// the object if it has that tag.
func S3Swap(key string, old []byte, get func() (body io.ReadCloser, tag string, err error), put func(tag string) error) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	body, tag, err := get()
	if err != nil {
		return err
	}
	defer body.Close()
	have, err := io.ReadAll(io.LimitReader(body, MaxSwap+1))
	if err != nil {
		return fmt.Errorf("objstore: swap %s: %w", key, err)
	}
	if !bytes.Equal(have, old) {
		return fmt.Errorf("objstore: swap %s: %w", key, ErrChanged)
	}
	if err := put(tag); !errors.Is(err, ErrExists) {
		return err
	}
	return fmt.Errorf("objstore: swap %s: %w", key, ErrChanged)
}

// conflicts is how often a conditional write is tried against others.
const conflicts = 5

// S3PutIf makes a conditional write. put sends it once, for the answer to a
// repetition would not tell who wrote; but a conflict was surely not written.
func S3PutIf(ctx context.Context, put func() error) error {
	for try := 1; ; try++ {
		err := put()
		if !errors.Is(err, ErrConflict) || try == conflicts {
			return err
		}
		if err := sleep(ctx, time.Duration(try)*50*time.Millisecond); err != nil {
			return err
		}
	}
}

// S3Checksum is the CRC32C of a body as S3 wants it.
func S3Checksum(body io.ReaderAt, size int64) (string, error) {
	crc, err := CRC32C(body, size)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc)), nil
}

// rangeHeader asks for n bytes from off; "" for the whole object.
func rangeHeader(off, n int64) string {
	switch {
	case off == 0 && n < 0:
		return ""
	case n < 0:
		return fmt.Sprintf("bytes=%d-", off)
	}
	return fmt.Sprintf("bytes=%d-%d", off, off+n-1)
}

// Reply is the head of the answer to a range GET.
type Reply struct {
	ContentRange    string
	ContentLength   int64 // -1 if unknown
	ContentEncoding string
}

// check tells how many bytes to take from the stream of a reply to n bytes from
// off, -1 for all there are. It refuses the reply that is not what was asked
// for (D16): another range, the whole object in place of the middle of it, a
// body that somebody on the way has compressed.
func (r Reply) check(off, n int64) (int64, error) {
	switch strings.ToLower(r.ContentEncoding) {
	case "", "identity", "aws-chunked":
	default:
		return 0, fmt.Errorf("reply is encoded as %q on the way", r.ContentEncoding)
	}
	if off == 0 && n < 0 {
		return r.ContentLength, nil
	}
	if r.ContentRange == "" {
		if off == 0 && (r.ContentLength < 0 || r.ContentLength >= n) {
			return n, nil // the whole object begins with the range
		}
		return 0, fmt.Errorf("store ignored the range: it sent the whole object")
	}
	first, last, total, ok := parseContentRange(r.ContentRange)
	if !ok {
		return 0, fmt.Errorf("unreadable Content-Range %q", r.ContentRange)
	}
	toEnd := total == last+1
	got := last - first + 1
	switch {
	case first != off || got <= 0:
		return 0, fmt.Errorf("asked for bytes from %d, store sent %q", off, r.ContentRange)
	case n < 0 && !toEnd && total >= 0:
		return 0, fmt.Errorf("asked for all bytes from %d, store sent %q", off, r.ContentRange)
	case n < 0:
		return got, nil
	case got < n && toEnd:
		return 0, fmt.Errorf("asked for %d bytes from %d, there are %d in all: %w", n, off, total, ErrRange)
	}
	return n, nil // should it send fewer, the stream ends in an error
}

// parseContentRange reads "bytes 5-7/10"; total is -1 for "*".
func parseContentRange(s string) (first, last, total int64, ok bool) {
	s, unit := strings.CutPrefix(s, "bytes ")
	span, size, slash := strings.Cut(s, "/")
	from, to, dash := strings.Cut(span, "-")
	first, err1 := strconv.ParseInt(from, 10, 64)
	last, err2 := strconv.ParseInt(to, 10, 64)
	total, err3 := int64(-1), error(nil)
	if size != "*" {
		total, err3 = strconv.ParseInt(size, 10, 64)
	}
	ok = unit && slash && dash && errors.Join(err1, err2, err3) == nil && first >= 0 && last >= first && last < math.MaxInt64 && total >= -1
	return first, last, total, ok
}

// Aborter is what a Store has that uploads large objects in parts: a process
// that dies leaves parts behind, which cost and which no list shows (D18).
type Aborter interface {
	// AbortIncomplete ends the unfinished uploads of keys that start with
	// prefix, but for those that keep wants kept, and returns how many.
	AbortIncomplete(ctx context.Context, prefix string, keep func(key string) bool) (int, error)
}

// AbortIncomplete is s.AbortIncomplete where s has it.
func AbortIncomplete(ctx context.Context, s Store, prefix string, keep func(key string) bool) (int, error) {
	if a, ok := s.(Aborter); ok {
		return a.AbortIncomplete(ctx, prefix, keep)
	}
	return 0, nil
}
