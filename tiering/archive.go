package tiering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"firn/segment"
	"firn/tiering/cache"
	"firn/tiering/objstore"
)

// Archive is a broker's share of an archive: the store, the budgets, and the
// workers that all its partitions use. Run makes it work by itself; without Run
// its Logs still read, and whoever calls their Step, Keep and Evict drives them.
type Archive struct {
	cfg      Config
	store    objstore.Store
	pointers Pointers
	log      *slog.Logger
	loader   *loader
	cold     coldReader
	cache    *cache.Cache        // nil if it is the caller's
	budget   *semaphore.Weighted // of UploadBytes
	copies   limiter
	metrics  *metrics
	disowned atomic.Pointer[error] // set once firn.json names another owner

	mu struct {
		sync.Mutex
		closed bool
		logs   map[Partition]*Log
		sorted []*Log // of logs; nil when they have changed
	}
	queue      queue
	complaints complaints
	blocks     sync.Pool // *[BlockSize]byte, for scans
}

// New makes an Archive. It does no I/O.
func New(c Config) *Archive {
	c = c.withDefaults()
	a := &Archive{cfg: c, store: c.Store, pointers: c.Pointers, log: c.Log}
	a.loader = newLoader(c.Store)
	a.budget = semaphore.NewWeighted(c.UploadBytes)
	a.copies.set(c.CopyBytesPerSecond)
	a.mu.logs = map[Partition]*Log{}
	if c.TakenOver != nil {
		a.disowned.Store(&c.TakenOver)
	}
	a.queue.ready = make(chan struct{}, 1)
	a.blocks.New = func() any { return new([BlockSize]byte) }
	a.metrics = newMetrics(a)
	blocks := c.Cache
	if blocks == nil {
		blocks = cache.New(cache.Config{Store: c.Store, Log: c.Log, Metrics: c.Registerer})
		a.cache = blocks
	}
	a.cold = newColdReads(coldConfig{Cache: blocks, IndexBytes: c.IndexBytes, Log: c.Log, Metrics: c.Registerer})
	return a
}

// SetCopyRate changes remote.log.manager.copy.max.bytes.per.second; 0 is no limit.
func (a *Archive) SetCopyRate(bytesPerSecond int64) {
	if bytesPerSecond == math.MaxInt64 {
		bytesPerSecond = 0
	}
	a.copies.set(bytesPerSecond)
}

// Open joins a local log and its archived part. The local log belongs to the
// result from then on; it must have been opened with segment.Options.Archived.
//
// Where the log ends below what is archived it starts again there (T8), if the
// store answers; if it doesn't, Lead will. A log that has another history than
// the archive is opened as it is: Diverged tells.
func (a *Archive) Open(ctx context.Context, local *segment.Log, c PartitionConfig) (*Log, error) {
	l := newLog(a, local, c)
	if err := l.open(ctx); err != nil {
		return nil, fmt.Errorf("tiering: open %s: %w", c.Partition, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return nil, fmt.Errorf("tiering: open %s: %w", c.Partition, errClosed)
	}
	if a.mu.logs[c.Partition] != nil {
		return nil, fmt.Errorf("tiering: %s is open already", c.Partition)
	}
	a.mu.logs[c.Partition] = l
	a.mu.sorted = nil
	return l, nil
}

var errClosed = errors.New("tiering: archive is closed")

// Close ends reads and everything in the background. Run must have returned.
func (a *Archive) Close() {
	a.mu.Lock()
	a.mu.closed = true
	a.mu.Unlock()
	for _, l := range a.logs() {
		l.Close()
	}
	a.cold.Close()
	if a.cache != nil {
		a.cache.Close()
	}
	a.loader.close()
	a.metrics.unregister()
}

// logs is a snapshot of the open logs, in a fixed order.
func (a *Archive) logs() []*Log {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.sorted == nil {
		a.mu.sorted = slices.SortedFunc(maps.Values(a.mu.logs), func(x, y *Log) int { return x.part.compare(y.part) })
	}
	return a.mu.sorted // replaced, never changed
}

func (a *Archive) failpoint(name string) error {
	if a.cfg.Failpoint == nil {
		return nil
	}
	return a.cfg.Failpoint(name)
}

// Owner reads whether the archive is still ours; once it is not, it never is again
// in this process.
func (a *Archive) Owner(ctx context.Context) error {
	if err := a.Disowned(); err != nil {
		return err
	}
	err := checkOwner(ctx, a.store, a.cfg.Identity)
	if errors.Is(err, ErrNotOurs) {
		if a.disowned.CompareAndSwap(nil, &err) {
			a.log.Error("the archive has another owner: nothing is uploaded to it or deleted from it any more", "err", err)
		}
	}
	return err
}

// Disowned says, in words for the operator, that another has taken the archive
// over; nil if none has, as far as we have seen.
func (a *Archive) Disowned() error {
	if e := a.disowned.Load(); e != nil {
		return *e
	}
	return nil
}
