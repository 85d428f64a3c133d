package batch

import "errors"

// ErrTooLarge: the records of a batch decompress to more than the Limit.
var ErrTooLarge = errors.New("batch: decompresses to more than allowed")

const (
	defaultLimitBytes = 64 << 20
	defaultLimitRatio = 2048 // zstd alone gets there: gzip ends at 1032, lz4 at 255, snappy at 22
	// ratioFreeBytes of output are not measured by ratio: a batch of a few
	// bytes may well be a megabyte of zeros.
	ratioFreeBytes = 8 << 20
)

// Limit bounds what a batch may decompress to. The zero value is the default.
type Limit struct {
	// Bytes is the most bytes of output; 64 MiB by default. Callers who know
	// max.message.bytes pass a multiple of it where that is more.
	Bytes int
	// Ratio is the most bytes of output per byte of input, once the output
	// exceeds 8 MiB; 2048 by default.
	Ratio int
}

// of is how many bytes n compressed bytes may become.
func (l Limit) of(n int) int {
	if l.Bytes <= 0 {
		l.Bytes = defaultLimitBytes
	}
	if l.Ratio <= 0 {
		l.Ratio = defaultLimitRatio
	}
	return int(min(int64(l.Bytes), max(ratioFreeBytes, int64(n)*int64(l.Ratio))))
}
