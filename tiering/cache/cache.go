package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firn/segment/vfs"
	"firn/tiering/objstore"
)

// Errors that callers branch on, besides objstore.ErrNotFound, which is passed
// on: the caller knows what else the object may be called by now.
var (
	// ErrUnavailable: the store does not deliver now; it pays to try again.
	ErrUnavailable = errors.New("cache: store unavailable")
	// ErrCorrupt: the store delivers, twice, bytes that are not those archived.
	ErrCorrupt = errors.New("cache: corrupt block")
	ErrClosed  = errors.New("cache: closed")
)

// Config sets up a Cache.
type Config struct {
	Store objstore.Store
	// Memory bounds the blocks in memory, in bytes; 0 means 128 MiB. Less than
	// 8 MiB is taken for 8 MiB.
	Memory int64
	// FS and Dir say where the disk cache is; without Dir there is none.
	FS  vfs.FS
	Dir string
	// Disk bounds the disk cache, in bytes; 0 means no disk cache.
	Disk int64
	// MinFree is how many bytes of the disk cache's file system stay free: below
	// it nothing is added, and what is there makes room. 0 means a tenth, at most
	// 10 GiB: twice what the logs keep free, which come first. -1 means none.
	MinFree int64
	// Window bounds the read-ahead of one stream, in bytes; 0 means 64 MiB.
	Window int64
	// GetBytes bounds one GET, in bytes; 0 means 32 MiB. Larger ones cost fewer
	// requests.
	GetBytes int64
	// Gets bounds the GETs at a time; 0 means 32, of which read-ahead takes at
	// most three quarters.
	Gets int
	// FirstByte and PerBlock bound how long a GET may take to answer, and then to
	// deliver each block: 0 means 10 s and 30 s. A GET that fails them is retried.
	FirstByte, PerBlock time.Duration
	// Jitter draws from [0, d), to spread what would be tried again at the same
	// moment; nil draws at random.
	Jitter  func(d time.Duration) time.Duration
	Log     *slog.Logger          // nil discards
	Metrics prometheus.Registerer // nil discards
}

func (cfg *Config) fill() {
	defaultTo(&cfg.Memory, 128<<20)
	cfg.Memory = max(cfg.Memory, 8<<20)
	defaultTo(&cfg.Window, 64<<20)
	defaultTo(&cfg.GetBytes, 32<<20)
	defaultTo(&cfg.Gets, 32)
	defaultTo(&cfg.FirstByte, 10*time.Second)
	defaultTo(&cfg.PerBlock, 30*time.Second)
	if cfg.Jitter == nil {
		cfg.Jitter = rand.N[time.Duration]
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
}

func defaultTo[T comparable](v *T, d T) {
	if *v == *new(T) {
		*v = d
	}
}

// Cache is the table of blocks, and the loads that fill it.
type Cache struct {
	cfg  Config
	get  *Getter
	disk *disk // nil without one
	met  *metrics

	ctx  context.Context // of the loads: ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	passing sync.Pool // of buffers that what lies in files passes through

	// No I/O, and nothing that takes longer than a walk over the streams or the
	// blocks, happens under mu: a few hundred of each.
	mu struct {
		sync.Mutex
		closed  bool
		objects map[objectID]*object
		streams map[*Stream]struct{}
		// share, and scans, which it is for, are figured out by a walk over the
		// streams, as of shareAt.
		share      int64
		scans      int
		shareAt    time.Time
		nextStream int64

		pool    pool
		used    int64 // bytes of buffers that are not in the pool
		gets    int   // slots taken
		reads   int
		waiting []*load // for memory, a slot, or a reader to come closer
		giant   *load   // may exceed the budget; see giantLocked
		left    list    // read, and nobody is known to follow: first to go
		shared  list    // read, and another stream comes behind, as of sharedAt
		fresh   list    // not read yet

		sharedAt time.Time
	}
}

type objectID struct {
	key string
	off int64
}

// object is an Object of which the table holds a block, or that a stream reads.
type object struct {
	*Object
	id      objectID
	hash    [16]byte // of id; only with a disk
	blocks  map[int]*entry
	readers map[*Stream]struct{} // that have it before them
	filed   bool                 // it lies in a file of this machine
	// prev and next are its neighbours on some reader's way, as far as the table
	// has them: those who come behind need not know yet that they will get here.
	prev, next *object
}

// Trouble is why reads from the store have failed lately, several in a row; nil
// once one has succeeded.
func (c *Cache) Trouble() error { return c.get.breaker.trouble() }

// New makes a Cache in memory; cfg names no disk.
func New(cfg Config) *Cache {
	cfg.fill()
	c := &Cache{cfg: cfg, met: newMetrics(cfg.Metrics)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.get = newGetter(&c.cfg, c.met)
	c.mu.objects = make(map[objectID]*object)
	c.mu.streams = make(map[*Stream]struct{})
	c.wg.Go(c.tick)
	return c
}

// Open makes a Cache, and takes over what a disk cache holds from before.
func Open(cfg Config) (*Cache, error) {
	c := New(cfg)
	if cfg.Dir == "" || cfg.Disk <= 0 {
		return c, nil
	}
	d, err := openDisk(&c.cfg, c.met)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("cache: open %s: %w", cfg.Dir, err)
	}
	c.mu.Lock()
	c.disk = d
	c.mu.Unlock()
	c.wg.Go(func() { d.run(c.ctx) })
	return c, nil
}

// Close ends the loads and waits for them. Blocks that are pinned stay valid
// until they are released.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.mu.closed = true
	for _, l := range c.mu.waiting {
		l.refuse()
	}
	c.mu.waiting = nil
	c.mu.Unlock()
	c.stop()
	c.wg.Wait()
	c.get.wg.Wait()
	return nil
}

// Getter reads from the same store, with the same manners.
func (c *Cache) Getter() *Getter { return c.get }

// Fetch returns block i of o, pinned, and waits for it if it must.
func (c *Cache) Fetch(ctx context.Context, o *Object, i int) (*Block, error) {
	for {
		c.mu.Lock()
		b, wait, err := c.blockLocked(c.objectLocked(o), i, 0, o.blockLen(i), true)
		c.mu.Unlock()
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Forget drops what is known of o: the caller found it wanting. Loads go on, but
// their blocks are not kept.
func (c *Cache) Forget(o *Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	obj := c.mu.objects[objectID{o.Key, o.Off}]
	if obj == nil {
		return
	}
	for _, e := range obj.blocks {
		if e.state != loading {
			c.dropLocked(e)
		}
	}
}

// tick frees what has become of no use and cuts what has stalled.
func (c *Cache) tick() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-c.ctx.Done():
			return
		case now := <-t.C:
			c.mu.Lock()
			c.expireLocked(now)
			if n%10 == 9 {
				c.mu.pool.trim()
			}
			c.admitLocked()
			c.mu.Unlock()
		}
	}
}
