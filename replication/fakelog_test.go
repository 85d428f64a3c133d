package replication

import (
	"context"
	"encoding/binary"
	"sync"

	"firn/segment"
)

// fakeLog is a Log of records that are 8 bytes each: it keeps offsets, epochs
// and what was called, and no data.
type fakeLog struct {
	mu        sync.Mutex
	o         segment.Offsets
	epochs    []segment.EpochStart
	calls     []string
	onCounted func()
	err       error
	// hold: appends wait for flush before they count (S6).
	hold bool
	// ready, if set, tells that Lead has come, and then is what it waits for; leadErr what it answers.
	ready   chan struct{}
	leadErr error
	// enter is called as an append begins, before the log's lock is taken;
	// onAppend is called inside an append, onLead when the log leads, and with -1
	// when it stops.
	enter            func()
	onAppend, onLead func(epoch int32)
}

func newFakeLog() *fakeLog { return &fakeLog{o: segment.Offsets{ArchivedEnd: -1}} }

// records are n records.
func records(n int) []byte { return make([]byte, 8*n) }

func (l *fakeLog) Append(b []byte, o segment.AppendOptions) (segment.Appended, error) {
	if l.enter != nil {
		l.enter()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.onAppend != nil {
		l.onAppend(o.Epoch)
	}
	if n := len(l.epochs); n > 0 && l.epochs[n-1].Epoch > o.Epoch {
		return segment.Appended{}, segment.ErrFenced
	}
	a := segment.Appended{First: l.o.End, AppendTime: -1, LogStart: l.o.LogStart}
	for ; len(b) > 0; b = b[8:] {
		binary.BigEndian.PutUint64(b, uint64(l.o.End))
		l.o.End++
	}
	a.Last = l.o.End - 1
	if !l.hold {
		l.o.Counted = l.o.End
	}
	return a, nil
}

// flush is the background flush: it counts all there is.
func (l *fakeLog) flush() {
	l.mu.Lock()
	l.o.Counted = l.o.End
	l.mu.Unlock()
	l.onCounted()
}

func (l *fakeLog) AppendReplica(b []byte) (segment.Appended, error) {
	return segment.Appended{}, nil
}

func (l *fakeLog) TruncateTo(end int64) error { return nil }

func (l *fakeLog) Read(r segment.ReadRequest) (segment.ReadResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := max(0, l.o.Bound(r.Until)-r.Offset)
	return segment.ReadResult{
		Offsets: l.o,
		Records: segment.NewRecords(nil, segment.Part{Mem: records(int(n)), Len: int(8 * n)}),
	}, nil
}

func (l *fakeLog) OffsetForTime(context.Context, int64, segment.Until) (segment.TimeOffset, error) {
	return segment.TimeOffset{Offset: -1}, nil
}

func (l *fakeLog) OffsetOfMaxTime(context.Context, segment.Until) (segment.TimeOffset, error) {
	return segment.TimeOffset{Offset: -1}, nil
}
func (l *fakeLog) EpochEnd(int32) segment.EpochEnd { return segment.EpochEnd{Epoch: -1, End: -1} }
func (l *fakeLog) EpochAt(int64) int32             { return -1 }

func (l *fakeLog) LatestEpoch() int32 {
	if n := len(l.epochs); n > 0 {
		return l.epochs[n-1].Epoch
	}
	return -1
}

func (l *fakeLog) Offsets() segment.Offsets {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.o
}

func (l *fakeLog) SetHighWatermark(hw int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.o.HighWatermark = max(l.o.HighWatermark, min(hw, l.o.Counted))
	l.o.Stable = l.o.HighWatermark
}

func (l *fakeLog) SetLogStart(_ context.Context, offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset > l.o.HighWatermark {
		return segment.ErrOffsetOutOfRange
	}
	l.o.LogStart = max(l.o.LogStart, offset)
	return nil
}

func (l *fakeLog) OnCounted(f func()) { l.onCounted = f }

func (l *fakeLog) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// fail ends the log.
func (l *fakeLog) fail(err error) {
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	l.onCounted()
}

func (l *fakeLog) Lead(ctx context.Context, epoch int32) error {
	if l.ready != nil {
		l.ready <- struct{}{} // here we are
		select {
		case <-l.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, "lead")
	if l.leadErr != nil {
		return l.leadErr
	}
	l.epochs = append(l.epochs, segment.EpochStart{Epoch: epoch, Start: l.o.End})
	if l.onLead != nil {
		l.onLead(epoch)
	}
	return nil
}

func (l *fakeLog) StopLeading() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, "stop")
	if l.onLead != nil {
		l.onLead(-1)
	}
}

func (l *fakeLog) RestartAtArchivedEnd(context.Context) error { return segment.ErrNotArchived }

func (l *fakeLog) BeginAt(offset int64) error { return nil }
