package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// stream decompresses batches, one at a time. Its decoders are made when first
// needed and kept.
type stream struct {
	in     bytes.Reader
	buf    []byte // of the window
	gzip   *gzip.Reader
	lz4    *lz4.Reader
	zstd   *zstd.Decoder
	snappy snappyReader
}

// open makes p, compressed by codec, readable. What a codec allocates before it
// has decompressed anything is bounded by limit or by its own window.
func (s *stream) open(codec Codec, p []byte, limit int) (io.Reader, error) {
	s.in.Reset(p)
	switch codec {
	case Gzip:
		return s.openGzip()
	case Snappy:
		s.snappy.reset(p, limit)
		return &s.snappy, nil
	case LZ4:
		return s.openLZ4(p)
	case Zstd:
		return s.openZstd(p, limit)
	}
	return nil, ErrUnknownCodec
}

// free gives s back.
func (s *stream) free() {
	s.in.Reset(nil)
	s.snappy.reset(nil, 0)
	if len(s.buf) > keepBuffer {
		s.buf = nil
	}
	streams.Put(s)
}

func (s *stream) openGzip() (io.Reader, error) {
	var err error
	if s.gzip == nil {
		s.gzip, err = gzip.NewReader(&s.in)
	} else {
		err = s.gzip.Reset(&s.in)
	}
	if err != nil {
		s.gzip = nil
		return nil, codecError(Gzip, unexpectedEOF(err))
	}
	return s.gzip, nil
}

// lz4Magic begins the frames that Kafka knows. The decoder also takes legacy
// frames, at 16 MiB of buffers each.
const lz4Magic = 0x184D2204

func (s *stream) openLZ4(p []byte) (io.Reader, error) {
	if len(p) < 4 || binary.LittleEndian.Uint32(p) != lz4Magic {
		return nil, fmt.Errorf("%w: lz4: no frame", ErrCorrupt)
	}
	if s.lz4 == nil {
		s.lz4 = lz4.NewReader(&s.in)
	} else {
		s.lz4.Reset(&s.in)
	}
	return s.lz4, nil
}

// zstdWindow is the largest window that is decompressed as a stream, which
// costs its size at once: that of level 19. Levels 20 to 22 announce up to
// 128 MiB, however little they compress.
const (
	zstdWindow     = 8 << 20
	zstdMaxWindow  = 128 << 20
	zstdWindowByte = 0x68 // zstdWindow in a frame's header
	zstdWindowAt   = 5    // where it stands there, behind magic and descriptor
)

func (s *stream) openZstd(p []byte, limit int) (io.Reader, error) {
	var h zstd.Header
	if err := h.Decode(p); err != nil {
		return nil, codecError(Zstd, unexpectedEOF(err))
	}
	if h.HasFCS && h.FrameContentSize > uint64(limit) {
		return nil, fmt.Errorf("%w: zstd: announces %d bytes", ErrTooLarge, h.FrameContentSize)
	}
	var src io.Reader = &s.in
	if h.WindowSize > zstdWindow || h.SingleSegment && h.FrameContentSize > zstdWindow {
		switch {
		case h.WindowSize > zstdMaxWindow:
			return nil, fmt.Errorf("%w: zstd: window of %d bytes", ErrTooLarge, h.WindowSize)
		case h.HasFCS:
			return wholeZstd(p, int(h.FrameContentSize))
		}
		// As long as the content is smaller than our window, it needs none
		// larger; where it is not, a reference that reaches too far is an error.
		head := bytes.Clone(p[:zstdWindowAt+1])
		head[zstdWindowAt] = zstdWindowByte
		s.in.Reset(p[len(head):])
		src = io.MultiReader(bytes.NewReader(head), &s.in)
	}
	var err error
	if s.zstd == nil {
		s.zstd, err = zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(zstdWindow), zstd.WithDecodeBuffersBelow(0))
	} else {
		err = s.zstd.Reset(src)
	}
	if err != nil {
		s.zstd = nil
		return nil, codecError(Zstd, err)
	}
	return zstdReader{s.zstd}, nil
}

// wholeZstd decompresses p into size bytes, which are its window too.
func wholeZstd(p []byte, size int) (io.Reader, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(zstdMaxWindow), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	out, err := d.DecodeAll(p, make([]byte, 0, size))
	if err != nil {
		return nil, zstdError(err)
	}
	return bytes.NewReader(out), nil
}

// zstdReader tells a window that is too wide from damage.
type zstdReader struct{ *zstd.Decoder }

func (r zstdReader) Read(p []byte) (int, error) {
	n, err := r.Decoder.Read(p)
	if err != nil && err != io.EOF {
		err = zstdError(err)
	}
	return n, err
}

func zstdError(err error) error {
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return codecError(Zstd, err)
}

// unexpectedEOF keeps a header that is cut off from looking like a stream's end.
func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
