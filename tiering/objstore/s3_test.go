package objstore

import (
	"errors"
	"testing"
)

func TestReplyCheck(t *testing.T) {
	for _, c := range []struct {
		off, n int64
		Reply
		want int64 // -1 with bad: refused
		bad  error // nil: accepted; errAny: refused
	}{
		{0, -1, Reply{ContentLength: 10}, 10, nil},
		{0, -1, Reply{ContentLength: -1}, -1, nil},
		{0, 4, Reply{ContentRange: "bytes 0-3/10", ContentLength: 4}, 4, nil},
		{0, 4, Reply{ContentLength: 10}, 4, nil}, // the whole object begins with the range
		{0, 4, Reply{ContentLength: 3}, 0, errAny},
		{5, -1, Reply{ContentRange: "bytes 5-9/10"}, 5, nil},
		{5, -1, Reply{ContentRange: "bytes 5-9/*"}, 5, nil},
		{5, -1, Reply{ContentRange: "bytes 5-8/10"}, 0, errAny},
		{5, 3, Reply{ContentRange: "bytes 5-7/10", ContentEncoding: "identity"}, 3, nil},
		{5, 3, Reply{ContentRange: "bytes 5-6/10"}, 3, nil}, // the stream will end early, and say so
		{5, 3, Reply{ContentRange: "bytes 5-6/7"}, 0, ErrRange},
		{5, 3, Reply{ContentRange: "bytes 4-6/10"}, 0, errAny},
		{5, 3, Reply{ContentRange: "bytes 5-4/10"}, 0, errAny},
		{5, 3, Reply{ContentRange: "5-7/10"}, 0, errAny},
		{5, 3, Reply{ContentLength: 10}, 0, errAny},
		{5, 3, Reply{ContentRange: "bytes 5-7/10", ContentEncoding: "gzip"}, 0, errAny},
	} {
		got, err := c.check(c.off, c.n)
		switch {
		case c.bad == nil && (err != nil || got != c.want), c.bad != nil && err == nil:
			t.Errorf("%d bytes from %d, %+v: %d, %v; want %d, %v", c.n, c.off, c.Reply, got, err, c.want, c.bad)
		case c.bad != nil && errors.Is(err, ErrRange) != (c.bad == ErrRange):
			t.Errorf("%d bytes from %d, %+v: %v, want %v", c.n, c.off, c.Reply, err, c.bad)
		}
	}
}

var errAny = errors.New("refused")

// FuzzReply: whatever a store says of a range, no more is taken than was asked
// for, and only from where it was.
func FuzzReply(f *testing.F) {
	f.Add("bytes 5-7/10", "", int64(3), int64(5), int64(3))
	f.Add("bytes 5-9223372036854775807/*", "", int64(-1), int64(5), int64(-1))
	f.Add("bytes -5-7/10", "gzip", int64(0), int64(0), int64(1))
	f.Fuzz(func(t *testing.T, contentRange, encoding string, length, off, n int64) {
		if off < 0 || n == 0 || n < -1 {
			return
		}
		got, err := Reply{ContentRange: contentRange, ContentLength: length, ContentEncoding: encoding}.check(off, n)
		if err == nil && n > 0 && got != n {
			t.Errorf("%d bytes from %d, %q: takes %d", n, off, contentRange, got)
		}
		if err == nil && off > 0 && n < 0 && got <= 0 {
			t.Errorf("all from %d, %q: takes %d", off, contentRange, got)
		}
	})
}

func TestS3Meaning(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   error
	}{
		{404, "NoSuchKey", ErrNotFound},
		{404, "", ErrNotFound},
		{404, "NoSuchBucket", ErrNoBucket},
		{400, "InvalidBucketName", ErrBucketName},
		{409, "BucketAlreadyExists", ErrBucketName},
		{404, "NoSuchUpload", nil},
		{412, "", ErrExists},
		{409, "ConditionalRequestConflict", ErrConflict},
		{416, "InvalidRange", ErrRange},
		{403, "AccessDenied", ErrDenied},
		{403, "InvalidAccessKeyId", ErrDenied},
		{403, "RequestTimeTooSkewed", nil}, // an outage (D19)
		{400, "ExpiredToken", nil},
		{501, "", errors.ErrUnsupported},
		{500, "InternalError", nil},
		{503, "SlowDown", nil},
	} {
		if got := S3Meaning(c.status, c.code); got != c.want {
			t.Errorf("%d %s means %v, want %v", c.status, c.code, got, c.want)
		}
	}
}

func TestRangeHeader(t *testing.T) {
	for _, c := range []struct {
		off, n int64
		want   string
	}{{0, -1, ""}, {5, -1, "bytes=5-"}, {0, 1, "bytes=0-0"}, {5, 10, "bytes=5-14"}} {
		if got := rangeHeader(c.off, c.n); got != c.want {
			t.Errorf("rangeHeader(%d, %d) = %q, want %q", c.off, c.n, got, c.want)
		}
	}
}
