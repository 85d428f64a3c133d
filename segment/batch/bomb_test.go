package batch

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// zeros yields n zeros: a record whose length says so and that never ends well.
func zeros(n int64) io.Reader {
	head := binary.AppendVarint(nil, n)
	return io.MultiReader(bytes.NewReader(head), io.LimitReader(zeroReader{}, n))
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// wrap makes a batch that says it holds one record, of compressed bytes p.
func wrap(codec Codec, p []byte) Batch {
	b := append(make(Batch, HeaderSize), p...)
	b[atMagic] = magicV2
	b = changed(b, atLength, u32(int32(len(b)-lengthOverhead))...)
	b = changed(b, atAttributes, u16(int16(codec))...)
	b = changed(b, atProducerID, u64(-1)...)
	return changed(b, atCount, u32(1)...)
}

func squeeze(t *testing.T, w io.WriteCloser, buf *bytes.Buffer, n int64) []byte {
	t.Helper()
	if _, err := io.Copy(struct{ io.Writer }{w}, zeros(n)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// zstdRLE is a frame of blocks that each say "128 KiB of this byte" in 4 bytes.
func zstdRLE(blocks int, window byte) []byte {
	p := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, window}
	for i := range blocks {
		h := uint32(128<<10)<<3 | 1<<1
		if i == blocks-1 {
			h |= 1
		}
		p = append(p, byte(h), byte(h>>8), byte(h>>16), 0)
	}
	return p
}

// xerial frames snappy blocks.
func xerial(blocks ...[]byte) []byte {
	p := append([]byte(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1)
	for _, b := range blocks {
		p = binary.BigEndian.AppendUint32(p, uint32(len(b)))
		p = append(p, b...)
	}
	return p
}

func TestBombsAreRefusedInBoundedMemory(t *testing.T) {
	const gib = 1 << 30
	const size = 24 << 20 // of those that are what they say: more than small allows
	small := Limit{Bytes: 16 << 20}
	var gz, lz, zs bytes.Buffer
	gw, _ := gzip.NewWriterLevel(&gz, gzip.BestCompression)
	lw := lz4.NewWriter(&lz)
	if err := lw.Apply(lz4.BlockSizeOption(lz4.Block4Mb)); err != nil {
		t.Fatal(err)
	}
	zw, _ := zstd.NewWriter(&zs)
	claim := binary.AppendUvarint(nil, 4<<30-1)
	block := snappy.Encode(nil, append(binary.AppendVarint(nil, gib), make([]byte, 64<<10)...))
	chain := xerial(append([][]byte{block}, slices.Repeat([][]byte{snappy.Encode(nil, make([]byte, 64<<10))}, 400)...)...)
	skippable := binary.LittleEndian.AppendUint32([]byte{0x50, 0x2a, 0x4d, 0x18}, 0xffffffff)
	claimedFrame := binary.LittleEndian.AppendUint64([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0}, 60<<20)
	for _, c := range []struct {
		name  string
		codec Codec
		p     []byte
		limit Limit
		want  error
	}{
		{"gzip", Gzip, squeeze(t, gw, &gz, size), small, ErrTooLarge},
		{"lz4", LZ4, squeeze(t, lw, &lz, size), small, ErrTooLarge},
		{"zstd", Zstd, squeeze(t, zw, &zs, size), small, ErrTooLarge},
		{"zstd of RLE blocks", Zstd, zstdRLE(10_000, 0x68), Limit{}, ErrInvalid}, // zeros are no records
		{"zstd of RLE blocks, widest window", Zstd, zstdRLE(10_000, 0x88), Limit{}, ErrInvalid},
		{"zstd that announces 128 MiB of window", Zstd, zstdRLE(1, 0x88), Limit{}, ErrInvalid},
		{"zstd that announces too wide a window", Zstd, zstdRLE(1, 0xa0), Limit{}, ErrTooLarge},
		{"zstd that announces 60 MiB of content", Zstd, append(claimedFrame, zstdRLE(1, 0)[6:]...), Limit{}, ErrTooLarge},
		{"zstd, a wide frame behind a narrow one", Zstd, append(squeezeSmall(t), zstdRLE(10_000, 0x88)...), Limit{}, ErrTooLarge},
		{"zstd, skippable", Zstd, skippable, Limit{}, ErrCorrupt},
		{"lz4, legacy", LZ4, []byte{0x02, 0x21, 0x4c, 0x18, 0xff, 0xff, 0xff, 0x7f}, Limit{}, ErrCorrupt},
		{"snappy that announces 4 GiB", Snappy, append(claim, 0), Limit{}, ErrCorrupt},
		{"snappy chunk that announces 4 GiB", Snappy, xerial(append(claim, 0)), Limit{}, ErrCorrupt},
		{"snappy chunk of 4 GiB", Snappy, append(xerial(), 0xff, 0xff, 0xff, 0xff), Limit{}, ErrCorrupt},
		{"snappy chain", Snappy, chain, small, ErrTooLarge},
		{"snappy chain of nothing", Snappy, xerial(slices.Repeat([][]byte{{0}}, 100_000)...), Limit{}, ErrInvalid},
		{"within the ratio, beyond the bytes", Gzip, gz.Bytes(), Limit{Bytes: 1 << 20}, ErrTooLarge},
		{"within the bytes, beyond the ratio", Zstd, zs.Bytes(), Limit{Bytes: 4 * gib, Ratio: 10}, ErrTooLarge},
	} {
		b := wrap(c.codec, c.p)
		// Once to fill the pools: what stays is counted too, but not here.
		err := Walk(b, c.limit, func(Record) error { return nil })
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := Walk(b, c.limit, func(Record) error { return nil }); err == nil {
			t.Errorf("%s: the second time it was accepted", c.name)
		}
		if _, err := Recompress(b, None, 0, c.limit); err == nil {
			t.Errorf("%s: recompressed", c.name)
		}
		runtime.ReadMemStats(&after)
		// One window, one buffer, each at most doubled, twice over.
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(2*(22<<20)+4*len(c.p)); got > most {
			t.Errorf("%s: %d bytes allocated for %d received, want at most %d", c.name, got, len(c.p), most)
		}
	}
}

// squeezeSmall is a zstd frame that begins a record of a gigabyte.
func squeezeSmall(t *testing.T) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return e.EncodeAll(binary.AppendVarint(nil, 1<<20), nil)
}

func TestLimitIsExact(t *testing.T) {
	for _, codec := range codecs[1:] {
		plain := build(t, Spec{}, 50)
		b := build(t, Spec{Codec: codec}, 50)
		n := len(plain.Records())
		if err := Walk(b, Limit{Bytes: n}, func(Record) error { return nil }); err != nil {
			t.Errorf("%v: %d bytes, as many as allowed: %v", codec, n, err)
		}
		if err := Walk(b, Limit{Bytes: n - 1}, func(Record) error { return nil }); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v: one byte too many: got %v", codec, err)
		}
	}
}

func TestLimitOf(t *testing.T) {
	for _, c := range []struct {
		l       Limit
		n, want int
	}{
		{Limit{}, 100, 8 << 20}, {Limit{}, 8 << 10, 16 << 20}, {Limit{}, 1 << 20, 64 << 20},
		{Limit{Bytes: 5}, 100, 5}, {Limit{Bytes: 1 << 30, Ratio: 1}, 9 << 20, 9 << 20},
	} {
		if got := c.l.of(c.n); got != c.want {
			t.Errorf("%+v of %d: got %d, want %d", c.l, c.n, got, c.want)
		}
	}
}
