package segment

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"firn/segment/vfs"
)

func benchLog(b *testing.B, o Options) (*Dir, *Log) {
	c := DirConfig{Path: b.TempDir(), MinFreeBytes: -1}
	d, err := OpenDir(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close(CleanMark{}) })
	l, err := d.Open(testTP, [16]byte{}, o)
	if err != nil {
		b.Fatal(err)
	}
	return d, l
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20} {
		b.Run(strconv.Itoa(size>>10)+"KiB", func(b *testing.B) {
			_, l := benchLog(b, Options{SegmentBytes: 256 << 20, MaxMessageBytes: 2 << 20, RetentionBytes: 512 << 20, FileDeleteDelayMs: 1})
			data := records(1, size-80, testNow)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := l.Append(data, AppendOptions{Now: testNow}); err != nil {
					b.Fatal(err)
				}
				if i%1024 == 1023 {
					b.StopTimer()
					l.SetHighWatermark(l.Offsets().End)
					l.ApplyRetention(b.Context(), time.UnixMilli(testNow))
					b.StartTimer()
				}
			}
		})
	}
}

// BenchmarkRead locates and pins; it moves no bytes.
func BenchmarkRead(b *testing.B) {
	_, l := benchLog(b, Options{SegmentBytes: 16 << 20})
	data := records(1, 1000, testNow)
	for range 40_000 {
		if _, err := l.Append(data, AppendOptions{Now: testNow}); err != nil {
			b.Fatal(err)
		}
	}
	for name, offset := range map[string]func(i int) int64{
		"tail":   func(i int) int64 { return 40_000 - 1 - int64(i%100) },
		"active": func(i int) int64 { return l.st.load().active.base + int64(i*37%1000) },
		"sealed": func(i int) int64 { return int64(i * 37 % 30_000) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r, err := l.Read(ReadRequest{Offset: offset(i), MaxBytes: 1 << 20, Until: UntilCounted, MinOne: true})
				if err != nil || r.Records.Len() == 0 {
					b.Fatal(err, r.Records.Len())
				}
				r.Records.Release()
			}
		})
	}
}

// BenchmarkReopen10000 opens a directory of 10 000 partitions, after a clean stop
// and after a kill.
func BenchmarkReopen10000(b *testing.B) {
	const partitions = 10_000
	for _, clean := range []bool{true, false} {
		b.Run(fmt.Sprintf("clean=%v", clean), func(b *testing.B) {
			c := DirConfig{Path: b.TempDir(), MinFreeBytes: -1}
			d, err := OpenDir(c)
			if err != nil {
				b.Fatal(err)
			}
			data := records(1, 1000, testNow)
			for p := range int32(partitions) {
				l, err := d.Open(TopicPartition{"topic", p}, [16]byte{1}, Options{})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := l.Append(data, AppendOptions{Now: testNow}); err != nil {
					b.Fatal(err)
				}
			}
			start := time.Now()
			if err := d.Close(CleanMark{}); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(time.Since(start).Seconds(), "close-s")
			mark := fileBytes(b, vfs.OS(), c.Path+"/"+cleanFile)
			for b.Loop() {
				b.StopTimer()
				if clean {
					setFile(b, vfs.OS(), c.Path+"/"+cleanFile, mark)
				} else {
					os.Remove(c.Path + "/" + cleanFile)
				}
				b.StartTimer()
				d, err := OpenDir(c)
				if err != nil {
					b.Fatal(err)
				}
				for p := range int32(partitions) {
					l, err := d.Open(TopicPartition{"topic", p}, [16]byte{1}, Options{})
					if err != nil {
						b.Fatal(err)
					}
					if err := l.Lead(b.Context(), int32(b.N)+1); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				d.Close(CleanMark{})
				b.StartTimer()
			}
		})
	}
}

// TestAppendAndReadAllocateNothing holds the hot path to that.
func TestAppendAndReadAllocateNothing(t *testing.T) {
	c := quiet(vfs.OS())
	c.Path = t.TempDir()
	l := openLog(t, openDir(t, c), Options{})
	data := produced(1, 0, 0, 1)
	plain := records(1, 1000, testNow)
	mustAppend(t, l, data)
	for range 200 {
		mustAppend(t, l, plain)
	}
	if n := testing.AllocsPerRun(200, func() { mustAppend(t, l, plain) }); n > 0.5 { // an index chunk now and then
		t.Errorf("an append allocates %v times", n)
	}
	for name, until := range map[string]Until{"high watermark": UntilHighWatermark, "counted": UntilCounted, "stable": UntilStable} {
		l.SetHighWatermark(l.Offsets().End - 1)
		if n := testing.AllocsPerRun(200, func() {
			r, err := l.Read(ReadRequest{Offset: l.Offsets().End - 5, MaxBytes: 1 << 20, Until: until})
			if err != nil || r.Records.Len() == 0 {
				t.Fatal(err)
			}
			r.Records.Release()
		}); n > 0 {
			t.Errorf("a read up to the %s allocates %v times", name, n)
		}
	}
}
