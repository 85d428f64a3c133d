package segment

import (
	"errors"
	"fmt"
	"io"

	"firn/segment/batch"
)

// recount takes note of a batch that is in the log already.
func (l *Log) recount(s *segment, b batch.Batch, pos int64, interval int) {
	s.index.Load().add(b.LastOffset(), b.MaxTimestamp(), pos, len(b), interval)
	if s.firstTime < 0 && pos == 0 {
		s.firstTime = b.MaxTimestamp()
	}
	if b.LeaderEpoch() > l.LatestEpoch() {
		l.learnEpoch(b)
	}
	l.replayBatch(s, b)
}

// learnEpoch takes the new epoch of a batch into the chain.
func (l *Log) learnEpoch(b batch.Batch) {
	chain, _ := l.chain.Load().with(b.LeaderEpoch(), b.BaseOffset())
	l.chain.Store(&chain)
}

// replayBatch takes note of the producer of a batch that is in the log.
func (l *Log) replayBatch(s *segment, b batch.Batch) {
	if !b.HasProducer() {
		return
	}
	p := &l.mu.producers
	p.begin()
	if p.note(b, b.BaseOffset(), b.LastOffset(), OriginCoordinator, false) != nil {
		return // a marker that nobody can read ends no transaction
	}
	p.commit()
	l.st.mu.Lock()
	var aborted []abortedEntry
	l.st.mu.decided, aborted = p.decide(l.st.mu.decided, nil)
	l.st.mu.Unlock()
	if s != nil && len(aborted) > 0 {
		s.aborted = append(s.aborted, aborted...)
		s.hasTxns.Store(true)
		l.aborts.Store(true)
	}
}

// replay takes note of the producers of the batches in [from, to).
func (l *Log) replay(from, to int64) error {
	if from >= to {
		return nil
	}
	v := l.st.mu.snapshot
	for _, s := range append(v.sealed[:len(v.sealed):len(v.sealed)], v.active) {
		size := s.size
		if s == v.active {
			size = v.size
		}
		if s.end <= from || s.base >= to {
			continue
		}
		h, err := l.dir.handles.pin(s)
		if err != nil {
			return err
		}
		_, err = scan(h.file, 0, size, func(b batch.Batch, _ int64) error {
			if b.BaseOffset() >= to {
				return io.EOF
			}
			if b.LastOffset() >= from {
				l.replayBatch(nil, b)
			}
			return nil
		})
		h.unpin()
		if err != nil && !errors.Is(err, io.EOF) && !damage(err) {
			return err
		}
	}
	return nil
}

// rebuildEpochs makes the epoch chain from the headers of the batches. A segment
// whose successor begins in the epoch that it begins in is skipped: epochs only
// rise. Epochs without a record are lost, which harms nobody.
func (l *Log) rebuildEpochs(ls listing) (epochs, error) {
	first := make([]int32, len(ls.segments))
	for i, s := range ls.segments {
		first[i] = -1
		if s.size == 0 {
			continue
		}
		h, err := l.dir.handles.pin(s)
		if err != nil {
			return nil, err
		}
		if b, err := header(h.file, 0, s.size); err == nil {
			first[i] = b.LeaderEpoch()
		}
		h.unpin()
	}
	var chain epochs
	for i, s := range ls.segments {
		if s.size == 0 || i+1 < len(first) && first[i] == first[i+1] && first[i] == chain.latest() {
			continue
		}
		h, err := l.dir.handles.pin(s)
		if err != nil {
			return nil, err
		}
		err = walk(h.file, 0, s.size, func(b batch.Batch, _ int64) bool {
			chain, _ = chain.with(b.LeaderEpoch(), b.BaseOffset())
			return true
		})
		h.unpin()
		if err != nil && !damage(err) {
			return nil, err
		}
	}
	return chain, nil
}

// warmLocked makes the active segment of a log that was closed cleanly ready: its
// index in memory, and its end where the recovery point has it.
func (l *Log) warmLocked() error {
	if l.warm.Load() {
		return nil
	}
	w := &l.st.mu.snapshot
	s := w.active
	h, err := l.dir.handles.pin(s)
	if err != nil {
		return l.ioErrorLocked("open active segment", err)
	}
	defer h.unpin()
	x, pos, next := l.resume(s, h.file, w.size, w.End)
	s.aborted = l.abortedBelow(s, w.End)
	interval := l.opts.Load().IndexIntervalBytes
	err = walk(h.file, pos, w.size, func(b batch.Batch, at int64) bool {
		if at == 0 {
			s.firstTime = b.MaxTimestamp()
		}
		x.add(b.LastOffset(), b.MaxTimestamp(), at, b.Length(), interval)
		next = b.NextOffset()
		return true
	})
	if err != nil && !damage(err) {
		return l.ioErrorLocked("read active segment", err)
	}
	if err == nil && next != w.End {
		err = fmt.Errorf("log ends at offset %d, not at %d where it was closed", next, w.End)
	}
	if err != nil {
		return l.failLocked(ErrQuarantined, err)
	}
	s.index.Store(x)
	l.warm.Store(true)
	return nil
}
