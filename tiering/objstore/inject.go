package objstore

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// OpKind is a method of a Store.
type OpKind uint8

const (
	OpPut OpKind = iota
	OpCreate
	OpGet
	OpList
	OpDelete
	OpSwap
)

func (k OpKind) String() string {
	return [...]string{"put", "create", "get", "list", "delete", "swap"}[k]
}

// Op is one call of a Store, as a hook of Inject sees it.
type Op struct {
	Kind OpKind
	Key  string // of List: the prefix
	Off  int64  // of Get
	N    int64  // of Get: as asked; of Put, Create, Swap: the size
}

// Fault is what happens to one call. The zero Fault is none. The fields take
// effect in their order here.
type Fault struct {
	// Hold keeps the call waiting until it is closed, or the caller's ctx ends.
	Hold <-chan struct{}
	// Delay keeps the call waiting this long, or until the caller's ctx ends.
	Delay time.Duration
	// Before fails the call without any effect.
	Before error
	// After lets the call take effect, then fails it: the outcome that the
	// caller can't know. A Get has no effect to speak of, and just fails.
	After error
	// Hide makes the next Hide Gets of the key answer ErrNotFound and lists
	// leave it out until then, though the Put or Create succeeded.
	Hide int
	// Cut fails the stream of a Get with this error after CutAt bytes
	// (io.ErrUnexpectedEOF for a short reply).
	Cut   error
	CutAt int64
	// Corrupt may change the bytes that a Get yields; off is their place in
	// the object.
	Corrupt func(off int64, b []byte)
}

// Faulty is a Store with faults.
type Faulty struct {
	store Store
	mu    struct {
		sync.Mutex
		hook   func(Op) Fault
		hidden map[string]int // Gets still to be answered with ErrNotFound
	}
}

var (
	_ Store   = (*Faulty)(nil)
	_ Swapper = (*Faulty)(nil)
)

// Inject makes a Store that asks hook about each call before it happens. hook
// may be called concurrently, and block; nil is no faults.
func Inject(store Store, hook func(Op) Fault) *Faulty {
	f := &Faulty{store: store}
	f.mu.hook, f.mu.hidden = hook, make(map[string]int)
	return f
}

// Set puts another hook in place, for the calls from now on.
func (f *Faulty) Set(hook func(Op) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.hook = hook
}

// before asks the hook, waits as it says, and returns what fails the call
// without effect.
func (f *Faulty) before(ctx context.Context, op Op) (Fault, error) {
	f.mu.Lock()
	hook := f.mu.hook
	f.mu.Unlock()
	if hook == nil {
		return Fault{}, nil
	}
	x := hook(op)
	if x.Hold != nil {
		select {
		case <-x.Hold:
		case <-ctx.Done():
			return x, context.Cause(ctx)
		}
	}
	if x.Delay > 0 {
		t := time.NewTimer(x.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return x, context.Cause(ctx)
		}
	}
	return x, x.Before
}

// after settles a write: err is what the store said.
func (f *Faulty) after(x Fault, key string, err error) error {
	if err != nil {
		return err
	}
	if x.Hide > 0 {
		f.mu.Lock()
		f.mu.hidden[key] = x.Hide
		f.mu.Unlock()
	}
	return x.After
}

func (f *Faulty) Put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	x, err := f.before(ctx, Op{Kind: OpPut, Key: key, N: size})
	if err != nil {
		return err
	}
	return f.after(x, key, f.store.Put(ctx, key, body, size))
}

func (f *Faulty) Create(ctx context.Context, key string, value []byte) error {
	x, err := f.before(ctx, Op{Kind: OpCreate, Key: key, N: int64(len(value))})
	if err != nil {
		return err
	}
	return f.after(x, key, f.store.Create(ctx, key, value))
}

func (f *Faulty) Swap(ctx context.Context, key string, old, value []byte) error {
	x, err := f.before(ctx, Op{Kind: OpSwap, Key: key, N: int64(len(value))})
	if err != nil {
		return err
	}
	return f.after(x, key, Swap(ctx, f.store, key, old, value))
}

func (f *Faulty) Delete(ctx context.Context, key string) error {
	x, err := f.before(ctx, Op{Kind: OpDelete, Key: key})
	if err != nil {
		return err
	}
	return f.after(x, key, f.store.Delete(ctx, key))
}

func (f *Faulty) List(ctx context.Context, prefix string, yield func(Object) error) error {
	x, err := f.before(ctx, Op{Kind: OpList, Key: prefix})
	if err != nil {
		return err
	}
	err = f.store.List(ctx, prefix, func(o Object) error {
		f.mu.Lock()
		hidden := f.mu.hidden[o.Key] > 0
		f.mu.Unlock()
		if hidden {
			return nil
		}
		return yield(o)
	})
	if err != nil {
		return err
	}
	return x.After
}

// Folders is a list to the hook.
func (f *Faulty) Folders(ctx context.Context, prefix string) ([]string, error) {
	x, err := f.before(ctx, Op{Kind: OpList, Key: prefix})
	if err == nil {
		err = x.After
	}
	if err != nil {
		return nil, err
	}
	return Folders(ctx, f.store, prefix)
}

func (f *Faulty) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	x, err := f.before(ctx, Op{Kind: OpGet, Key: key, Off: off, N: n})
	if err == nil {
		err = x.After
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	hidden := f.mu.hidden[key] > 0
	if hidden {
		f.mu.hidden[key]--
	}
	f.mu.Unlock()
	if hidden {
		return nil, fmt.Errorf("objstore: get %s: hidden: %w", key, ErrNotFound)
	}
	r, err := f.store.GetRange(ctx, key, off, n)
	if err != nil || x.Cut == nil && x.Corrupt == nil {
		return r, err
	}
	return &faultyStream{ReadCloser: r, fault: x, off: off}, nil
}

// faultyStream is the reply to a Get that is cut short or corrupted.
type faultyStream struct {
	io.ReadCloser
	fault Fault
	off   int64 // in the object
	read  int64 // bytes yielded so far
}

func (s *faultyStream) Read(p []byte) (int, error) {
	if s.fault.Cut != nil {
		if s.read >= s.fault.CutAt {
			return 0, s.fault.Cut
		}
		p = p[:min(int64(len(p)), s.fault.CutAt-s.read)]
	}
	n, err := s.ReadCloser.Read(p)
	if s.fault.Corrupt != nil && n > 0 {
		s.fault.Corrupt(s.off+s.read, p[:n])
	}
	s.read += int64(n)
	return n, err
}
