package broker

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// memory is the budget that large requests of all connections share
// (queued.max.request.bytes). Who doesn't get its share waits in line, without
// reading from its connection.
type memory struct {
	sem   *semaphore.Weighted
	total int
}

func newMemory(total int) *memory {
	return &memory{sem: semaphore.NewWeighted(int64(total)), total: total}
}

// Acquire waits until n bytes are free. A request larger than the whole budget
// gets through alone.
func (m *memory) Acquire(ctx context.Context, n int) error {
	return m.sem.Acquire(ctx, int64(min(n, m.total)))
}

// Release gives n bytes back.
func (m *memory) Release(n int) { m.sem.Release(int64(min(n, m.total))) }
