package objstore

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// zeros is a body of any size that costs nothing.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }

func TestPartsCoverTheBodyAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 5*PartBytes + 7
		var now, most, sum atomic.Int64
		seen := make([]int64, NumParts(size))
		err := Parts(t.Context(), zeros{}, size, func(_ context.Context, num int, part *io.SectionReader) error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			_, off, n := part.Outer()
			seen[num-1] = off
			sum.Add(n)
			return nil
		})
		if err != nil || sum.Load() != size || most.Load() != PartsInFlight {
			t.Errorf("Parts = %v, %d of %d bytes, %d at a time", err, sum.Load(), int64(size), most.Load())
		}
		for i, off := range seen {
			if off != int64(i)*PartBytes {
				t.Errorf("part %d begins at %d", i+1, off)
			}
		}
	})
}

func TestPartsEndAtTheFirstError(t *testing.T) {
	started := atomic.Int64{}
	err := Parts(t.Context(), zeros{}, 100*PartBytes, func(ctx context.Context, num int, _ *io.SectionReader) error {
		started.Add(1)
		if num == 2 {
			return errDown
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, errDown) || started.Load() > 2*PartsInFlight {
		t.Errorf("Parts = %v after %d parts", err, started.Load())
	}
}

func TestCRC32C(t *testing.T) {
	const n = 1<<20 + 17
	want := crc32.Checksum(make([]byte, n), castagnoli)
	if got, err := CRC32C(zeros{}, n); err != nil || got != want {
		t.Errorf("CRC32C = %08x, %v, want %08x", got, err, want)
	}
	if _, err := CRC32C(io.NewSectionReader(zeros{}, 0, 10), 11); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of a short body: %v", err)
	}
}
