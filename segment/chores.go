package segment

import (
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// chores is the one background goroutine of a directory: it looks at the disk's
// free space, removes deleted files when their delay is over, and begins the
// flushes that flush.ms makes due. No partition has a goroutine or timer.
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
			d.checkSpace()
			d.removeDue(d.cfg.Now())
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
	logs := make([]*Log, 0, len(c.mu.timed))
	for l := range c.mu.timed {
		logs = append(logs, l)
	}
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

// deletion is a file or directory that is deleted but for its bytes.
type deletion struct {
	path string
	due  time.Time
}

// deleteLater removes path, already out of the way under another name, after
// delay.
func (d *Dir) deleteLater(path string, delayMs int64) {
	due := d.cfg.Now().Add(time.Duration(min(delayMs, never/int64(time.Millisecond))) * time.Millisecond)
	d.mu.Lock()
	d.mu.deletions = append(d.mu.deletions, deletion{path, due})
	d.mu.Unlock()
}

// findDeleted takes up the deletions that the last process left.
func (d *Dir) findDeleted() {
	entries, err := d.fs.ReadDir(d.cfg.Path)
	if err != nil {
		return // Partitions will say so
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasSuffix(e.Name(), deletedDir) {
			d.deleteLater(d.path(e.Name()), 0)
		}
	}
}

func (d *Dir) removeDue(now time.Time) {
	d.mu.Lock()
	var due []string
	kept := d.mu.deletions[:0]
	for _, x := range d.mu.deletions {
		if x.due.After(now) {
			kept = append(kept, x)
		} else {
			due = append(due, x.path)
		}
	}
	d.mu.deletions = kept
	d.mu.Unlock()
	for _, path := range due {
		if err := d.removeTree(path); err != nil {
			d.log.Warn("a deleted file can't be removed; the next start tries again", "path", path, "err", err)
		}
	}
}

// removeTree removes a file, or a directory of files.
func (d *Dir) removeTree(path string) error {
	if info, err := d.fs.Stat(path); err == nil && info.IsDir {
		var entries []fs.DirEntry
		if entries, err = d.fs.ReadDir(path); err != nil {
			return err
		}
		for _, e := range entries {
			if err := removeIfThere(d.fs, filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return removeIfThere(d.fs, path)
}
