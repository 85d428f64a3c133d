package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// resetWriter is what the compressing writers have in common.
type resetWriter interface {
	io.WriteCloser
	Reset(io.Writer)
}

// compressor is a codec at a level, as which writers are kept.
type compressor struct {
	codec Codec
	level int
}

// writers keeps compressors' writers, by compressor. It is a cache: nothing is
// ever said through it. Levels are few, see effective.
var writers sync.Map // compressor → *sync.Pool of resetWriter

// newCompressor maps a level as Kafka's compression.*.level has it to one that
// our libraries have. 0 is the codec's default.
func newCompressor(codec Codec, level int) (compressor, error) {
	c := compressor{codec: codec}
	switch codec {
	case Gzip:
		c.level = gzip.DefaultCompression
		if level > 0 {
			c.level = min(level, gzip.BestCompression)
		}
	case LZ4:
		// Kafka's 9 is its default and the fast method; 1 to 17 else the thorough one.
		if level > 0 && level != 9 {
			c.level = min(level, 9)
		}
	case Zstd:
		c.level = int(zstd.SpeedDefault)
		if level != 0 {
			c.level = int(zstd.EncoderLevelFromZstd(level))
		}
	case None, Snappy:
	default:
		return c, fmt.Errorf("%w: %v", ErrUnknownCodec, codec)
	}
	return c, nil
}

// compress calls write with a writer whose input goes to dst, compressed.
func (c compressor) compress(dst *bytes.Buffer, write func(io.Writer) error) error {
	if c.codec == None {
		return write(dst)
	}
	pool, ok := writers.Load(c)
	if !ok {
		pool, _ = writers.LoadOrStore(c, new(sync.Pool))
	}
	w, _ := pool.(*sync.Pool).Get().(resetWriter)
	if w == nil {
		var err error
		if w, err = c.newWriter(); err != nil {
			return err
		}
	}
	w.Reset(dst)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("batch: compress with %v: %w", c.codec, err)
	}
	pool.(*sync.Pool).Put(w)
	return nil
}

func (c compressor) newWriter() (resetWriter, error) {
	switch c.codec {
	case Gzip:
		return gzip.NewWriterLevel(nil, c.level)
	case Snappy:
		return &xerialWriter{}, nil
	case LZ4:
		w := lz4.NewWriter(nil)
		level := lz4.Fast
		if c.level > 0 {
			level = lz4.CompressionLevel(1 << (8 + c.level))
		}
		// As Java writes it: independent blocks of 64 KiB, no content checksum.
		return w, w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1),
			lz4.CompressionLevelOption(level))
	case Zstd:
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.EncoderLevel(c.level)),
			zstd.WithWindowSize(zstdEncodeWindow), zstd.WithZeroFrames(true))
	}
	panic("batch: no writer for " + c.codec.String())
}

// zstdEncodeWindow is that of the reference's default level.
const zstdEncodeWindow = 2 << 20

// xerialWriter writes snappy as Java does.
type xerialWriter struct {
	w   io.Writer
	buf []byte // at most a block
	out []byte
	err error
}

func (x *xerialWriter) Reset(w io.Writer) {
	x.w, x.buf, x.err = w, x.buf[:0], nil
	if w == nil {
		return
	}
	header := append([]byte{}, xerialMagic...)
	header = binary.BigEndian.AppendUint32(header, xerialVersion)
	header = binary.BigEndian.AppendUint32(header, xerialVersion)
	_, x.err = w.Write(header)
}

func (x *xerialWriter) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 && x.err == nil {
		n := min(xerialBlock-len(x.buf), len(p))
		x.buf = append(x.buf, p[:n]...)
		if p = p[n:]; len(x.buf) == xerialBlock {
			x.flush()
		}
	}
	return total - len(p), x.err
}

func (x *xerialWriter) Close() error {
	if len(x.buf) > 0 && x.err == nil {
		x.flush()
	}
	return x.err
}

func (x *xerialWriter) flush() {
	need := xerialLengthBytes + snappy.MaxEncodedLen(len(x.buf))
	if cap(x.out) < need {
		x.out = make([]byte, need)
	}
	x.out = x.out[:need]
	block := snappy.Encode(x.out[xerialLengthBytes:], x.buf)
	binary.BigEndian.PutUint32(x.out, uint32(len(block)))
	_, x.err = x.w.Write(x.out[:xerialLengthBytes+len(block)])
	x.buf = x.buf[:0]
}
