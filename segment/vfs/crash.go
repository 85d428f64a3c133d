package vfs

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashOptions says what a power loss takes with it.
type CrashOptions struct {
	// Keep is the percentage, 0 to 100, of what was not synced that survives.
	// 0, the default, is the harshest disk that keeps its promises; 100 is
	// that of a process crash. In between, each write and each change of a
	// directory is drawn on its own, so later ones may survive earlier ones.
	Keep int
	// Rand draws; needed if Keep is neither 0 nor 100.
	Rand *rand.Rand
}

// sectorSize is what a disk writes as one: a write may survive in part, but
// only in whole sectors.
const sectorSize = 512

// CrashClone returns a file system that m could be found as after a power loss
// at this moment: synced bytes and synced directories as they are, of the rest
// what opts keeps. m itself goes on. In the clone everything is durable and
// nothing is locked.
//
// A write that does not survive whole is lost whole or torn by sectors, and
// reads as zeros where the file has grown over it. Whatever lies in a directory
// that is lost is lost with it.
func (m *Mem) CrashClone(opts CrashOptions) *Mem {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := crash{opts: opts, nodes: make(map[*node]*node), fates: make(map[*dirChange]bool)}
	clone := NewMem()
	clone.mu.root = c.node(m.mu.root)
	return clone
}

type crash struct {
	opts CrashOptions
	// nodes maps each node to its clone, so that a file with two names, which a
	// half-durable rename between directories leaves, stays one file.
	nodes map[*node]*node
	// fates is what was drawn, because one half of a rename hangs on the other.
	fates map[*dirChange]bool
}

// survives draws whether something that was not synced is there after the crash.
func (c *crash) survives() bool {
	switch {
	case c.opts.Keep <= 0:
		return false
	case c.opts.Keep >= 100:
		return true
	}
	return c.opts.Rand.IntN(100) < c.opts.Keep
}

func (c *crash) node(n *node) *node {
	if done := c.nodes[n]; done != nil {
		return done
	}
	clone := &node{modTime: n.modTime}
	c.nodes[n] = clone
	if n.dir != nil {
		clone.dir = c.dir(n.dir)
	} else {
		b := c.file(&n.file)
		clone.file = fileState{cur: b, durable: bytes.Clone(b)}
	}
	return clone
}

func (c *crash) dir(d *dirState) *dirState {
	left := maps.Clone(d.durable)
	for _, change := range d.pending {
		if c.dirChangeSurvives(change) {
			apply(left, change)
		}
	}
	clone := &dirState{cur: make(map[string]*node, len(left))}
	// Sorted, so that the same draws meet the same files.
	for _, name := range slices.Sorted(maps.Keys(left)) {
		clone.cur[name] = c.node(left[name])
	}
	clone.durable = maps.Clone(clone.cur)
	return clone
}

func (c *crash) dirChangeSurvives(change *dirChange) bool {
	fate, drawn := c.fates[change]
	if !drawn {
		fate = change.synced || c.survives()
		if change.after != nil {
			fate = c.dirChangeSurvives(change.after) && fate
		}
		c.fates[change] = fate
	}
	return fate
}

func (c *crash) file(f *fileState) []byte {
	b := bytes.Clone(f.durable)
	for _, change := range f.pending {
		switch {
		case c.survives():
			b = change.applyTo(b)
		case change.data != nil && c.survives():
			b = c.tear(b, change)
		}
	}
	return b
}

// tear applies the sectors of a write that survive.
func (c *crash) tear(b []byte, w fileChange) []byte {
	for len(w.data) > 0 {
		n := min(sectorSize-int(w.off%sectorSize), len(w.data))
		if c.survives() {
			b = fileChange{off: w.off, data: w.data[:n]}.applyTo(b)
		}
		w.off, w.data = w.off+int64(n), w.data[n:]
	}
	return b
}
