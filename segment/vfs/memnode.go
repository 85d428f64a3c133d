package vfs

import (
	"io/fs"
	"time"
)

// node is a file or a directory. What cur holds is what calls see; what durable
// holds is what is certain after a crash; pending leads from the one to the
// other, in order.
type node struct {
	modTime time.Time
	dir     *dirState // nil for a file
	file    fileState
}

type dirState struct {
	cur, durable map[string]*node
	pending      []*dirChange
}

// dirChange is one atomic change of one directory: name goes, newName comes.
type dirChange struct {
	remove string // "" for nothing
	add    string // "" for nothing
	node   *node  // what add names
	// after is the other half of a rename between directories: this removal is
	// lost whenever that addition is, for no file system loses the file.
	after  *dirChange
	synced bool
}

// certain tells whether c survives every crash.
func (c *dirChange) certain() bool { return c.synced && (c.after == nil || c.after.certain()) }

func newDir() *node {
	return &node{modTime: time.Now(), dir: &dirState{cur: map[string]*node{}, durable: map[string]*node{}}}
}

func (d *dirState) change(c *dirChange) {
	apply(d.cur, c)
	d.pending = append(d.pending, c)
}

func apply(entries map[string]*node, c *dirChange) {
	if c.remove != "" {
		delete(entries, c.remove)
	}
	if c.add != "" {
		entries[c.add] = c.node
	}
}

// sync makes the pending changes durable. One that waits for the other half of
// its rename holds up those behind it, for they may be about the same name.
func (d *dirState) sync() {
	for _, c := range d.pending {
		c.synced = true
	}
	for len(d.pending) > 0 && d.pending[0].certain() {
		apply(d.durable, d.pending[0])
		d.pending = d.pending[1:]
	}
}

func (n *node) info() Info {
	return Info{Size: int64(len(n.file.cur)), ModTime: n.modTime, IsDir: n.dir != nil}
}

// memInfo is an Info as package fs wants it.
type memInfo struct {
	name string
	info Info
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.info.Size }
func (i memInfo) ModTime() time.Time { return i.info.ModTime }
func (i memInfo) IsDir() bool        { return i.info.IsDir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.info.IsDir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
