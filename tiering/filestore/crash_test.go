package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"firn/segment/vfs"
	"firn/tiering/objstore"
	"firn/tiering/objstoretest"
)

func TestStoreInMemory(t *testing.T) {
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		return open(t, Config{Dir: "/a/b", Create: true, MinFree: -1, FS: vfs.NewMem()})
	})
}

// history is what its calls on a store have promised so far.
type history struct {
	versions map[string][]string // all that was ever written under a key
	durable  map[string]string   // what must be there
	busy     string              // key of the call under way
}

// play makes the same calls on a store each time, and keeps h.
func (h *history) play(ctx context.Context, s *Store) error {
	h.versions, h.durable = map[string][]string{}, map[string]string{}
	step := func(key, v string, call func() error) error {
		h.busy, h.versions[key] = key, append(h.versions[key], v)
		if err := call(); err != nil {
			return err
		}
		h.durable[key], h.busy = v, ""
		return nil
	}
	put := func(key, v string) error {
		return step(key, v, func() error { return s.Put(ctx, key, bytes.NewReader([]byte(v)), int64(len(v))) })
	}
	return firstError(
		func() error {
			return step("firn.json", "one", func() error { return s.Create(ctx, "firn.json", []byte("one")) })
		},
		func() error { return put("t/0/a", string(bytes.Repeat([]byte("a"), 3000))) },
		func() error { return put("t/0/page/p", "page") },
		func() error { return put("t/1/a", "short") },
		func() error { return put("t/1/a", string(bytes.Repeat([]byte("longer"), 500))) },
		func() error {
			return step("firn.json", "two", func() error { return s.Swap(ctx, "firn.json", []byte("one"), []byte("two")) })
		},
		func() error {
			delete(h.durable, "t/0/page/p")
			return s.Delete(ctx, "t/0/page/p")
		},
		func() error { return put("t/0/page/q", "again") },
	)
}

func firstError(calls ...func() error) error {
	for _, c := range calls {
		if err := c(); err != nil {
			return err
		}
	}
	return nil
}

// check reports what a store lost, or shows in part.
func (h *history) check(ctx context.Context, s *Store) error {
	got := map[string]string{}
	err := s.List(ctx, "", func(o objstore.Object) error {
		b, err := objstore.ReadAll(ctx, s, o.Key, 1<<20)
		got[o.Key] = string(b)
		return err
	})
	if err != nil {
		return err
	}
	for key, v := range got {
		whole := false
		for _, w := range h.versions[key] {
			whole = whole || v == w
		}
		if !whole {
			return fmt.Errorf("%s holds %d bytes that were never written to it", key, len(v))
		}
	}
	for key, v := range h.durable {
		if got[key] != v && key != h.busy {
			return fmt.Errorf("%s was acknowledged with %d bytes and holds %d", key, len(v), len(got[key]))
		}
		if _, ok := got[key]; !ok {
			return fmt.Errorf("%s was acknowledged and is gone", key)
		}
	}
	return nil
}

// TestCrashAnywhere cuts the power after every operation on the file system:
// what was acknowledged is there, and nothing is there in part.
func TestCrashAnywhere(t *testing.T) {
	ctx := t.Context()
	mem := vfs.NewMem()
	rng := rand.New(rand.NewPCG(1, 2))
	var h history
	crashes := 0
	mem.OnOp(func(op vfs.Op) {
		if h.versions == nil {
			return // the directory itself is not there yet
		}
		for _, keep := range []int{0, 50, 50, 50, 100} {
			crashes++
			after, err := Open(Config{Dir: "/x/archive", MinFree: -1, FS: mem.CrashClone(vfs.CrashOptions{Keep: keep, Rand: rng})})
			if err == nil {
				err = h.check(ctx, after)
			}
			if err == nil { // and it goes on working
				err = after.Put(ctx, "t/0/new", bytes.NewReader([]byte("v")), 1)
			}
			if err != nil {
				t.Errorf("power lost after %v, %d %% kept: %v", op, keep, err)
			}
		}
	})
	s := open(t, Config{Dir: "/x/archive", Create: true, MinFree: -1, FS: mem})
	if err := h.play(ctx, s); err != nil {
		t.Fatal(err)
	}
	mem.OnOp(nil)
	if crashes < 200 {
		t.Errorf("only %d crashes: the trace is broken", crashes)
	}
}

// TestEveryFault fails each operation on the file system in turn, before and
// after its effect: a call says so, or does what it says.
func TestEveryFault(t *testing.T) {
	errDisk := errors.New("the disk failed")
	for _, fault := range []error{errDisk, &vfs.Fault{Err: errDisk, Done: true}} {
		for n := 0; ; n++ {
			i := 0
			fs := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
				if op.Kind == vfs.OpClose || op.Kind == vfs.OpLock {
					return nil // what these lose, the next call brings back
				}
				if i++; i == n+1 {
					return fault
				}
				return nil
			})
			s, err := Open(Config{Dir: "/archive", Create: true, MinFree: -1, FS: fs})
			if err != nil {
				continue
			}
			var h history
			err = h.play(t.Context(), s)
			if err == nil && i <= n {
				if n < 50 {
					t.Errorf("only %d operations: the trace is broken", n)
				}
				break // the fault was not reached: all are covered
			}
			i = n + 1
			if err := h.check(t.Context(), s); err != nil {
				t.Errorf("operation %d failed: %v", n+1, err)
			}
			s.Close()
		}
	}
}
