package tiering

import (
	"context"
	"errors"
	"fmt"

	"firn/segment"
)

var _ resolver = (*Log)(nil)

// advance takes note of a pointer, and of its manifest if that is at hand. Only
// a newer one replaces what is known.
func (l *Log) advance(ptr Pointer, m *Manifest) {
	if !ptr.Exists() {
		return
	}
	l.mu.Lock()
	seen := l.mu.seen
	if ptr.Sequence >= seen {
		v := l.view.Load()
		if m == nil && v.manifest != nil && v.ptr.ManifestKey == ptr.ManifestKey {
			m = v.manifest
		}
		l.view.Store(&view{ptr, m})
		l.mu.seen = ptr.Sequence
	}
	l.mu.Unlock()
	if ptr.Sequence > seen {
		l.saveSeen(ptr.Sequence)
	}
}

// refresh reads the pointer from the metadata store, and takes note of it.
func (l *Log) refresh(ctx context.Context) (Pointer, error) {
	ptr, err := l.loadPointer(ctx)
	if err == nil {
		l.advance(ptr, nil)
	}
	return ptr, err
}

// loadPointer reads the pointer from the metadata store. One that is older than what
// was seen here before it was asked for means that the store was rolled back (Z1);
// what others have learned since proves nothing, for the pointer may move meanwhile.
func (l *Log) loadPointer(ctx context.Context) (Pointer, error) {
	l.mu.Lock()
	seen := l.mu.seen
	l.mu.Unlock()
	ptr, err := l.a.pointers.LoadPointer(ctx, l.part)
	switch {
	case err != nil:
		return ptr, fmt.Errorf("load pointer: %w", err)
	case !ptr.Exists() && seen > 0:
		return ptr, fmt.Errorf("%w: %s has no pointer, sequence %d was seen", ErrRolledBack, l.part, seen)
	case ptr.Exists() && ptr.Sequence < seen:
		return ptr, fmt.Errorf("%w: %s is at sequence %d, %d was seen", ErrRolledBack, l.part, ptr.Sequence, seen)
	}
	return ptr, nil
}

func (l *Log) manifest() (*Manifest, <-chan struct{}, error) {
	v := l.view.Load()
	if !v.ptr.Exists() {
		return nil, nil, fmt.Errorf("%w: %s has no pointer", ErrUnavailable, l.part)
	}
	if v.manifest != nil {
		return v.manifest, nil, nil
	}
	pending, err := l.a.loader.once(v.ptr.ManifestKey, func(ctx context.Context) error {
		m, err := fetchManifest(ctx, l.a.store, l.part, v.ptr)
		if err == nil {
			l.learn(v.ptr, m)
			return nil
		}
		if errors.Is(err, ErrLost) {
			// It may have been superseded and deleted since: resolve anew once.
			ptr, rerr := l.refresh(ctx)
			if rerr != nil {
				return fmt.Errorf("%w: %w", ErrUnavailable, rerr)
			}
			if ptr.ManifestKey != v.ptr.ManifestKey {
				return nil // who waits asks again, for the new one
			}
		}
		return err
	})
	return nil, pending, err
}

// learn keeps the manifest of ptr, if that is still the newest.
func (l *Log) learn(ptr Pointer, m *Manifest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.view.Load(); v.ptr.ManifestKey == ptr.ManifestKey && v.manifest == nil {
		l.view.Store(&view{v.ptr, m})
	}
}

func (l *Log) page(_ *Manifest, ref *PageRef) (*Page, <-chan struct{}, error) {
	return l.a.loader.page(l.part, ref)
}

func (l *Log) reload(*Manifest) *load {
	return l.a.loader.start("pointer:"+l.part.Dir(), func(ctx context.Context) error {
		_, err := l.refresh(ctx)
		return err
	})
}

func (l *Log) aborted(first, below int64) ([]segment.AbortedTxn, error) {
	return l.local.Aborted(first, below)
}
