package segment

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
)

// shared is work that one caller does for all who asked before it began: who
// comes while it runs shares the next one.
type shared struct {
	asked, done atomic.Int64
	working     sync.Mutex
}

// do returns when work has run from beginning to end since do was called.
func (s *shared) do(work func() error) error {
	mine := s.asked.Add(1)
	s.working.Lock()
	defer s.working.Unlock()
	covers := s.asked.Load()
	if s.done.Load() >= mine {
		return nil
	}
	if err := work(); err != nil {
		return err
	}
	s.done.Store(covers)
	return nil
}

// persistStarts returns when every log start that was set before the call is
// durable.
func (d *Dir) persistStarts() error {
	if err := d.starts.do(d.writeStarts); err != nil {
		return fmt.Errorf("segment: write %s: %w", logStartFile, err)
	}
	return nil
}

// syncRoot makes the names of the partitions' directories durable.
func (d *Dir) syncRoot() error {
	return d.root.do(func() error { return d.fs.SyncDir(d.cfg.Path) })
}

// writeStarts writes the log starts that the segments don't tell by themselves:
// those of archived logs never do, be it 0, for without a note nothing tells files
// that were deleted from files that are missing.
func (d *Dir) writeStarts() error {
	offsets := d.merged(d.mu.start, func(l *Log) (int64, bool) {
		o := l.st.load()
		start := max(o.LogStart, l.nextStart.Load())
		if l.opts.Load().Archived {
			return start, start > 0 || o.LocalStart == 0 || l.startNoted.Load()
		}
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
	d.each(func(l *Log) error {
		l.expireProducers(now)
		l.setPoint()
		return nil
	})
	if err := d.writeCheckpoints(); err != nil {
		return fmt.Errorf("segment: checkpoint: %w", err)
	}
	return nil
}

// writeCheckpoints writes what the logs tell without waiting for anybody.
func (d *Dir) writeCheckpoints() error {
	if err := d.writePoints(); err != nil {
		return err
	}
	if err := d.watermarks.do(d.writeWatermarks); err != nil {
		return err
	}
	return d.persistStarts()
}

func (d *Dir) writeWatermarks() error {
	offsets := d.merged(d.mu.hw, func(l *Log) (int64, bool) { return l.st.load().HighWatermark, true })
	return replaceFile(d.fs, d.path(highWatermarkFile), appendOffsetCheckpoint(nil, offsets), true)
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

	err := d.each((*Log).Close)
	err = errors.Join(err, d.finishDeletions(), d.Checkpoint())
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

// each calls f with every open log, for as many at a time as may sync.
func (d *Dir) each(f func(*Log) error) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		work = make(chan *Log)
	)
	for range cap(d.syncs) {
		wg.Go(func() {
			for l := range work {
				if err := f(l); err != nil {
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
