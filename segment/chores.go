package segment

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// chores is the one background goroutine of a directory: it looks at the disk's
// free space, finishes deletions, removes deleted files when their delay is over,
// and begins the flushes that flush.ms makes due. No partition has a goroutine or timer.
type chores struct {
	quit chan struct{}
	wake chan struct{}
	done sync.WaitGroup

	mu struct {
		sync.Mutex
		timed  map[*Log]struct{} // logs with flush.ms and something unflushed
		paused map[*Log]struct{} // logs whose syncer waits for space
	}
}

// chorePeriod bounds how late a chore is.
const (
	chorePeriod      = time.Second
	timedFlushPeriod = 20 * time.Millisecond
)

func (c *chores) start(d *Dir) {
	c.quit = make(chan struct{})
	c.wake = make(chan struct{}, 1)
	c.mu.timed, c.mu.paused = map[*Log]struct{}{}, map[*Log]struct{}{}
	d.findDeleted()
	c.done.Go(func() { c.run(d) })
}

func (c *chores) stop() {
	close(c.quit)
	c.done.Wait()
}

func (c *chores) run(d *Dir) {
	tick := time.NewTicker(chorePeriod)
	defer tick.Stop()
	fast := time.NewTicker(timedFlushPeriod)
	defer fast.Stop()
	fast.Stop()
	running := false
	for {
		select {
		case <-c.quit:
			return
		case <-tick.C:
			d.tick()
			c.kickPaused()
		case <-fast.C:
		case <-c.wake:
		}
		if left := c.flushTimed(d.cfg.Now()); left != running {
			if running = left; running {
				fast.Reset(timedFlushPeriod)
			} else {
				fast.Stop()
			}
		}
	}
}

// flushLater has l flushed by flush.ms.
func (c *chores) flushLater(l *Log) {
	c.mu.Lock()
	c.mu.timed[l] = struct{}{}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// kickLater has the syncer of l try again.
func (c *chores) kickLater(l *Log) {
	c.mu.Lock()
	c.mu.paused[l] = struct{}{}
	c.mu.Unlock()
}

func (c *chores) kickPaused() {
	c.mu.Lock()
	logs := c.mu.paused
	c.mu.paused = map[*Log]struct{}{}
	c.mu.Unlock()
	for l := range logs {
		l.kick()
	}
}

// flushTimed begins the flushes that are due; it tells whether others are to come.
func (c *chores) flushTimed(now time.Time) bool {
	c.mu.Lock()
	logs := slices.Collect(maps.Keys(c.mu.timed))
	c.mu.Unlock()
	left := false
	for _, l := range logs {
		if l.flushIfOld(now) {
			c.mu.Lock()
			delete(c.mu.timed, l)
			c.mu.Unlock()
		} else {
			left = true
		}
	}
	return left
}

// spend notes that n bytes were written.
func (d *Dir) spend(n int) {
	if d.space.spent(n) {
		d.checkSpace()
	}
}

// tick is what is to be done now and then.
func (d *Dir) tick() {
	d.checkSpace()
	if n := len(d.doomed()); n > 0 && d.finishDeletions() == nil {
		d.log.Info("deleted partitions are off the disk", "partitions", n)
	}
	if d.removeDue(d.cfg.Now()) {
		d.checkSpace()
	}
}

func (d *Dir) checkSpace() {
	if !d.space.check() {
		return
	}
	s := d.space.now()
	if s.Low {
		d.log.Error("disk is below its reserve: clients' appends are refused until there is space", "dir", d.cfg.Path, "free_bytes", s.Free, "reserve_bytes", s.Reserve)
	} else {
		d.log.Info("disk has its reserve again: appends are accepted", "dir", d.cfg.Path, "free_bytes", s.Free)
	}
}
