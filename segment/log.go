package segment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// Log is the log of one partition. All methods may be called at the same time.
type Log struct {
	dir     *Dir
	tp      TopicPartition
	topicID [16]byte
	path    string
	log     *slog.Logger

	opts      atomic.Pointer[Options] // with defaults
	st        state
	chain     atomic.Pointer[epochs]
	failure   atomic.Pointer[error] // what ended this log: S4, S5
	warm      atomic.Bool           // the active segment's index is in memory
	aborts    atomic.Bool           // some segment has aborted transactions
	onCounted atomic.Pointer[func()]
	nextStart atomic.Int64 // the log start that is being made durable
	// startNoted: a checkpoint had the log start when the log was opened.
	startNoted atomic.Bool
	point      atomic.Int64 // the recovery point, as the next checkpoint is to have it

	// files is held, before mu, by whoever makes, renames or removes files
	// other than by an append or a roll.
	files sync.Mutex

	// mu is held by whoever changes the log, over its one write too: appends
	// of a partition come one after the other anyway.
	mu struct {
		sync.Mutex
		closed    bool
		settled   bool // closed, and all of it durable
		noSpace   bool // the last write found the disk full
		producers producers
		// The epoch file is written when an epoch begins, but it needs to be
		// durable only when the epoch has records that are: it holds, durably,
		// what the chain has up to durableEpoch.
		durableEpoch int32

		flushed     int64      // everything below is durable
		unsynced    []*segment // sealed, oldest first
		newDir      bool       // the log's directory and topic id are not durable
		newFiles    bool       // its directory has entries that are not durable
		wanted      int64      // a caller waits for a flush up to here
		syncing     bool       // the syncer runs
		waiters     chan struct{}
		oldestDirty int64 // wall time of the oldest append that is not flushed
	}
	syncer sync.WaitGroup
	starts sync.Mutex // one SetLogStart at a time
}

func newLog(d *Dir, tp TopicPartition, topicID [16]byte, o Options) *Log {
	l := &Log{dir: d, tp: tp, topicID: topicID, path: d.path(tp.String())}
	l.log = d.log.With("topic", tp.Topic, "partition", tp.Partition)
	l.chain.Store(&epochs{})
	l.mu.producers.reset()
	l.st.mu.firstOpen = never
	l.SetOptions(o)
	return l
}

// TopicPartition names the partition.
func (l *Log) TopicPartition() TopicPartition { return l.tp }

// TopicID is the topic's id.
func (l *Log) TopicID() [16]byte { return l.topicID }

// SetOptions changes the options, from the next append on.
func (l *Log) SetOptions(o Options) {
	o = o.withDefaults()
	l.opts.Store(&o)
}

// Options is the options in force, defaults filled in.
func (l *Log) Options() Options { return *l.opts.Load() }

// Offsets is a snapshot of the offsets.
func (l *Log) Offsets() Offsets { return l.st.load().Offsets }

// LogStartNoted reports whether the directory had a note of the log start when the
// log was opened. Where it hadn't, an archived log's start counts as 0, as far as
// nobody says otherwise by AdoptLogStart.
func (l *Log) LogStartNoted() bool { return l.startNoted.Load() }

// OnCounted sets what is called, without a lock of the log, after a flush has
// moved Counted (S6), and after the log has failed.
func (l *Log) OnCounted(f func()) { l.onCounted.Store(&f) }

func (l *Log) notify() {
	if f := l.onCounted.Load(); f != nil {
		(*f)()
	}
}

// SetHighWatermark moves the high watermark up, as far as the counted offset.
func (l *Log) SetHighWatermark(hw int64) {
	l.st.mu.Lock()
	defer l.st.mu.Unlock()
	if hw = min(hw, l.st.mu.Counted); hw > l.st.mu.HighWatermark {
		l.st.mu.HighWatermark = hw
		l.st.publishLocked()
	}
}

// Err is what has ended this log until it is repaired or the process restarted:
// ErrFailed (S4), ErrQuarantined (S5), each wrapped with its reason, or ErrClosed.
// nil for a log that works, a full disk included.
func (l *Log) Err() error {
	if e := l.failure.Load(); e != nil {
		return *e
	}
	return nil
}

// failLocked ends the log with the first error it is given. Nothing is tried
// again: after a failed fsync the kernel may have dropped what it couldn't write,
// and a second one would succeed without it.
func (l *Log) failLocked(kind, err error) error {
	err = fmt.Errorf("%w: %s: %w", kind, l.tp, err)
	if l.failure.CompareAndSwap(nil, &err) {
		l.dir.metrics.failed.Inc()
		l.log.Error("log is out of service", "err", err)
		l.wakeWaitersLocked()
		l.syncer.Go(l.notify) // the caller holds the lock, and the listener wants it
	}
	return l.Err()
}

// usableLocked tells why the log takes no append; it makes the active segment
// ready for one.
func (l *Log) usableLocked() error {
	if l.mu.closed {
		return ErrClosed
	}
	if err := l.Err(); err != nil {
		return err
	}
	if !l.warm.Load() {
		return l.warmLocked()
	}
	return nil
}

