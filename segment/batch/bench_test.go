package batch

import (
	"fmt"
	"testing"
)

// logLike makes a batch of about size bytes, before compression, of records
// that look like log lines.
func logLike(b *testing.B, codec Codec, size int) Batch {
	b.Helper()
	w := NewBuilder(Spec{Codec: codec})
	for i := 0; w.Size() < size; i++ {
		w.Add(int64(i), fmt.Appendf(nil, "user-%d", i*7919%1000),
			fmt.Appendf(nil, `{"level":"info","ts":%d,"path":"/v1/orders/%d","status":200,"took_us":%d}`, 1700000000+i, i*31, i*7%5000))
	}
	batch, err := w.Build()
	if err != nil {
		b.Fatal(err)
	}
	return batch
}

// alike makes a batch of at most size bytes of records whose values have as many
// bytes as value says, a millisecond apart.
func alike(b *testing.B, size int, value func(i int) int) Batch {
	b.Helper()
	w := NewBuilder(Spec{})
	for i := 0; w.Size()+value(i)+20 <= size; i++ {
		w.Add(int64(1700000000000+i), nil, make([]byte, value(i)))
	}
	batch, err := w.Build()
	if err != nil {
		b.Fatal(err)
	}
	return batch
}

var sizes = []int{16 << 10, 1 << 20}

func name(codec Codec, size int) string { return fmt.Sprintf("%v/%dKiB", codec, size>>10) }

func BenchmarkVerifyProduced(b *testing.B) {
	for _, size := range sizes {
		for _, c := range []struct {
			name  string
			batch Batch
		}{
			{"records of 100 B", alike(b, size, func(int) int { return 100 })},
			{"records of 70 to 170 B", alike(b, size, func(i int) int { return 70 + i*7919%101 })},
			{"records of 1 KiB", alike(b, size, func(int) int { return 1 << 10 })},
			{"log lines", logLike(b, None, size)},
		} {
			b.Run(fmt.Sprintf("%s/%s", name(None, size), c.name), func(b *testing.B) {
				b.SetBytes(int64(len(c.batch)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := VerifyProduced(c.batch); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkAppendPath is all that an append does to a batch in memory.
func BenchmarkAppendPath(b *testing.B) {
	p := []byte(logLike(b, None, 16<<10))
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		batch, _, err := Next(p)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := VerifyProduced(batch); err != nil {
			b.Fatal(err)
		}
		batch.SetBaseOffset(42)
		batch.SetLeaderEpoch(7)
	}
}

func BenchmarkWalk(b *testing.B) {
	for _, codec := range codecs {
		for _, size := range sizes {
			b.Run(name(codec, size), func(b *testing.B) {
				batch := logLike(b, codec, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					if err := Walk(batch, Limit{}, func(Record) error { n++; return nil }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkRecompress(b *testing.B) {
	for _, codec := range codecs {
		b.Run(name(codec, 16<<10), func(b *testing.B) {
			batch := logLike(b, None, 16<<10)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Recompress(batch, codec, 0, Limit{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
