package objstore

import (
	"context"
	"errors"
	"fmt"
)

// Swapper is what taking over a prefix needs beyond a Store. All our
// implementations have it; a foreign one may not, hence the interface of its own.
type Swapper interface {
	// Swap replaces the object under key by value, atomically and only if it
	// still holds old; ErrChanged otherwise, ErrNotFound if it is gone. Both
	// are small: the object is read to compare.
	Swap(ctx context.Context, key string, old, value []byte) error
}

var (
	// ErrChanged: the object is not what the caller of Swap took it for.
	ErrChanged = errors.New("objstore: object has changed")
	// ErrNoSwap: this store can't replace an object conditionally.
	ErrNoSwap = errors.New("objstore: store has no conditional replacement")
)

// MaxSwap is the largest object that Swap compares.
const MaxSwap = 1 << 20

// Swap is s.Swap, for a Store that has it.
func Swap(ctx context.Context, s Store, key string, old, value []byte) error {
	w, ok := s.(Swapper)
	if !ok {
		return fmt.Errorf("objstore: swap %s: %w", key, ErrNoSwap)
	}
	return w.Swap(ctx, key, old, value)
}