// EpochEnd answers OffsetForLeaderEpoch.
func (l *Log) EpochEnd(epoch int32) EpochEnd {
	end := l.st.load().End // before the chain: an epoch that begins later is not asked for
	return l.chain.Load().end(epoch, end)
}

// EpochAt is the epoch of the record at offset, -1 if the log does not know.
func (l *Log) EpochAt(offset int64) int32 { return l.chain.Load().at(offset) }

// LatestEpoch is the last epoch of the chain, -1 for none.
func (l *Log) LatestEpoch() int32 { return l.chain.Load().latest() }

// Epochs is the epoch chain. It must not be changed.
func (l *Log) Epochs() []EpochStart { return *l.chain.Load() }

// Lead notes where epoch begins, even if no record follows (hazard A2). A log
// refuses an epoch below its latest (R2).
func (l *Log) Lead(_ context.Context, epoch int32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return ErrClosed
	}
	if err := l.Err(); err != nil {
		return err
	}
	latest := l.LatestEpoch()
	if epoch < latest {
		return fmt.Errorf("%w: %d, latest is %d", ErrFenced, epoch, latest)
	}
	return l.beginEpochLocked(epoch, l.st.mu.End)
}

// StopLeading has nothing to stop: a plain log does nothing by itself.
func (l *Log) StopLeading() {}

// RestartAtArchivedEnd is for a log with an archive.
func (l *Log) RestartAtArchivedEnd(context.Context) error { return ErrNotArchived }

// beginEpochLocked takes epoch into the chain, if it is new, and into its file.
// That is not durable yet: an epoch without records need not survive a power
// loss, and ten thousand partitions begin one at a start.
func (l *Log) beginEpochLocked(epoch int32, start int64) error {
	chain, changed := l.chain.Load().with(epoch, start)
	if !changed {
		return nil
	}
	if err := l.overwriteEpochs(chain); err != nil {
		return l.ioErrorLocked("write "+epochFile, err)
	}
	l.chain.Store(&chain)
	return nil
}

// writeEpochs makes the epoch chain durable.
func (l *Log) writeEpochs(chain epochs) error {
	return replaceFile(l.dir.fs, filepath.Join(l.path, epochFile), appendEpochCheckpoint(nil, chain), true)
}

// overwriteEpochs writes the epoch chain over its file. A power loss may leave
// part of it, which is no checkpoint then and is made again from the batches. To
// replace the file by a rename costs a write to the disk on ext4, synced or not.
func (l *Log) overwriteEpochs(chain epochs) error {
	f, err := l.dir.fs.OpenFile(filepath.Join(l.path, epochFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	b := appendEpochCheckpoint(nil, chain)
	size, err := f.Size()
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil && size > int64(len(b)) {
		err = f.Truncate(int64(len(b)))
	}
	return errors.Join(err, f.Close())
}

// settleEpochsLocked makes the epochs of all records durable: what is to be taken
// as flushed must have its epochs.
func (l *Log) settleEpochsLocked() error {
	last := l.EpochAt(l.st.mu.End - 1)
	if last <= l.mu.durableEpoch {
		return nil
	}
	if err := l.writeEpochs(*l.chain.Load()); err != nil {
		return err
	}
	l.mu.durableEpoch = last
	return nil
}

// Producers is what the log remembers of its producers.
func (l *Log) Producers() []ProducerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.list()
}

func (l *Log) expireProducers(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.producers.expire(now, l.opts.Load().ProducerExpirationMs)
}

// Size is the bytes of the local segments.
func (l *Log) Size() int64 {
	s := l.st.load()
	n := s.size
	for _, seg := range s.sealed {
		n += seg.size
	}
	return n
}

// SegmentCount is how many segments the log has on this disk. Like Size and Offsets
// it waits for nobody, whatever the disk does.
func (l *Log) SegmentCount() int { return len(l.st.load().sealed) + 1 }

// errDiscarded marks a log whose partition is deleted.
var errDiscarded = fmt.Errorf("%w: partition deleted", ErrClosed)

// discard closes a log whose files are to go, without a flush.
func (l *Log) discard() {
	l.mu.Lock()
	l.mu.closed = true
	err := errDiscarded
	l.failure.CompareAndSwap(nil, &err)
	l.wakeWaitersLocked()
	l.mu.Unlock()
	l.syncer.Wait()
	l.dropHandles()
	l.notify()
}

func (l *Log) dropHandles() {
	s := l.st.load()
	if s.view == nil {
		return
	}
	for _, seg := range s.sealed {
		l.dir.handles.drop(seg)
	}
	l.dir.handles.drop(s.active)
}

// Close flushes the log and writes what a start without a scan needs. Reads are
// refused from then on; Records that were read stay valid until their Release.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.mu.closed {
		l.mu.Unlock()
		return nil
	}
	l.mu.closed = true
	l.mu.Unlock()
	l.syncer.Wait()

	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.wakeWaitersLocked() // also of a flush that will never come: the disk may be full
	if err := l.Err(); err != nil {
		return err // no clean-shutdown mark may vouch for it
	}
	err := l.closeFilesLocked()
	closed := ErrClosed
	l.failure.CompareAndSwap(nil, &closed)
	l.mu.settled = err == nil
	if err != nil {
		return fmt.Errorf("segment: close %s: %w", l.tp, err)
	}
	return nil
}
