package tiering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firn/segment"
	"firn/tiering/cache"
	"firn/tiering/objstore"
)

// coldConfig sets up the cold read path.
type coldConfig struct {
	// Cache holds the blocks. It is the caller's to close, after the reader.
	Cache *cache.Cache
	// IndexBytes bounds the indexes in memory
	// (remote.log.index.file.cache.total.size.bytes); 0 means 1 GiB, Kafka's
	// default.
	IndexBytes int64
	Log        *slog.Logger          // nil discards
	Metrics    prometheus.Registerer // nil discards
}

// coldReads is the coldReader that there is. A read goes
//
//	offset ─ manifest, page ─► entry ─ .idx ─► position ─ cache ─► batches
//
// and no step of it waits: what is not in memory is started, and the caller gets
// the channel of that one step. What a reader has worked out is kept in a
// coldStream under the offset that the reader will ask for next, so a reader that
// goes on pays for none of the steps again, and read-ahead knows where it is.
type coldReads struct {
	cfg     coldConfig
	indexes *coldIndexes
	lost    prometheus.Counter

	ctx  context.Context // of what runs beside the reads: ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu struct {
		sync.Mutex
		parts map[*source]*coldPartition
	}
}

var _ coldReader = (*coldReads)(nil)

func newColdReads(cfg coldConfig) *coldReads {
	if cfg.IndexBytes == 0 {
		cfg.IndexBytes = 1 << 30
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &coldReads{cfg: cfg}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.indexes = newColdIndexes(c.ctx, &c.wg, cfg.Cache.Getter(), cfg.IndexBytes)
	c.lost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "firn_tiering_lost_reads_total",
		Help: "Reads of archived segments that are missing or damaged; see the log for which.",
	})
	if cfg.Metrics != nil {
		_ = cfg.Metrics.Register(c.lost) // a second one on one registry: its count is lost
	}
	c.mu.parts = make(map[*source]*coldPartition)
	c.wg.Go(c.tick)
	return c
}

// Close stops the reader. Records that were handed out stay valid.
func (c *coldReads) Close() {
	c.stop()
	c.wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, p := range c.mu.parts {
		p.expire(time.Now().Add(time.Hour))
		delete(c.mu.parts, s)
	}
}

// Read answers r from the archive; see coldReader.
func (c *coldReads) Read(s *source, r segment.ReadRequest, at segment.Offsets) (segment.ReadResult, error) {
	if c.ctx.Err() != nil {
		return segment.ReadResult{Offsets: at}, fmt.Errorf("%w: closed", ErrUnavailable)
	}
	p := c.partition(s)
	st := p.take(r.Offset)
	defer p.put(st)
	res, err := st.read(r, at)
	res.Offsets = at
	if res.Records.Len() > 0 {
		st.want = st.next
	}
	if (err == nil && res.Records.Len() > 0 || res.Pending != nil) && !st.fresh && !st.moved {
		st.readAhead(at.LocalStart)
	}
	return res, err
}

func (c *coldReads) partition(s *source) *coldPartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.mu.parts[s]
	if p == nil {
		p = &coldPartition{c: c, s: s, trouble: make(map[string]*coldTrouble)}
		c.mu.parts[s] = p
	}
	p.used = time.Now()
	return p
}

// tick forgets readers that have gone.
func (c *coldReads) tick() {
	t := time.NewTicker(5 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-t.C:
			c.mu.Lock()
			for s, p := range c.mu.parts {
				if p.expire(now) && now.Sub(p.used) > coldIdle {
					delete(c.mu.parts, s)
				}
			}
			c.mu.Unlock()
		}
	}
}

// after is a channel that closes after d, or with the reader.
func (c *coldReads) after(d time.Duration) <-chan struct{} {
	ch := make(chan struct{})
	c.wg.Go(func() {
		defer close(ch)
		select {
		case <-time.After(d):
		case <-c.ctx.Done():
		}
	})
	return ch
}

// coldError is what a reader hears of an error of the cache.
func coldError(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrLost) || errors.Is(err, segment.ErrOffsetOutOfRange) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// gone tells an error that means: this object is not what the manifest says.
func gone(err error) bool {
	return errors.Is(err, objstore.ErrNotFound) || errors.Is(err, cache.ErrCorrupt) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrLost)
}
