package tiering

import (
	"context"
	"sync"
)

// MemPointers keeps pointers in memory, with the fence that a metadata store
// has: for tests and simulations.
type MemPointers struct {
	mu struct {
		sync.Mutex
		pointers map[Partition]Pointer
		epochs   map[Partition]int32 // of the leader that the partition's state names
		gone     map[TopicID]bool
	}
}

var _ Pointers = (*MemPointers)(nil)

// NewMemPointers makes an empty store.
func NewMemPointers() *MemPointers {
	m := &MemPointers{}
	m.mu.pointers = map[Partition]Pointer{}
	m.mu.epochs = map[Partition]int32{}
	m.mu.gone = map[TopicID]bool{}
	return m
}

// Elect makes epoch the partition's leader epoch: writes of any other are
// fenced from now on.
func (m *MemPointers) Elect(p Partition, epoch int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.epochs[p] = epoch
}

// DeleteTopic fences all partitions of a topic for good.
func (m *MemPointers) DeleteTopic(id TopicID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.gone[id] = true
}

func (m *MemPointers) LoadPointer(ctx context.Context, p Partition) (Pointer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ptr, ok := m.mu.pointers[p]; ok {
		return ptr, ctx.Err()
	}
	return Pointer{Version: NoPointer}, ctx.Err()
}

func (m *MemPointers) SwapPointer(ctx context.Context, p Partition, epoch int32, next Pointer) (Pointer, error) {
	if err := ctx.Err(); err != nil {
		return Pointer{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, led := m.mu.epochs[p]; !led || e != epoch || m.mu.gone[p.ID] {
		return Pointer{}, ErrFenced
	}
	version := NoPointer
	if ptr, ok := m.mu.pointers[p]; ok {
		version = ptr.Version
	}
	if next.Version != version {
		return Pointer{}, ErrMoved
	}
	next.Version++
	m.mu.pointers[p] = next
	return next, nil
}
