package wire

import (
	"sync"
	"syscall"
)

// Sizes of the buffers that a Pool lends.
const (
	size4K   = 4 << 10
	size16K  = 16 << 10
	size64K  = 64 << 10
	size256K = 256 << 10
	size2M   = 2 << 20
)

// freeLarge is how many buffers of 2 MiB a Pool keeps for the next: as many as
// readers run at the same time.
const freeLarge = 8

// Pool lends the buffers that connections read into. Those of 2 MiB and more
// are mappings outside of Go's heap: a mapping takes memory page by page as bytes
// arrive, and gives it back at once, whereas a large slice would wait for the
// garbage collector and let the heap grow to twice of what is used meanwhile.
type Pool struct {
	// Poison overwrites buffers that come back, so that tests find who still
	// looks at them (G5).
	Poison bool

	small [4]sync.Pool // of *[size4K]byte, and so on: a pointer needs no allocation in an interface

	mu struct {
		sync.Mutex
		free [][]byte // of 2 MiB
	}
}

// Get lends a buffer of at least n bytes: of the next size, or, above 2 MiB, of n bytes.
func (p *Pool) Get(n int) ([]byte, error) {
	switch {
	case n <= size4K:
		if b, ok := p.small[0].Get().(*[size4K]byte); ok {
			return b[:], nil
		}
		return make([]byte, size4K), nil
	case n <= size16K:
		if b, ok := p.small[1].Get().(*[size16K]byte); ok {
			return b[:], nil
		}
		return make([]byte, size16K), nil
	case n <= size64K:
		if b, ok := p.small[2].Get().(*[size64K]byte); ok {
			return b[:], nil
		}
		return make([]byte, size64K), nil
	case n <= size256K:
		if b, ok := p.small[3].Get().(*[size256K]byte); ok {
			return b[:], nil
		}
		return make([]byte, size256K), nil
	case n <= size2M:
		p.mu.Lock()
		if k := len(p.mu.free); k > 0 {
			b := p.mu.free[k-1]
			p.mu.free = p.mu.free[:k-1]
			p.mu.Unlock()
			return b, nil
		}
		p.mu.Unlock()
		n = size2M
	}
	return syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

// Put takes a buffer back, which nobody may look at any more.
func (p *Pool) Put(b []byte) {
	if b == nil {
		return
	}
	b = b[:cap(b)]
	if p.Poison {
		for i := range b {
			b[i] = 0xdb
		}
	}
	switch len(b) {
	case size4K:
		p.small[0].Put((*[size4K]byte)(b))
	case size16K:
		p.small[1].Put((*[size16K]byte)(b))
	case size64K:
		p.small[2].Put((*[size64K]byte)(b))
	case size256K:
		p.small[3].Put((*[size256K]byte)(b))
	case size2M:
		p.mu.Lock()
		if len(p.mu.free) < freeLarge {
			p.mu.free = append(p.mu.free, b)
			b = nil
		}
		p.mu.Unlock()
		fallthrough
	default:
		if b != nil {
			// It fails only for what isn't a mapping, and then nothing is lost.
			_ = syscall.Munmap(b)
		}
	}
}

// Close gives the kept mappings back.
func (p *Pool) Close() {
	p.mu.Lock()
	free := p.mu.free
	p.mu.free = nil
	p.mu.Unlock()
	for _, b := range free {
		_ = syscall.Munmap(b)
	}
}

// class is the size of the buffer that Get lends for n.
func class(n int) int {
	switch {
	case n <= size4K:
		return size4K
	case n <= size16K:
		return size16K
	case n <= size64K:
		return size64K
	case n <= size256K:
		return size256K
	case n <= size2M:
		return size2M
	}
	return n
}
