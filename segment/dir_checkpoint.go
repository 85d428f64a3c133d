package segment

import (
	"errors"
	"fmt"
	"maps"
	"sync"
)

// starts makes log starts durable, many at once: who comes while the file is
// being written shares the next write.
type starts struct {
	seq struct {
		sync.Mutex
		asked, written int64
	}
	writing sync.Mutex
}

// persistStarts returns when every log start that was set before the call is
// durable.
func (d *Dir) persistStarts() error {
	s := &d.starts
	s.seq.Lock()
	s.seq.asked++
	mine := s.seq.asked
	s.seq.Unlock()

	s.writing.Lock()
	defer s.writing.Unlock()
	s.seq.Lock()
	covers, done := s.seq.asked, s.seq.written >= mine
	s.seq.Unlock()
	if done {
		return nil
	}
	if err := d.writeStarts(); err != nil {
		return fmt.Errorf("segment: write %s: %w", logStartFile, err)
	}
	s.seq.Lock()
	s.seq.written = covers
	s.seq.Unlock()
	return nil
}

// writeStarts writes the log starts that the segments don't tell by themselves.
func (d *Dir) writeStarts() error {
	offsets := d.merged(d.mu.start, func(l *Log) (int64, bool) {
		o := l.st.load()
		start := max(o.LogStart, l.nextStart.Load())
		return start, start > 0 && start != o.LocalStart
	})
	return replaceFile(d.fs, d.path(logStartFile), appendOffsetCheckpoint(nil, offsets), true)
}

// merged is what is to be checkpointed: of the open logs, and as it was of those
// that have not been opened.
func (d *Dir) merged(closed map[TopicPartition]int64, of func(*Log) (int64, bool)) map[TopicPartition]int64 {
	d.mu.Lock()
	offsets := maps.Clone(closed)
	d.mu.Unlock()
	for _, l := range d.all() {
		delete(offsets, l.tp)
		if o, ok := of(l); ok {
			offsets[l.tp] = o
		}
	}
	return offsets
}

// Checkpoint writes recovery points, high watermarks and log starts. A crash
// then costs a scan of what was appended since what is flushed, and no more.
func (d *Dir) Checkpoint() error {
	if err := d.failpoint("segment.checkpoint"); err != nil {
		return err
	}
	now := d.cfg.Now().UnixMilli()
	for _, l := range d.all() {
		l.expireProducers(now)
		l.setPoint()
	}
	hw := d.merged(d.mu.hw, func(l *Log) (int64, bool) { return l.st.load().HighWatermark, true })
	err := d.writePoints()
	if err == nil {
		err = replaceFile(d.fs, d.path(highWatermarkFile), appendOffsetCheckpoint(nil, hw), true)
	}
	if err != nil {
		return fmt.Errorf("segment: checkpoint: %w", err)
	}
	return d.persistStarts()
}

// writePoints writes the recovery points. What it writes it reads under the lock,
// so that a point that was lowered meanwhile cannot come back.
func (d *Dir) writePoints() error {
	d.points.Lock()
	defer d.points.Unlock()
	offsets := d.merged(d.mu.recovery, func(l *Log) (int64, bool) { return l.point.Load(), true })
	return replaceFile(d.fs, d.path(recoveryPointFile), appendOffsetCheckpoint(nil, offsets), true)
}

// Close flushes and closes all logs, writes the checkpoints and, if all of it
// went well, the clean-shutdown mark m.
func (d *Dir) Close(m CleanMark) error {
	d.mu.Lock()
	if d.mu.closed {
		d.mu.Unlock()
		return nil
	}
	d.mu.closed = true
	d.mu.Unlock()
	d.chores.stop()

	err := d.closeLogs()
	err = errors.Join(err, d.Checkpoint())
	if err == nil {
		// After all flushes: a mark vouches for what it finds (hazard C14).
		err = replaceFile(d.fs, d.path(cleanFile), m.append(nil), true)
	}
	for _, l := range d.all() {
		l.dropHandles()
	}
	d.metrics.unregister()
	if uerr := d.lock.Close(); uerr != nil {
		err = errors.Join(err, uerr)
	}
	if err != nil {
		return fmt.Errorf("segment: close log directory %s: %w", d.cfg.Path, err)
	}
	return nil
}

// closeLogs closes the logs, as many at a time as may sync.
func (d *Dir) closeLogs() error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		work = make(chan *Log)
	)
	for range cap(d.syncs) {
		wg.Go(func() {
			for l := range work {
				if err := l.Close(); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, l := range d.all() {
		work <- l
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}
