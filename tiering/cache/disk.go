package cache

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"firn/segment/vfs"
)

// disk is the second tier: a file per block. The name says all that is known of
// it, so the index is rebuilt from the names alone:
//
//	<dir>/<hh>/<hash of key and offset, 32 hex>-<block>-<bytes>-<crc32c>
//
// It admits what the store had to deliver twice, so that one long scan leaves it
// alone, and evicts by segmented LRU: a block that is read again moves from probation to
// the protected four fifths.
type disk struct {
	fs  vfs.FS
	dir string
	max int64
	min int64 // bytes to stay free; see Config.MinFree
	met *metrics
	log *slog.Logger

	writes chan diskWrite // full: the block is not kept, which costs a GET some day

	mu struct {
		sync.Mutex
		files     map[diskKey]*diskFile
		probation diskList
		protected diskList
		ghosts    ghosts
		writing   map[diskKey]struct{}
		failed    bool // an I/O error was logged; until one succeeds
	}
}

// diskKey names a block: hash of the object, and which block.
type diskKey struct {
	object [16]byte
	block  int32
}

type diskWrite struct {
	key diskKey
	sum uint32
	b   *Block
}

const diskQueue = 8

func hashObject(id objectID) (h [16]byte) {
	s := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(id.key), uint64(id.off)))
	copy(h[:], s[:])
	return h
}

// diskKey is the name of block i of obj on the disk.
func (obj *object) diskKey(i int) diskKey { return diskKey{obj.hash, int32(i)} }

func openDisk(cfg *Config, met *metrics) (*disk, error) {
	fsys, dir, max := cfg.FS, cfg.Dir, cfg.Disk
	d := &disk{fs: fsys, dir: dir, max: max, min: cfg.MinFree, met: met, log: cfg.Log, writes: make(chan diskWrite, diskQueue)}
	d.mu.files = make(map[diskKey]*diskFile)
	d.mu.writing = make(map[diskKey]struct{})
	d.mu.ghosts.max = int(max/BlockSize)*4 + 1024
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	subs, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, sub := range subs {
		if !sub.IsDir() || len(sub.Name()) != 2 {
			continue
		}
		files, err := fsys.ReadDir(filepath.Join(dir, sub.Name()))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			d.found(filepath.Join(dir, sub.Name(), f.Name()), f)
		}
	}
	d.mu.Lock()
	drop := d.evictLocked(0)
	d.mu.Unlock()
	d.remove(drop)
	return d, nil
}

// found takes a file over, or removes it if it is not one of ours, finished.
func (d *disk) found(path string, f fs.DirEntry) {
	key, n, sum, ok := parseName(f.Name())
	if !ok || d.path(key, n, sum) != path {
		if strings.HasPrefix(f.Name(), "tmp-") {
			d.remove([]string{path})
		}
		return
	}
	if old := d.mu.files[key]; old != nil {
		d.remove([]string{path})
		return
	}
	e := &diskFile{key: key, n: n, sum: sum}
	d.mu.files[key] = e
	d.mu.probation.push(e)
}

func (d *disk) path(key diskKey, n int, sum uint32) string {
	h := hex.EncodeToString(key.object[:])
	return filepath.Join(d.dir, h[:2], fmt.Sprintf("%s-%d-%d-%08x", h, key.block, n, sum))
}

func parseName(name string) (key diskKey, n int, sum uint32, ok bool) {
	h, rest, _ := strings.Cut(name, "-")
	b, err := hex.DecodeString(h)
	if err != nil || len(b) != len(key.object) {
		return key, 0, 0, false
	}
	copy(key.object[:], b)
	if _, err := fmt.Sscanf(rest, "%d-%d-%08x", &key.block, &n, &sum); err != nil || n <= 0 || n > BlockSize || key.block < 0 {
		return key, 0, 0, false
	}
	return key, n, sum, true
}

// has tells whether the disk says it has the block, with that content.
func (d *disk) has(key diskKey, sum uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.mu.files[key]
	return f != nil && f.sum == sum
}

