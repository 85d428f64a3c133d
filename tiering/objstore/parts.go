package objstore

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"
)

const (
	// SinglePut is the largest object that goes up in one request. Its body is
	// read straight from the caller's ReaderAt, so it costs no memory.
	SinglePut = 64 << 20
	// PartBytes is the size of a part of a larger one.
	PartBytes = 16 << 20
	// PartsInFlight is how many parts of an object go up at a time.
	PartsInFlight = 4
)

// Parts cuts size bytes of body into parts of PartBytes and calls upload for
// each, at most PartsInFlight at a time; num counts from 1. The first error
// ends the ctx of the others; Parts returns it when all have returned.
func Parts(ctx context.Context, body io.ReaderAt, size int64, upload func(ctx context.Context, num int, part *io.SectionReader) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(PartsInFlight)
	for num, off := 1, int64(0); off < size && ctx.Err() == nil; num, off = num+1, off+PartBytes {
		part := io.NewSectionReader(body, off, min(PartBytes, size-off))
		g.Go(func() error { return upload(ctx, num, part) })
	}
	return g.Wait()
}

// NumParts is the number of parts that Parts makes of size bytes.
func NumParts(size int64) int { return int((size + PartBytes - 1) / PartBytes) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunks are the buffers that checksums are computed through.
var chunks = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// CRC32C is the checksum of n bytes of body, which the store is to check what
// it received against: over TLS it takes the place of a signed payload.
func CRC32C(body io.ReaderAt, n int64) (uint32, error) {
	buf := chunks.Get().(*[256 << 10]byte)
	defer chunks.Put(buf)
	var crc uint32
	for off := int64(0); off < n; {
		b := buf[:min(int64(len(buf)), n-off)]
		k, err := body.ReadAt(b, off)
		if k < len(b) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, fmt.Errorf("objstore: read the body at %d of %d: %w", off, n, err)
		}
		crc = crc32.Update(crc, castagnoli, b)
		off += int64(k)
	}
	return crc, nil
}
