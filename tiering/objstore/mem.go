package objstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Mem is a Store in memory, for tests and simulations.
type Mem struct {
	now func() time.Time
	mu  struct {
		sync.RWMutex
		objects map[string]memObject
	}
}

// memObject is immutable: a reader may keep its bytes.
type memObject struct {
	b       []byte
	written int64 // Unix milliseconds
}

var (
	_ Store   = (*Mem)(nil)
	_ Swapper = (*Mem)(nil)
)

// NewMem makes an empty store.
func NewMem() *Mem { return NewMemAt(time.Now) }

// NewMemAt makes an empty store that takes the time of its writes from now.
func NewMemAt(now func() time.Time) *Mem {
	m := &Mem{now: now}
	m.mu.objects = make(map[string]memObject)
	return m
}

func (m *Mem) Put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	if err := errorsFirst(ctx.Err(), CheckKey(key), checkSize(key, size)); err != nil {
		return err
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(body, 0, size), b); err != nil {
		return fmt.Errorf("objstore: put %s: read the body: %w", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.objects[key] = memObject{b, m.now().UnixMilli()}
	return nil
}

func (m *Mem) Create(ctx context.Context, key string, value []byte) error {
	if err := errorsFirst(ctx.Err(), CheckKey(key)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.mu.objects[key]; ok {
		return fmt.Errorf("objstore: create %s: %w", key, ErrExists)
	}
	m.mu.objects[key] = memObject{bytes.Clone(value), m.now().UnixMilli()}
	return nil
}

func (m *Mem) Swap(ctx context.Context, key string, old, value []byte) error {
	if err := errorsFirst(ctx.Err(), CheckKey(key)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.mu.objects[key]
	if !ok {
		return fmt.Errorf("objstore: swap %s: %w", key, ErrNotFound)
	}
	if !bytes.Equal(o.b, old) {
		return fmt.Errorf("objstore: swap %s: %w", key, ErrChanged)
	}
	m.mu.objects[key] = memObject{bytes.Clone(value), m.now().UnixMilli()}
	return nil
}

func (m *Mem) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := errorsFirst(ctx.Err(), CheckKey(key)); err != nil {
		return nil, err
	}
	m.mu.RLock()
	o, ok := m.mu.objects[key]
	m.mu.RUnlock()
	if !ok {
		return nil, fmt.Errorf("objstore: get %s: %w", key, ErrNotFound)
	}
	off, n, err := Clip(key, off, n, int64(len(o.b)))
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(o.b[off : off+n])), nil
}

func (m *Mem) List(ctx context.Context, prefix string, yield func(Object) error) error {
	m.mu.RLock()
	var found []Object
	for k, o := range m.mu.objects {
		if strings.HasPrefix(k, prefix) {
			found = append(found, Object{Key: k, Size: int64(len(o.b)), ModTime: o.written})
		}
	}
	m.mu.RUnlock()
	slices.SortFunc(found, func(a, b Object) int { return strings.Compare(a.Key, b.Key) })
	for _, o := range found {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := yield(o); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (m *Mem) Delete(ctx context.Context, key string) error {
	if err := errorsFirst(ctx.Err(), CheckKey(key)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.objects, key)
	return nil
}

// Damage replaces the bytes of key by what f makes of a copy of them, as a
// decaying disk would. It tells whether there was such an object.
func (m *Mem) Damage(key string, f func([]byte) []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.mu.objects[key]
	if ok {
		m.mu.objects[key] = memObject{f(bytes.Clone(o.b)), o.written}
	}
	return ok
}

// Keys lists all keys, sorted.
func (m *Mem) Keys() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Sorted(maps.Keys(m.mu.objects))
}

// Clip checks the range that a GetRange asks for against the size of the
// object, and returns it with n resolved. A range that reaches past the end is
// ErrRange, so is one that starts beyond it.
func Clip(key string, off, n, size int64) (int64, int64, error) {
	if n < 0 && off >= 0 && off <= size {
		n = size - off
	}
	if off < 0 || n < 0 || off > size || n > size-off {
		return 0, 0, fmt.Errorf("objstore: get %s: %d bytes from %d of %d: %w", key, n, off, size, ErrRange)
	}
	return off, n, nil
}

// errorsFirst returns the first of errs that is not nil.
func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
