package cache

import (
	"fmt"
	"hash/crc32"
	"sync/atomic"

	"firn/segment/vfs"
)

// BlockSize is the unit of checksums and of the cache.
const BlockSize = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// UnitSize is the unit of verification where an Object tells checksums for it:
// what a reader has jumped to is handed on before its block is whole.
const UnitSize = 64 << 10

// Sum is the checksum of a block: CRC-32C.
func Sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Object is an immutable stretch of bytes in the store, and what each of its
// blocks must hold. It is read-only once it has been handed to a Cache.
type Object struct {
	Key  string
	Off  int64    // where it begins in the object under Key
	Size int64    // bytes
	Sums []uint32 // of each block of BlockSize; the last one may be shorter
	// Units are the checksums of each UnitSize. nil: not known, a block is
	// verified as a whole.
	Units []uint32
}

// Blocks is the number of blocks.
func (o *Object) Blocks() int { return len(o.Sums) }

// blockLen is the number of bytes of block i.
func (o *Object) blockLen(i int) int {
	return int(min(BlockSize, o.Size-int64(i)*BlockSize))
}

// Check tells whether there is a checksum for each block, and for each unit if
// there are any.
func (o *Object) Check() error {
	if o.Size <= 0 || o.Off < 0 || int64(len(o.Sums)) != (o.Size+BlockSize-1)/BlockSize {
		return fmt.Errorf("cache: %s: %d checksums for %d bytes from %d", o.Key, len(o.Sums), o.Size, o.Off)
	}
	if o.Units != nil && int64(len(o.Units)) != (o.Size+UnitSize-1)/UnitSize {
		return fmt.Errorf("cache: %s: %d checksums of units for %d bytes", o.Key, len(o.Units), o.Size)
	}
	return nil
}

// verified is how far the first n bytes of block i, of which those below from
// are known to be good, are what they should be. It stands on the border of a
// unit, or at the block's end.
func (o *Object) verified(b []byte, i, from, n int) (int, bool) {
	if o.Units == nil {
		if n < len(b) {
			return from, true
		}
		if Sum(b) != o.Sums[i] {
			return from, false
		}
		return n, true
	}
	for from < n {
		end := min(from+UnitSize, len(b))
		if end > n {
			break
		}
		if Sum(b[from:end]) != o.Units[(i*BlockSize+from)/UnitSize] {
			return from, false
		}
		from = end
	}
	return from, true
}

// unitsHold tells whether part, which is what block i holds from unit border from
// to another one or to its end, is what it should be.
func (o *Object) unitsHold(part []byte, i, from int) bool {
	for u := (i*BlockSize + from) / UnitSize; len(part) > 0; u++ {
		n := min(UnitSize, len(part))
		if Sum(part[:n]) != o.Units[u] {
			return false
		}
		part = part[n:]
	}
	return true
}

// Block is a block, pinned until Release: in memory, or in a file that was found
// to hold it. It may be on its way still: Has tells what of it is here.
type Block struct {
	n    int
	b    []byte
	file *file        // instead of b
	off  int64        // of the block in file
	from int          // what lies before is not brought
	upto atomic.Int64 // what lies before this, from from on, is here and verified
	refs atomic.Int32
	c    *Cache
}

// Len is the number of its bytes.
func (b *Block) Len() int { return b.n }

// Bytes is the block's content, as far as the block has it; nil if it lies in a
// file. It must not be changed, nor used after Release.
func (b *Block) Bytes() []byte { return b.b }

// File is where the block lies if it is not in memory: the file, which stays open
// until Release, and where in it the block begins.
func (b *Block) File() (f vfs.File, off int64) {
	if b.file == nil {
		return nil, 0
	}
	return b.file.File, b.off
}

// Copy fills p with what the block holds from at on, wherever it lies.
func (b *Block) Copy(p []byte, at int) error {
	if b.file == nil {
		copy(p, b.b[at:])
		return nil
	}
	if _, err := b.file.ReadAt(p, b.off+int64(at)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// Has tells whether bytes [from, to) of the block are here, verified (T5).
func (b *Block) Has(from, to int) bool { return from >= b.from && int64(to) <= b.upto.Load() }

// Retain adds a pin.
func (b *Block) Retain() { b.refs.Add(1) }

// Release takes a pin off. The last one gives the memory back.
func (b *Block) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		b.c.reclaim(b)
	case n < 0:
		panic("cache: block released twice")
	}
}

// file is a file that blocks lie in. It is closed with the last of them, which
// waits for nothing, for it is only read.
type file struct {
	vfs.File
	refs atomic.Int32
}

// keep takes f over, with one reference.
func keep(f vfs.File) *file {
	k := &file{File: f}
	k.refs.Store(1)
	return k
}

func (f *file) release() {
	if f != nil && f.refs.Add(-1) == 0 {
		f.Close()
	}
}

// lie says that the block lies in f, from off on.
func (b *Block) lie(f *file, off int64) {
	f.refs.Add(1)
	b.file, b.off = f, off
}

// pinned tells whether anybody but the table holds the block.
func (b *Block) pinned() bool { return b.refs.Load() > 1 }

// pool keeps whole buffers for the next block. Short blocks, the ends of
// objects, are left to the garbage collector. Guarded by Cache.mu.
type pool struct {
	free   [][]byte
	poison bool // tests: what is used after Release shows
}

func (p *pool) get(n int) []byte {
	if n <= BlockSize/2 {
		return make([]byte, n)
	}
	if k := len(p.free); k > 0 {
		b := p.free[k-1]
		p.free[k-1] = nil
		p.free = p.free[:k-1]
		return b[:n]
	}
	return make([]byte, n, BlockSize)
}

func (p *pool) put(b []byte) {
	if p.poison {
		b = b[:cap(b)]
		for i := range b {
			b[i] = 0xDB
		}
	}
	if cap(b) == BlockSize {
		p.free = append(p.free, b)
	}
}

// trim gives half of the idle buffers back, rounded up.
func (p *pool) trim() {
	keep := len(p.free) / 2
	clear(p.free[keep:])
	p.free = p.free[:keep]
}