// read fills b with the block. False if it is not there any more, or damaged, in
// which case it is dropped (D20).
func (d *disk) read(key diskKey, sum uint32, b []byte) bool {
	d.mu.Lock()
	f := d.mu.files[key]
	if f == nil || f.sum != sum || f.n != len(b) {
		d.mu.Unlock()
		return false
	}
	d.hitLocked(f)
	d.mu.Unlock()
	err := d.readFile(d.path(key, f.n, f.sum), b)
	if err == nil && Sum(b) == sum {
		return true
	}
	if err == nil {
		d.met.corrupt.Inc()
		err = errors.New("wrong checksum")
	}
	d.mu.Lock()
	known := d.mu.files[key] == f
	if known {
		d.dropLocked(f)
	}
	d.mu.Unlock()
	if !known {
		return false // evicted meanwhile
	}
	d.log.Warn("dropped a block of the disk cache", "path", d.path(key, f.n, f.sum), "err", err)
	d.remove([]string{d.path(key, f.n, f.sum)})
	return false
}

func (d *disk) readFile(path string, b []byte) error {
	f, err := d.fs.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(b, 0)
	return err
}

// secondTouch notes that the store delivered a block, and tells whether it has
// lately done so before.
func (d *disk) secondTouch(key diskKey) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.ghosts.touch(key)
}

// offer gives the writer a block. It does not wait: if the writer is behind, the
// block is not kept.
func (d *disk) offer(key diskKey, sum uint32, b *Block) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, busy := d.mu.writing[key]; busy || d.mu.files[key] != nil {
		return
	}
	b.Retain()
	select {
	case d.writes <- diskWrite{key, sum, b}:
		d.mu.writing[key] = struct{}{}
	default:
		b.refs.Add(-1) // the table has its own: this can't be the last
	}
}

// run writes what is offered, until ctx ends.
func (d *disk) run(ctx context.Context) {
	for {
		select {
		case w := <-d.writes:
			d.write(w)
		case <-ctx.Done():
			for {
				select {
				case w := <-d.writes:
					w.b.Release()
				default:
					return
				}
			}
		}
	}
}

func (d *disk) write(w diskWrite) {
	defer w.b.Release()
	b := w.b.Bytes()
	room := int64(len(b))
	short := d.short()
	d.mu.Lock()
	if short {
		room = d.max - d.sizeLocked() + diskGive
	}
	drop := d.evictLocked(room)
	if short {
		delete(d.mu.writing, w.key)
	}
	d.mu.Unlock()
	d.remove(drop)
	if short {
		return
	}

	err := d.writeFile(d.path(w.key, len(b), w.sum), b)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.writing, w.key)
	if err != nil {
		if !d.mu.failed {
			d.log.Warn("disk cache does not take a block", "dir", d.dir, "err", err)
		}
		d.mu.failed = true
		return
	}
	d.mu.failed = false
	f := &diskFile{key: w.key, n: len(b), sum: w.sum}
	d.mu.files[w.key] = f
	d.mu.probation.push(f)
	d.met.diskBytes.Set(float64(d.sizeLocked()))
}

// diskGive is how much the cache gives back for each block that it can't take
// because the file system is short of space.
const diskGive = 16 << 20

// short tells whether the file system has less left than is to stay free.
func (d *disk) short() bool {
	if d.min < 0 {
		return false
	}
	free, total, err := d.fs.Free(d.dir)
	if err != nil {
		return false // then the write will tell
	}
	keep := d.min
	if keep == 0 {
		keep = min(total/10, 10<<30)
	}
	return free < keep
}

// writeFile makes the file appear whole or not at all, as far as a crash of the
// process goes. A power failure may leave other bytes: the checksum tells.
func (d *disk) writeFile(path string, b []byte) error {
	if err := d.fs.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), "tmp-"+filepath.Base(path))
	f, err := d.fs.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = d.fs.Rename(tmp, path)
	}
	if err != nil {
		d.remove([]string{tmp})
	}
	return err
}

func (d *disk) remove(paths []string) {
	for _, p := range paths {
		if err := d.fs.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.log.Warn("disk cache keeps a file it should not", "path", p, "err", err)
		}
	}
}
