package replication

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"firn/replication/isr"
	"firn/segment"
	"firn/segment/vfs"
)

var _ Log = (*segment.Log)(nil)

// openSegmentLog opens a real log in memory.
func openSegmentLog(t testing.TB, o segment.Options) *segment.Log {
	t.Helper()
	return openSegmentLogOn(t, vfs.NewMem(), o)
}

func openSegmentLogOn(t testing.TB, disk vfs.FS, o segment.Options) *segment.Log {
	t.Helper()
	d, err := segment.OpenDir(segment.DirConfig{FS: disk, Path: "/logs", MinFreeBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(segment.CleanMark{}) })
	l, err := d.Open(segment.TopicPartition{Topic: "t"}, [16]byte{1}, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestSegmentLogUnderAPartition(t *testing.T) {
	ctx := context.Background()
	l := openSegmentLog(t, segment.Options{})
	p := newPartition(t, l, isr.Rules{}, led(me, 3, me))
	sent := textBatch(t, 1, "hello")
	a, err := p.Append(sent, AppendOptions{Epoch: AnyEpoch, All: true, Now: time.Now().UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	wantAcked(t, p, a, true, nil)
	r, err := p.Read(segment.ReadRequest{MaxBytes: 1 << 20}, View{Epoch: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Records.Release()
	if r.Records.Len() != len(sent) || r.Offsets.HighWatermark != 1 {
		t.Fatalf("read %d bytes of %d, offsets %+v", r.Records.Len(), len(sent), r.Offsets)
	}
	if part := r.Records.Part(0); part.Mem != nil && !bytes.Equal(part.Mem, sent) {
		t.Fatal("read what was not sent")
	}
	if err := p.Become(ctx, led(me, 9, me), me); err != nil {
		t.Fatal(err)
	}
	for epoch, want := range map[int32]segment.EpochEnd{3: {Epoch: 3, End: 1}, 8: {Epoch: 3, End: 1}, 9: {Epoch: 9, End: 1}} {
		if got := l.EpochEnd(epoch); got != want { // written even if no record follows
			t.Errorf("EpochEnd(%d) = %+v, want %+v", epoch, got, want)
		}
	}
}

// S6 through all layers: with flush.messages=1 nothing is acknowledged or read
// before its flush, and every flush wakes whom it must.
func TestFlushMovesTheHighWatermark(t *testing.T) {
	l := openSegmentLog(t, segment.Options{FlushMessages: 1})
	p := newPartition(t, l, isr.Rules{}, led(me, 0, me))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			w := NewWaiter()
			defer w.Reset(0)
			for range 50 {
				a, err := p.Append(textBatch(t, 1, "x"), AppendOptions{Epoch: AnyEpoch, All: true, Now: time.Now().UnixMilli()})
				if err != nil {
					t.Error(err)
					return
				}
				w.Reset(0)
				w.Add(p, a.Last, segment.UntilHighWatermark)
				for {
					done, err := p.Acked(a)
					if err != nil {
						t.Error(err)
						return
					}
					if done {
						break
					}
					select {
					case <-w.C():
					case <-ctx.Done():
						t.Errorf("offset %d was never flushed: %+v", a.Last, l.Offsets())
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if o := l.Offsets(); o.HighWatermark != 200 || o.Counted != 200 {
		t.Errorf("%+v", o)
	}
}
