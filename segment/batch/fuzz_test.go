package batch

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// seeds adds the batches of testdata.
func seeds(f *testing.F, add func(Batch)) {
	files, err := filepath.Glob("testdata/*.bin")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		p, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(p) < 10<<10 {
			add(Batch(p))
		}
	}
}

func FuzzNextAndVerify(f *testing.F) {
	seeds(f, func(b Batch) { f.Add([]byte(b)) })
	f.Add(make([]byte, HeaderSize))
	f.Fuzz(func(t *testing.T, p []byte) {
		for rest := p; len(rest) > 0; {
			b, after, err := Next(rest)
			if err != nil {
				if len(after) != len(rest) {
					t.Fatal("an error took bytes away")
				}
				return
			}
			if len(b) < HeaderSize || len(b)+len(after) != len(rest) {
				t.Fatalf("%d + %d of %d bytes", len(b), len(after), len(rest))
			}
			produced, stored := refusal(b), Verify(b)
			b.SetBaseOffset(0)
			if produced == nil && Verify(b) != nil {
				t.Fatalf("a batch that was accepted is not good once stamped: %v", Verify(b))
			}
			if stored == nil {
				_, _ = ParseMarker(b)
			}
			rest = after
		}
	})
}

// FuzzWalk gives arbitrary bytes to each codec as the records of a batch.
func FuzzWalk(f *testing.F) {
	seeds(f, func(b Batch) { f.Add(byte(b.Codec()), b.Count(), b.LastOffsetDelta(), []byte(b.Records())) })
	f.Add(byte(Snappy), int32(1), int32(0), xerial([]byte{0}, []byte{0}))
	f.Add(byte(Zstd), int32(1), int32(0), zstdRLE(3, 0x88))
	f.Fuzz(func(t *testing.T, codec byte, count, delta int32, p []byte) {
		const limit = 1 << 20
		b := changed(wrap(Codec(codec%8), p), atCount, u32(count)...)
		b = changed(b, atLastOffsetDelta, u32(delta)...)
		n, size, last := int32(0), 0, int64(-1)
		err := Walk(b, Limit{Bytes: limit}, func(r Record) error {
			n++
			size += len(r.raw)
			headers := 0
			for k := range r.Headers() {
				if k == nil {
					t.Fatal("null header key")
				}
				headers++
			}
			if headers != r.NumHeaders() || r.Offset <= last || r.Offset > b.LastOffset() {
				t.Fatalf("offset %d after %d, %d of %d headers", r.Offset, last, headers, r.NumHeaders())
			}
			last = r.Offset
			return nil
		})
		if b.Codec() != None && size > limit || n > max(count, 0) || err == nil && n != max(count, 0) && count >= 0 {
			t.Fatalf("%d records of %d bytes, %d promised: %v", n, size, count, err)
		}
	})
}

// FuzzRecompress takes what Walk accepts from codec to codec.
func FuzzRecompress(f *testing.F) {
	seeds(f, func(b Batch) { f.Add(byte(Gzip), []byte(b)) })
	f.Fuzz(func(t *testing.T, to byte, p []byte) {
		b, _, err := Next(p)
		if err != nil {
			return
		}
		b = changed(b, 0)
		if Verify(b) != nil {
			return
		}
		limit := Limit{Bytes: 1 << 20}
		got, err := Recompress(b, Codec(to%5), 0, limit)
		if werr := Walk(b, limit, func(Record) error { return nil }); (werr == nil) != (err == nil) {
			t.Fatalf("walk: %v, recompress: %v", werr, err)
		}
		if err != nil {
			return
		}
		if err := Verify(got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(dumpAll(t, got), dumpAll(t, b)) {
			t.Fatal("other records")
		}
	})
}

func FuzzXerial(f *testing.F) {
	f.Add(xerial([]byte{0}), []byte("abc"))
	f.Add([]byte("\x03\x08abc"), bytes.Repeat([]byte("x"), 100))
	f.Fuzz(func(t *testing.T, p, plain []byte) {
		const limit = 1 << 20
		var r snappyReader
		r.reset(p, limit)
		if n, _ := io.Copy(io.Discard, &r); n > int64(snappyExpansion*len(p)) {
			t.Fatalf("%d bytes of %d", n, len(p))
		}
		var out bytes.Buffer
		w := new(xerialWriter)
		w.Reset(&out)
		for part := range slices.Chunk(plain, 7) {
			if _, err := w.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r.reset(out.Bytes(), limit)
		if got, err := io.ReadAll(&r); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("%d bytes came back as %d: %v", len(plain), len(got), err)
		}
	})
}
