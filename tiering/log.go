package tiering

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"firn/segment"
)

// Log is the log of a partition, of which the old part is in the archive. It
// answers replication and clients as a plain log does. The local log is a field
// and not embedded: DeleteTo, the call that must be guarded (T4), is not to be
// had through it.
type Log struct {
	a      *Archive
	part   Partition
	local  *segment.Log
	cfg    PartitionConfig
	src    source
	jitter float64   // of the partition, in [0, 1)
	opened time.Time // by the broker's clock

	policy atomic.Pointer[Policy]
	view   atomic.Pointer[view]
	lead   atomic.Pointer[leadership] // nil: not leading

	began began

	step    gate // held by Step: one upload of a partition at a time
	pub     gate // held by who reads or moves the pointer as the leader
	keeping gate // held by Keep

	last *leadership // the newest, over or not; guarded by pub

	mu struct {
		sync.Mutex
		closed   bool
		diverged bool
		behind   bool // the local log must start again at the archived end
		seen     int64
	}
}

// view is what is known of the partition's archive: a pointer, and the manifest
// that it names once somebody needed it. It is replaced, never changed, and
// never by an older one.
type view struct {
	ptr      Pointer
	manifest *Manifest
}

// gate is a mutex that can be waited for with a ctx, and tried.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) lock(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g gate) tryLock() bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		return false
	}
}

func (g gate) unlock() { <-g }

func newLog(a *Archive, local *segment.Log, c PartitionConfig) *Log {
	l := &Log{a: a, part: c.Partition, local: local, cfg: c, opened: a.cfg.Now(), step: newGate(), pub: newGate(), keeping: newGate()}
	l.src = source{Part: c.Partition, resolver: l}
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.Partition.Dir()))
	l.jitter = float64(h.Sum32()) / (1 << 32)
	l.SetPolicy(c.Policy)
	l.view.Store(&view{ptr: Pointer{Version: NoPointer}})
	return l
}

// Partition names the partition.
func (l *Log) Partition() Partition { return l.part }

// Local is the part on disk, for what concerns only that: its options, its size,
// the producers that it knows. Deleting from it is this Log's business (T4).
func (l *Log) Local() *segment.Log { return l.local }

// SetPolicy changes what the topic's configuration says.
func (l *Log) SetPolicy(p Policy) {
	p = p.withDefaults()
	l.policy.Store(&p)
	l.wake()
}

// Close takes the log out of its Archive and ends what it does for it. The local
// log stays open.
func (l *Log) Close() {
	l.StopLeading()
	l.mu.Lock()
	l.mu.closed = true
	l.mu.Unlock()
	l.a.mu.Lock()
	delete(l.a.mu.logs, l.part)
	l.a.mu.sorted = nil
	l.a.mu.Unlock()
}

// Err is what has ended the local log, nil if it works.
func (l *Log) Err() error { return l.local.Err() }

func (l *Log) Append(b []byte, o segment.AppendOptions) (segment.Appended, error) {
	return l.local.Append(b, o)
}

func (l *Log) AppendReplica(b []byte) (segment.Appended, error) { return l.local.AppendReplica(b) }

// TruncateTo cuts the log. What is archived is committed (T8), so nothing below
// the archived end is ever cut off.
func (l *Log) TruncateTo(end int64) error {
	if ptr := l.view.Load().ptr; ptr.Exists() && end < ptr.ArchivedEnd && end < l.local.Offsets().End {
		return fmt.Errorf("%w: truncation to %d, archived up to %d", ErrDiverged, end, ptr.ArchivedEnd)
	}
	return l.local.TruncateTo(end)
}

// BeginAt starts the log again where its leader's begins. What is archived comes
// before any leader's log: of such a log only the archive knows the past (T8).
func (l *Log) BeginAt(offset int64) error {
	if ptr := l.view.Load().ptr; ptr.Exists() && ptr.ArchivedEnd > 0 {
		return fmt.Errorf("%w: start at %d of a log that is archived up to %d", ErrDiverged, offset, ptr.ArchivedEnd)
	}
	if err := l.local.BeginAt(offset); err != nil {
		return err
	}
	l.setStanding(false, false)
	return nil
}

func (l *Log) SetHighWatermark(hw int64) { l.local.SetHighWatermark(hw) }
func (l *Log) OnCounted(f func())        { l.local.OnCounted(f) }

// The local log keeps the whole epoch chain, also of what is only archived.

func (l *Log) EpochEnd(epoch int32) segment.EpochEnd { return l.local.EpochEnd(epoch) }
func (l *Log) EpochAt(offset int64) int32            { return l.local.EpochAt(offset) }
func (l *Log) LatestEpoch() int32                    { return l.local.LatestEpoch() }

// Offsets is a snapshot of the offsets, the archived end included.
func (l *Log) Offsets() segment.Offsets {
	o := l.local.Offsets() // before the view: LocalStart is never past its archived end
	return l.withArchive(o)
}

func (l *Log) withArchive(o segment.Offsets) segment.Offsets {
	if ptr := l.view.Load().ptr; ptr.Exists() {
		o.ArchivedEnd = ptr.ArchivedEnd
	}
	return o
}
