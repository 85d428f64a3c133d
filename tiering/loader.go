package tiering

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"firn/tiering/objstore"
)

// loader fetches manifests and pages: each once, whoever asks, in a goroutine
// of its own that outlives who asked. Pages are kept, the least recently used
// go; a manifest is kept by its Log.
type loader struct {
	store objstore.Store
	ctx   context.Context // ends with the Archive; no request's
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu struct {
		sync.Mutex
		loads map[string]*load
		pages map[string]*list.Element // of *cachedPage
		lru   list.List
	}
}

// load is a fetch under way, or one that failed not long ago.
type load struct {
	done   chan struct{}
	err    error     // set before done is closed
	failed time.Time // zero while under way
}

type cachedPage struct {
	key  string
	page *Page
}

const (
	// pagesKept bounds the pages in memory, about 32 KiB each.
	pagesKept = 128
	// loadBackoff is how long the answer to a failed fetch is its error; then
	// asking starts another one.
	loadBackoff = 500 * time.Millisecond
	// loadTimeout bounds one fetch.
	loadTimeout = 30 * time.Second
	// notFoundRetries: a store may not show an object right after its PUT (D17).
	notFoundRetries = 3
)

func newLoader(store objstore.Store) *loader {
	ld := &loader{store: store}
	ld.ctx, ld.stop = context.WithCancel(context.Background())
	ld.mu.loads = map[string]*load{}
	ld.mu.pages = map[string]*list.Element{}
	return ld
}

func (ld *loader) close() {
	ld.stop()
	ld.wg.Wait()
}

// once starts fetch under key unless it is under way, and returns its channel;
// or the error of the last one for a while.
func (ld *loader) once(key string, fetch func(context.Context) error) (<-chan struct{}, error) {
	l := ld.start(key, fetch)
	select {
	case <-l.done:
		if l.err != nil {
			return nil, l.err
		}
	default:
	}
	return l.done, nil
}

// start is the fetch under key that is under way, or failed not long ago; else a
// new one.
func (ld *loader) start(key string, fetch func(context.Context) error) *load {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if l := ld.mu.loads[key]; l != nil && (l.failed.IsZero() || time.Since(l.failed) < loadBackoff) {
		return l
	}
	if ld.ctx.Err() != nil {
		return failedLoad(fmt.Errorf("%w: archive is closed", ErrUnavailable))
	}
	l := &load{done: make(chan struct{})}
	ld.mu.loads[key] = l
	ld.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ld.ctx, loadTimeout)
		defer cancel()
		err := fetch(ctx)
		ld.mu.Lock()
		defer ld.mu.Unlock()
		if err != nil {
			l.err, l.failed = err, time.Now()
			ld.pruneLocked()
		} else {
			delete(ld.mu.loads, key)
		}
		close(l.done)
	})
	return l
}

// failedLoad is a load that is over.
func failedLoad(err error) *load {
	l := &load{done: make(chan struct{}), err: err, failed: time.Now()}
	close(l.done)
	return l
}

// pruneLocked forgets failures that nobody asked about again.
func (ld *loader) pruneLocked() {
	if len(ld.mu.loads) < 1024 {
		return
	}
	for key, l := range ld.mu.loads {
		if !l.failed.IsZero() && time.Since(l.failed) > loadBackoff {
			delete(ld.mu.loads, key)
		}
	}
}

// page returns the page that ref names, or what is pending.
func (ld *loader) page(p Partition, ref *PageRef) (*Page, <-chan struct{}, error) {
	key := ref.Key(p)
	ld.mu.Lock()
	if e := ld.mu.pages[key]; e != nil {
		ld.mu.lru.MoveToFront(e)
		page := e.Value.(*cachedPage).page
		ld.mu.Unlock()
		return page, nil, nil
	}
	ld.mu.Unlock()
	at := *ref // not to keep a manifest alive
	pending, err := ld.once(key, func(ctx context.Context) error {
		page, err := fetchPage(ctx, ld.store, p, &at)
		if err == nil {
			ld.keep(key, page)
		}
		return err
	})
	return nil, pending, err
}

func (ld *loader) keep(key string, page *Page) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if ld.mu.pages[key] != nil {
		return
	}
	ld.mu.pages[key] = ld.mu.lru.PushFront(&cachedPage{key, page})
	for ld.mu.lru.Len() > pagesKept {
		last := ld.mu.lru.Back()
		delete(ld.mu.pages, last.Value.(*cachedPage).key)
		ld.mu.lru.Remove(last)
	}
}

// fetchManifest reads the manifest that ptr names.
func fetchManifest(ctx context.Context, store objstore.Store, p Partition, ptr Pointer) (*Manifest, error) {
	if ptr.ManifestSize <= 0 || ptr.ManifestSize > maxManifestSize {
		return nil, fmt.Errorf("%w: pointer of %s names a manifest of %d bytes", ErrLost, p, ptr.ManifestSize)
	}
	b, err := fetchExact(ctx, store, ptr.ManifestKey, ptr.ManifestSize, ptr.ManifestCRC)
	if err != nil {
		return nil, err
	}
	m, err := DecodeManifest(b)
	if err == nil {
		err = m.Check(p, ptr)
	}
	if err != nil {
		return nil, readError(ptr.ManifestKey, err)
	}
	return m, nil
}

// fetchPage reads the page that ref names.
func fetchPage(ctx context.Context, store objstore.Store, p Partition, ref *PageRef) (*Page, error) {
	b, err := fetchExact(ctx, store, ref.Key(p), ref.ObjectSize, ref.ObjectCRC)
	if err != nil {
		return nil, err
	}
	page, err := DecodePage(b)
	if err == nil {
		err = page.Check(p, ref)
	}
	if err != nil {
		return nil, readError(ref.Key(p), err)
	}
	return page, nil
}

// readError is what a reader hears of an object that doesn't decode: damage is a
// loss, a version from the future is not.
func readError(key string, err error) error {
	if errors.Is(err, ErrVersion) {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, key, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrLost, key, err)
}

// fetchExact reads an object, with another try where it isn't there yet or its
// bytes are wrong (T5), and says whether it is lost or can't be had now.
func fetchExact(ctx context.Context, store objstore.Store, key string, size int64, crc uint32) ([]byte, error) {
	for try := 1; ; try++ {
		b, err := getExact(ctx, store, key, size, crc)
		switch {
		case err == nil:
			return b, nil
		case errors.Is(err, ErrCorrupt) && try >= 2, errors.Is(err, objstore.ErrNotFound) && try > notFoundRetries:
			return nil, fmt.Errorf("%w: %w", ErrLost, err)
		case !errors.Is(err, ErrCorrupt) && !errors.Is(err, objstore.ErrNotFound):
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		select {
		case <-time.After(time.Duration(try) * 50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
	}
}
