package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firn/segment/vfs"
)

// DirConfig sets up a log directory. Only Path must be set.
type DirConfig struct {
	// Path is the directory; it is created if missing.
	Path string
	// FS holds it; nil is the operating system's.
	FS vfs.FS
	// Log gets what an operator should know; nil discards it.
	Log *slog.Logger
	// Registerer gets the metrics; nil discards them.
	Registerer prometheus.Registerer
	// Now is the wall clock; nil is time.Now.
	Now func() time.Time
	// Failpoint is called at named places, and what it returns fails the call
	// there; nil in production.
	Failpoint func(name string) error
	// MinFreeBytes is the reserve of the disk below which clients' appends are
	// refused; 0 is the smaller of 5 % and 5 GiB, -1 none.
	MinFreeBytes int64
	// MaxOpenFiles is how many segment files are kept open; 0 is 8192.
	MaxOpenFiles int
	// MaxSyncs is how many files are synced at the same time; 0 is 16: more
	// make no disk faster.
	MaxSyncs int
}

// Dir is a log directory: partitions, the checkpoints that they share, and the
// lock that keeps another process out.
type Dir struct {
	cfg     DirConfig
	fs      vfs.FS
	log     *slog.Logger
	lock    io.Closer
	meta    Meta
	clean   bool
	mark    CleanMark
	handles *handles
	space   space
	syncs   chan struct{} // a place per sync under way
	metrics *metrics

	mu struct {
		sync.Mutex
		closed bool
		logs   map[TopicPartition]*Log
		// What the checkpoint files said at open, of partitions not yet opened.
		recovery, hw, start map[TopicPartition]int64
		deletions           []deletion
		// doomed are the deleted partitions whose directories have their names
		// still, each with its file.delete.delay.ms; see Delete.
		doomed map[TopicPartition]int64
	}
	points     sync.Mutex // held while the recovery points are written
	burying    sync.Mutex // held while deletions are finished
	watermarks shared
	starts     shared
	root       shared
	chores     chores
}

const (
	lockFile   = ".lock"
	deletedDir = "-delete"
	tmpSuffix  = ".tmp"
)

// OpenDir opens the log directory at c.Path, alone: vfs.ErrLocked if another
// process has it. A clean-shutdown mark is consumed: a crash from now on is one.
func OpenDir(c DirConfig) (*Dir, error) {
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.MaxSyncs == 0 {
		c.MaxSyncs = 16
	}
	d := &Dir{cfg: c, fs: c.FS, log: c.Log, handles: newHandles(c.FS, c.MaxOpenFiles), syncs: make(chan struct{}, c.MaxSyncs)}
	d.space.fs, d.space.dir = c.FS, c.Path
	d.space.reserve.Store(c.MinFreeBytes)
	d.metrics = newMetrics(c.Registerer, d)
	d.mu.logs, d.mu.doomed = map[TopicPartition]*Log{}, map[TopicPartition]int64{}
	if err := makeDir(c.FS, c.Path); err != nil {
		return nil, fmt.Errorf("segment: open log directory: %w", err)
	}
	lock, err := c.FS.Lock(filepath.Join(c.Path, lockFile))
	if err != nil {
		return nil, fmt.Errorf("segment: open log directory: %w", err)
	}
	d.lock = lock
	if err := d.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("segment: open log directory %s: %w", c.Path, err), lock.Close())
	}
	d.space.check()
	d.chores.start(d)
	return d, nil
}

// makeDir makes dir and its missing parents, durably.
func makeDir(fsys vfs.FS, dir string) error {
	parent := filepath.Dir(dir)
	if parent == dir {
		return nil
	}
	_, err := fsys.Stat(parent)
	if errors.Is(err, fs.ErrNotExist) {
		err = makeDir(fsys, parent)
	}
	if err == nil {
		err = fsys.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	// Even if it was there: who made it may have crashed before this.
	if err = fsys.SyncDir(parent); errors.Is(err, fs.ErrPermission) {
		return nil // not ours, so not made by us
	}
	return err
}

func (d *Dir) open() error {
	if err := d.openMeta(); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		to   *map[TopicPartition]int64
	}{
		{recoveryPointFile, &d.mu.recovery}, {highWatermarkFile, &d.mu.hw}, {logStartFile, &d.mu.start},
	} {
		b, err := readFile(d.fs, d.path(c.name), smallFile)
		if err != nil {
			return err
		}
		offsets := map[TopicPartition]int64{}
		if b != nil {
			if offsets, err = parseOffsetCheckpoint(b); err != nil {
				// Nothing is known then: everything is scanned.
				d.log.Warn("a checkpoint file is damaged; it is taken as missing", "file", d.path(c.name), "err", err)
				offsets = map[TopicPartition]int64{}
			}
		}
		*c.to = offsets
	}
	return d.takeCleanMark()
}

// takeCleanMark reads the clean-shutdown mark and removes it, durably, before
// anything is written that it doesn't vouch for.
func (d *Dir) takeCleanMark() error {
	b, err := readFile(d.fs, d.path(cleanFile), smallFile)
	if err != nil || b == nil {
		return err
	}
	d.clean, d.mark = true, parseCleanMark(b)
	if err := d.fs.Remove(d.path(cleanFile)); err != nil {
		return err
	}
	return d.fs.SyncDir(d.cfg.Path)
}

func (d *Dir) openMeta() error {
	b, err := readFile(d.fs, d.path(metaFile), smallFile)
	if err != nil {
		return err
	}
	if b != nil {
		if d.meta, err = parseMeta(b); err != nil || d.meta.DirectoryID != "" {
			return err
		}
	} else {
		d.meta.BrokerID = -1
	}
	d.meta.DirectoryID = newDirectoryID()
	if b == nil {
		return nil // written by SetMeta, once the broker knows who it is
	}
	return replaceFile(d.fs, d.path(metaFile), d.meta.append(nil), true)
}

