package segment

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"firn/segment/batch"
)

// SealedSegment tells of a sealed segment, which never changes (S3).
type SealedSegment struct {
	Base, End     int64
	Size          int64
	BaseTimestamp int64 // of the first batch; -1 without one
	MaxTimestamp  int64
	Epochs        []EpochStart // that its records are of; the first begins at Base
	AbortedTxns   bool
	// Synced tells that all its files are durable: only then it may be
	// uploaded (T1).
	Synced bool
}

// Sealed lists the sealed segments that end past from.
func (l *Log) Sealed(from int64) ([]SealedSegment, error) {
	if err := l.readable(); err != nil {
		return nil, err
	}
	var list []SealedSegment
	for _, s := range l.st.load().sealed {
		if s.end <= from {
			continue
		}
		maxTime, err := l.maxTime(s)
		if err != nil {
			return nil, err
		}
		first, err := l.firstTimeOf(s)
		if err != nil {
			return nil, err
		}
		list = append(list, SealedSegment{
			Base: s.base, End: s.end, Size: s.size, BaseTimestamp: first, MaxTimestamp: maxTime,
			Epochs: l.chain.Load().between(s.base, s.end), AbortedTxns: s.hasTxns.Load(), Synced: s.synced.Load(),
		})
	}
	return list, nil
}

// firstTimeOf is the base timestamp of the first batch of s.
func (l *Log) firstTimeOf(s *segment) (int64, error) {
	if known := s.baseTime.Load(); known != 0 {
		return known - 2, nil
	}
	h, err := l.pin(s)
	if err != nil {
		return 0, err
	}
	defer h.unpin()
	hd, err := header(h.file, 0, s.size)
	if err != nil {
		return 0, l.readError(s, err)
	}
	s.baseTime.Store(hd.BaseTimestamp() + 2)
	return hd.BaseTimestamp(), nil
}

// between returns the part of the chain that the records in [from, below) are of.
func (c epochs) between(from, below int64) []EpochStart {
	var part []EpochStart
	for i, e := range c {
		if e.Start >= below || i+1 < len(c) && c[i+1].Start <= from {
			continue
		}
		part = append(part, EpochStart{e.Epoch, max(e.Start, from)})
	}
	return part
}

// SealedFile is a sealed segment, pinned until Close: its bytes stay readable
// even if it is deleted meanwhile.
type SealedFile struct {
	Info SealedSegment
	// OffsetIndex, TimeIndex and TxnIndex are the bytes of Kafka's files.
	OffsetIndex, TimeIndex, TxnIndex []byte
	// Producers is the producer snapshot at Info.End.
	Producers []byte
	// Chain is the epoch chain of the log up to Info.End.
	Chain []EpochStart
	// Records is how many records the segment has.
	Records int64

	h *handle
}

var errNotSealed = errors.New("segment: no such sealed segment")

// OpenSealed opens the sealed segment that begins at base.
func (l *Log) OpenSealed(base int64) (*SealedFile, error) {
	list, err := l.Sealed(base)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(s SealedSegment) bool { return s.Base == base })
	s := l.st.load().find(base)
	if i < 0 || s == nil || s.base != base {
		return nil, fmt.Errorf("%w: %d", errNotSealed, base)
	}
	h, err := l.pin(s)
	if err != nil {
		return nil, err
	}
	f := &SealedFile{Info: list[i], h: h}
	if err := l.fillSealed(f, s); err != nil {
		h.unpin()
		return nil, fmt.Errorf("segment: open sealed segment %d: %w", base, err)
	}
	return f, nil
}

func (l *Log) fillSealed(f *SealedFile, s *segment) error {
	x, err := l.indexOf(s)
	if err != nil {
		return l.readError(s, err)
	}
	f.OffsetIndex, f.TimeIndex = x.appendOffsets(nil), x.appendTimes(nil)
	aborted, err := l.abortedOf(s)
	if err != nil {
		return err
	}
	f.TxnIndex = appendAborted(nil, aborted)
	if f.Producers, err = l.producersAt(s); err != nil {
		return err
	}
	chain := *l.chain.Load()
	f.Chain = slices.Clone([]EpochStart(chain.below(s.end)))
	err = walk(f.h.file, 0, s.size, func(b batch.Batch, _ int64) bool {
		f.Records += int64(b.Count())
		return true
	})
	if err != nil {
		return l.readError(s, err)
	}
	return nil
}

// producersAt returns the bytes of the producer snapshot at the end of s: from
// memory while it is not written, from its file, or made anew.
func (l *Log) producersAt(s *segment) ([]byte, error) {
	l.mu.Lock()
	b := s.snapshot
	l.mu.Unlock()
	if b != nil {
		return b, nil
	}
	var t producers
	b, err := readFile(l.dir.fs, l.snapshotPath(s.end), smallFile)
	if err != nil || b != nil && t.loadSnapshot(b) == nil {
		return b, err
	}
	t.reset()
	if b, err = readFile(l.dir.fs, l.snapshotPath(s.base), smallFile); err != nil {
		return nil, err
	}
	if b != nil && t.loadSnapshot(b) != nil {
		t.reset()
	}
	h, err := l.pin(s)
	if err != nil {
		return nil, err
	}
	defer h.unpin()
	_, err = scan(h.file, 0, s.size, func(b batch.Batch, _ int64) error {
		t.begin()
		if t.note(b, b.BaseOffset(), b.LastOffset(), OriginCoordinator, false) == nil {
			t.commit()
			t.decide(nil, nil)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t.appendSnapshot(nil), nil
}

// ReadAt reads bytes of the .log file.
func (f *SealedFile) ReadAt(b []byte, off int64) (int, error) {
	if off >= f.Info.Size {
		return 0, io.EOF
	}
	if over := off + int64(len(b)) - f.Info.Size; over > 0 {
		n, err := f.h.file.ReadAt(b[:int64(len(b))-over], off)
		if err == nil {
			err = io.EOF
		}
		return n, err
	}
	return f.h.file.ReadAt(b, off)
}

// Close lets the segment go.
func (f *SealedFile) Close() error {
	if f.h != nil {
		f.h.unpin()
		f.h = nil
	}
	return nil
}
