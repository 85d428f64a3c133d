package wire

import "encoding/binary"

// Keys of the requests that this package parses, and of the one whose headers
// are an exception.
const (
	KeyProduce     = 0
	KeyFetch       = 1
	KeyApiVersions = 18
)

// RequestHeader is the header of a request, up to its tags.
type RequestHeader struct {
	Key         int16
	Version     int16
	Correlation int32
	ClientID    []byte // nil: null
}

// ParseHeader reads the header of the request in frame. Flexible versions go on
// with tags, which rest still has; see [SkipHeaderTags].
func ParseHeader(frame []byte) (h RequestHeader, rest []byte, err error) {
	r := NewReader(frame, false)
	h.Key = r.Int16()
	h.Version = r.Int16()
	h.Correlation = r.Int32()
	// A string of the old kind in flexible versions too: a broker must be able to
	// read the header of an ApiVersions request that it doesn't know.
	h.ClientID = r.NullableString()
	return h, r.b, r.err
}

// SkipHeaderTags takes the tags of a flexible header off the front of rest.
func SkipHeaderTags(rest []byte) ([]byte, error) {
	r := NewReader(rest, true)
	r.SkipTags()
	return r.b, r.err
}

// BeginResponse appends a frame's head with a length of zero, which EndResponse
// fills in.
func BeginResponse(dst []byte, correlation int32, tags bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlation))
	if tags {
		dst = append(dst, 0)
	}
	return dst
}

// EndResponse sets the length of the frame that begins at start and ends with
// dst and extra bytes that are written after it.
func EndResponse(dst []byte, start, extra int) {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4+extra))
}