func (d *Dir) path(name string) string { return filepath.Join(d.cfg.Path, name) }

// Meta tells whose directory this is: BrokerID is -1 in a new one.
func (d *Dir) Meta() Meta { return d.meta }

// SetMeta makes the directory m's, durably. An empty DirectoryID keeps the one
// that the directory has. It is for the start, before logs are opened.
func (d *Dir) SetMeta(m Meta) error {
	if m.DirectoryID == "" {
		m.DirectoryID = d.meta.DirectoryID
	}
	if err := replaceFile(d.fs, d.path(metaFile), m.append(nil), true); err != nil {
		return fmt.Errorf("segment: write %s: %w", metaFile, err)
	}
	d.meta = m
	return nil
}

// Clean tells whether the last stop was clean, and what its mark said.
func (d *Dir) Clean() (CleanMark, bool) { return d.mark, d.clean }

// Space tells how the disk stands.
func (d *Dir) Space() Space { return d.space.now() }

// SetReserve changes DirConfig.MinFreeBytes.
func (d *Dir) SetReserve(minFreeBytes int64) {
	if d.space.reserve.Swap(minFreeBytes) != minFreeBytes {
		d.checkSpace()
	}
}

// Found is a partition that lies on disk.
type Found struct {
	TopicPartition
	// TopicID is zero if the directory does not tell.
	TopicID [16]byte
}

// Partitions lists what lies on disk. What the metadata does not know is a
// stray: it is nobody's to delete but an operator's.
func (d *Dir) Partitions() ([]Found, error) {
	entries, err := d.fs.ReadDir(d.cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("segment: list partitions: %w", err)
	}
	var found []Found
	for _, e := range entries {
		tp, ok := parseDirName(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		id, _, err := readTopicID(d.fs, d.path(e.Name()))
		if err != nil {
			d.log.Warn("a partition's topic id can't be read", "topic", tp.Topic, "partition", tp.Partition, "err", err)
		}
		found = append(found, Found{tp, id})
	}
	return found, nil
}

// Missing lists the partitions that the checkpoints know with records, and that
// are not on disk: what was counted for them is lost (S7).
func (d *Dir) Missing() ([]TopicPartition, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var missing []TopicPartition
	for tp, o := range d.mu.recovery {
		if o == 0 {
			continue
		}
		if _, err := d.fs.Stat(d.path(tp.String())); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, tp)
		} else if err != nil {
			return nil, fmt.Errorf("segment: look for partitions: %w", err)
		}
	}
	return missing, nil
}

// Get returns the open log of tp, nil if there is none.
func (d *Dir) Get(tp TopicPartition) *Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.logs[tp]
}

// Create is Open for a partition that must not lie on disk yet: fs.ErrExist.
func (d *Dir) Create(tp TopicPartition, topicID [16]byte, o Options) (*Log, error) {
	if _, err := d.fs.Stat(d.path(tp.String())); err == nil {
		return nil, fmt.Errorf("segment: create %s: %w", tp, fs.ErrExist)
	}
	return d.Open(tp, topicID, o)
}

// ErrTopicID: the directory belongs to another topic of the same name.
var ErrTopicID = errors.New("segment: directory belongs to another topic id")

// Open opens the log of tp, and creates it if it doesn't lie on disk. A damaged
// log opens too: Log.Err tells.
func (d *Dir) Open(tp TopicPartition, topicID [16]byte, o Options) (*Log, error) {
	if !validTopic(tp.Topic) || tp.Partition < 0 {
		return nil, fmt.Errorf("segment: open %q: not a partition", tp)
	}
	if d.isDoomed(tp) {
		// Its checkpoints, which are on disk still, must not become the new log's.
		if err := d.finishDeletions(); err != nil {
			return nil, fmt.Errorf("segment: open %s: deleting the last log of that name: %w", tp, spaceError(err))
		}
	}
	old := d.Get(tp)
	var how opening
	if old != nil {
		var closed bool
		if how, closed = old.reopening(); !closed {
			return nil, fmt.Errorf("segment: open %s: it is open", tp)
		}
	}
	d.mu.Lock()
	if d.mu.closed {
		d.mu.Unlock()
		return nil, ErrClosed
	}
	if d.mu.logs[tp] != old {
		d.mu.Unlock()
		return nil, fmt.Errorf("segment: open %s: it is open", tp)
	}
	if old == nil {
		rp, known := d.mu.recovery[tp]
		start, noted := d.mu.start[tp]
		how = opening{recoveryPoint: rp, known: known, clean: d.clean, hw: d.mu.hw[tp], logStart: start, startNoted: noted}
	}
	l := newLog(d, tp, topicID, o)
	d.mu.logs[tp] = l // nobody opens it twice; Get's callers wait for its lock
	l.mu.Lock()
	d.mu.Unlock()
	defer l.mu.Unlock()

	if err := l.openLocked(how); err != nil {
		l.mu.closed = true
		d.forget(l)
		return nil, fmt.Errorf("segment: open %s: %w", tp, spaceError(err))
	}
	return l, nil
}

// forget takes l out of the open logs.
func (d *Dir) forget(l *Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.logs[l.tp] == l {
		delete(d.mu.logs, l.tp)
	}
}

// all is the open logs, for a sweep without the lock.
func (d *Dir) all() []*Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.mu.logs))
}

func (d *Dir) failpoint(name string) error {
	if d.cfg.Failpoint == nil {
		return nil
	}
	return d.cfg.Failpoint(name)
}
