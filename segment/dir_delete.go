package segment

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Delete closes logs and deletes them. From then on they are gone for everybody; on
// disk it goes on, so far as it can at once, in an order in which a crash leaves
// nothing that could be taken for something else:
//
//	the checkpoints, without them         else a new log of that name began with the
//	                                      old one's, and a crash left names that are
//	                                      taken for lost (S7)
//	their directories get other names     until then they tell by their topic id
//	                                      whose they are
//	these go after file.delete.delay.ms   when readers are done with them
//
// What can't be done now, on a full disk above all, is done later: a deletion must
// not wait for the space that it makes. What doesn't lie on disk is no error. All of
// a topic's partitions in one call cost one checkpoint.
func (d *Dir) Delete(tps ...TopicPartition) {
	for _, tp := range tps {
		d.doom(tp)
	}
	d.burying.Lock()
	err := d.bury()
	d.burying.Unlock()
	if err != nil {
		d.log.Warn("deleted partitions are still on disk; will retry", "partitions", len(tps), "err", err)
	}
}

// doom closes the log of tp, and lets no checkpoint tell of it.
func (d *Dir) doom(tp TopicPartition) {
	delay := Options{}.withDefaults().FileDeleteDelayMs
	if l := d.Get(tp); l != nil {
		delay = l.opts.Load().FileDeleteDelayMs
		l.discard()
		d.forget(l)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.doomed[tp] = delay
	d.unknowLocked(tp)
}

// unknowLocked forgets what the checkpoints said of tp at open.
func (d *Dir) unknowLocked(tp TopicPartition) {
	delete(d.mu.recovery, tp)
	delete(d.mu.hw, tp)
	delete(d.mu.start, tp)
}

func (d *Dir) isDoomed(tp TopicPartition) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, doomed := d.mu.doomed[tp]
	return doomed
}

// finishDeletions does what Delete couldn't. Where there is no space for the
// checkpoints, the deleted logs make some: what is left of their directories is the
// topic id.
func (d *Dir) finishDeletions() error {
	d.burying.Lock()
	defer d.burying.Unlock()
	err := d.bury()
	if err == nil || !noSpace(err) {
		return err
	}
	d.space.full.Store(true)
	for tp := range d.doomed() {
		if err := d.empty(d.path(tp.String()), partitionFile); err != nil {
			return err
		}
	}
	return d.bury()
}

// doomed is a copy, for work without the lock.
func (d *Dir) doomed() map[TopicPartition]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.mu.doomed)
}

// bury takes the names from the directories of deleted partitions, when no
// checkpoint tells of them any more. d.burying is held.
func (d *Dir) bury() error {
	doomed := d.doomed()
	if len(doomed) == 0 {
		return nil
	}
	if err := d.writeCheckpoints(); err != nil {
		return err
	}
	for tp, delay := range doomed {
		if err := d.failpoint("segment.delete"); err != nil {
			return err
		}
		gone := d.path(deletedName(tp))
		err := d.fs.Rename(d.path(tp.String()), gone)
		if err == nil {
			d.deleteLater(gone, delay)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := d.fs.SyncDir(d.cfg.Path); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for tp := range doomed {
		delete(d.mu.doomed, tp)
	}
	return nil
}

// deletedName is Kafka's: <topic>-<partition>.<id>-delete, the topic cut so that
// the whole is a file name.
func deletedName(tp TopicPartition) string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	end := fmt.Sprintf("-%d.%x%s", tp.Partition, id, deletedDir)
	return tp.Topic[:min(len(tp.Topic), 255-len(end))] + end
}

// SetAside gives the directory of tp, which is not open, another name, and returns
// its path: it is another topic's, not ours to delete, and in the way. The
// checkpoints are taken for its own, and go first, as in Delete.
func (d *Dir) SetAside(tp TopicPartition) (string, error) {
	d.mu.Lock()
	d.unknowLocked(tp)
	d.mu.Unlock()
	aside := d.path(tp.String()) + "." + d.cfg.Now().UTC().Format("20060102T150405.000000000") + "-stray"
	err := d.writeCheckpoints()
	if err == nil {
		err = d.fs.Rename(d.path(tp.String()), aside)
	}
	if err == nil {
		err = d.fs.SyncDir(d.cfg.Path)
	}
	if err != nil {
		return "", fmt.Errorf("segment: set %s aside: %w", tp, spaceError(err))
	}
	return aside, nil
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

// removeDue removes what was deleted long enough ago; on a disk that is short of
// space, all that was deleted: who still reads it has it open. It tells whether
// there was something.
func (d *Dir) removeDue(now time.Time) bool {
	short := d.space.full.Swap(false) || d.space.low.Load()
	d.mu.Lock()
	var due []string
	kept := d.mu.deletions[:0]
	for _, x := range d.mu.deletions {
		if x.due.After(now) && !short {
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
	return len(due) > 0
}

// removeTree removes a file, or a directory of files.
func (d *Dir) removeTree(path string) error {
	if info, err := d.fs.Stat(path); err == nil && info.IsDir {
		if err := d.empty(path); err != nil {
			return err
		}
	}
	return removeIfThere(d.fs, path)
}

// empty removes the files in dir, if there is one, but for those to keep.
func (d *Dir) empty(dir string, keep ...string) error {
	entries, err := d.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(keep, e.Name()) {
			continue
		}
		if err := removeIfThere(d.fs, filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
