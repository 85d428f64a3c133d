package cache

import (
	"fmt"
	"hash/crc32"
	"sync/atomic"
)

// BlockSize is the unit of checksums and of the cache.
const BlockSize = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the checksum of a block: CRC-32C.
func Sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Object is an immutable stretch of bytes in the store, and what each of its
// blocks must hold. It is read-only once it has been handed to a Cache.
type Object struct {
	Key  string
	Off  int64    // where it begins in the object under Key
	Size int64    // bytes
	Sums []uint32 // of each block of BlockSize; the last one may be shorter
}

// Blocks is the number of blocks.
func (o *Object) Blocks() int { return len(o.Sums) }

// blockLen is the number of bytes of block i.
func (o *Object) blockLen(i int) int {
	return int(min(BlockSize, o.Size-int64(i)*BlockSize))
}

// Check tells whether there is a checksum for each block.
func (o *Object) Check() error {
	if o.Size <= 0 || o.Off < 0 || int64(len(o.Sums)) != (o.Size+BlockSize-1)/BlockSize {
		return fmt.Errorf("cache: %s: %d checksums for %d bytes from %d", o.Key, len(o.Sums), o.Size, o.Off)
	}
	return nil
}

// Block is a verified block, pinned in memory until Release.
type Block struct {
	b    []byte
	refs atomic.Int32
	c    *Cache
}

// Bytes is the block's content. It must not be changed, nor used after Release.
func (b *Block) Bytes() []byte { return b.b }

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
