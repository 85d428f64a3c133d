package cache

import (
	"fmt"
	"hash/crc32"

	"firn/segment/vfs"
	"firn/tiering/objstore"
)

// source is the GET that a load reads from; without a body it is between two.
type source struct {
	body *body
	// file is the file that the object turned out to be, if it is one; the load's
	// object begins at base in it.
	file *file
	base int64
}

func (s *source) close() {
	if s.body != nil {
		s.body.close()
		s.file.release()
		*s = source{}
	}
}

// fill fills b with the load's next block, verified. The block that it returns is
// another one if b was found wanting and may have been handed on in part.
func (c *Cache) fill(l *load, src *source, b *Block) (*Block, error) {
	i := l.next
	if l.disk {
		c.buffer(b)
		if c.disk.read(l.obj.diskKey(i), l.obj.Sums[i], b.b) {
			b.upto.Store(int64(b.n))
			return b, nil
		}
		// Gone or damaged (D20): the store has it.
		c.met.looked(diskTier, false)
		c.mu.Lock()
		l.disk = false
		c.mu.reads--
		c.mu.gets++
		c.mu.Unlock()
	}
	corrupt := 0
	err := c.get.try(c.ctx, func() error {
		if src.body == nil {
			if b.file != nil { // what was good of it need not be in the file that we get now
				b = c.renew(l, b)
			}
			if err := c.connect(l, src, b); err != nil {
				return err
			}
		}
		var good bool
		var err error
		if src.file != nil && b.b == nil {
			b.lie(src.file, src.base+int64(i)*BlockSize)
			good, err = c.inspect(l, src.body, b)
		} else {
			c.buffer(b)
			good, err = c.receive(l, src.body, b)
		}
		if !good {
			c.met.corrupt.Inc()
			err = fmt.Errorf("cache: block %d of %s: %w", i, l.obj.Key, ErrUnavailable)
			if corrupt++; corrupt == 2 {
				err = fmt.Errorf("block %d of %s: %w", i, l.obj.Key, ErrCorrupt)
			}
		}
		if err != nil {
			src.close()
		}
		return err
	})
	return b, err
}

// connect asks the store for what is missing of b, and what follows it.
func (c *Cache) connect(l *load, src *source, b *Block) error {
	c.mu.Lock()
	off := int64(l.next)*BlockSize + b.upto.Load()
	n := min(int64(l.end)*BlockSize, l.obj.Size) - off
	urgent := l.demanded()
	c.mu.Unlock()
	body, err := c.get.open(c.ctx, l.obj.Key, l.obj.Off+off, n, urgent)
	if err != nil {
		return err
	}
	src.body = body
	if f, at, ok := objstore.TakeFile(body.rc); ok {
		if f, ok := f.(vfs.File); ok {
			src.file, src.base = keep(f), at-off
			c.mu.Lock()
			l.obj.filed = true
			c.mu.Unlock()
			return nil
		}
		f.Close() // never: then the stream goes on without it
	}
	return nil
}

// renew puts another block in the place of b, with nothing in it yet.
func (c *Cache) renew(l *load, b *Block) *Block {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := c.takeLocked(b.n)
	fresh.from = b.from
	fresh.upto.Store(int64(b.from))
	l.blk = fresh
	if b.refs.Add(-1) == 0 {
		c.reclaimLocked(b)
	}
	return fresh
}

// receive reads the rest of b, and verifies it as it comes, while it is in the
// processor's caches. It reports whether the checksums held.
func (c *Cache) receive(l *load, body *body, b *Block) (good bool, err error) {
	good = true
	from := int(b.upto.Load())
	err = body.readFull(b.b[from:], func(n int) bool {
		upto, ok := l.obj.verified(b.b, l.next, int(b.upto.Load()), from+n)
		c.arrived(l, b, upto)
		good = ok
		return ok
	})
	return good, err
}

// inspect is receive for a block that lies in a file: it passes through a small
// buffer, which stays in the processor's caches, and is served from the file.
func (c *Cache) inspect(l *load, body *body, b *Block) (good bool, err error) {
	buf, _ := c.passing.Get().(*[readSize]byte)
	if buf == nil {
		buf = new([readSize]byte)
	}
	defer c.passing.Put(buf)
	good = true
	from := int(b.upto.Load())
	start, sum := from, uint32(0) // buf begins at start; sum is of what precedes it
	space := func(n int) []byte { return buf[from+n-start : min(readSize, b.n-start)] }
	err = body.read(b.n-from, space, func(n int) bool {
		upto := from + n
		if upto < b.n && upto-start < readSize {
			return true
		}
		part := buf[:upto-start]
		if l.obj.Units == nil {
			sum = crc32.Update(sum, castagnoli, part)
			good = upto < b.n || sum == l.obj.Sums[l.next]
		} else {
			good = l.obj.unitsHold(part, l.next, start)
		}
		if start = upto; good && (l.obj.Units != nil || upto == b.n) {
			c.arrived(l, b, upto)
		}
		return good
	})
	return good, err
}

// arrived notes that b is here and verified before upto, and wakes those for whom
// that is enough.
func (c *Cache) arrived(l *load, b *Block, upto int) {
	b.upto.Store(int64(upto))
	if l.parts.Load() && upto < b.n {
		c.mu.Lock()
		if e := l.obj.blocks[l.next]; e.ch != nil && upto >= e.least {
			e.wake()
		}
		c.mu.Unlock()
	}
}
