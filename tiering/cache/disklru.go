package cache

// diskFile is a file of the disk cache.
type diskFile struct {
	key        diskKey
	n          int
	sum        uint32
	list       *diskList
	prev, next *diskFile
}

// diskList is a list of files, the one that goes first at its head.
type diskList struct {
	head, tail *diskFile
	bytes      int64
}

func (l *diskList) push(f *diskFile) {
	if f.list != nil {
		f.list.remove(f)
	}
	f.list, f.prev = l, l.tail
	if l.tail != nil {
		l.tail.next = f
	} else {
		l.head = f
	}
	l.tail = f
	l.bytes += int64(f.n)
}

func (l *diskList) remove(f *diskFile) {
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		l.head = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	} else {
		l.tail = f.prev
	}
	f.list, f.prev, f.next = nil, nil, nil
	l.bytes -= int64(f.n)
}

func (d *disk) sizeLocked() int64 { return d.mu.probation.bytes + d.mu.protected.bytes }

// hitLocked moves a file that is read again up. What no longer fits above goes
// down, not out.
func (d *disk) hitLocked(f *diskFile) {
	d.mu.protected.push(f)
	for d.mu.protected.bytes > d.max/5*4 && d.mu.protected.head != f {
		d.mu.probation.push(d.mu.protected.head)
	}
}

// evictLocked takes files out of the index until n more bytes fit, and returns
// their paths.
func (d *disk) evictLocked(n int64) (paths []string) {
	for d.sizeLocked()+n > d.max {
		f := d.mu.probation.head
		if f == nil {
			f = d.mu.protected.head
		}
		if f == nil {
			break
		}
		d.dropLocked(f)
		d.met.evicted(diskTier)
		paths = append(paths, d.path(f.key, f.n, f.sum))
	}
	d.met.diskBytes.Set(float64(d.sizeLocked()))
	return paths
}

func (d *disk) dropLocked(f *diskFile) {
	f.list.remove(f)
	delete(d.mu.files, f.key)
}

// ghosts remembers which blocks the store has lately delivered, without them.
type ghosts struct {
	max       int
	now, then map[diskKey]struct{} // then is the generation before
}

// touch notes a block and tells whether it was known.
func (g *ghosts) touch(k diskKey) bool {
	_, hot := g.now[k]
	_, old := g.then[k]
	if g.now == nil || len(g.now) >= g.max/2 {
		g.then, g.now = g.now, make(map[diskKey]struct{})
	}
	g.now[k] = struct{}{}
	return hot || old
}
