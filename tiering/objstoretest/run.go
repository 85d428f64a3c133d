package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"firn/tiering/objstore"
)

// RunParts checks what a store does that uploads large objects in parts and
// lists in pages; it moves some hundred megabytes.
func RunParts(t *testing.T, open func(t *testing.T) objstore.Store) {
	t.Helper()
	t.Run("ListsLongerThanAPage", func(t *testing.T) { longList(t, open(t)) })
	t.Run("LargeObjectsComeBackWhole", func(t *testing.T) { largeObject(t, open(t)) })
	t.Run("PutOfAFailingBodyLeavesNothing", func(t *testing.T) {
		failingBody(t, open(t), objstore.SinglePut+objstore.PartBytes+1)
	})
}

// Run checks the stores that open makes against the contract. Each call of open
// must give an empty store.
func Run(t *testing.T, open func(t *testing.T) objstore.Store) {
	t.Helper()
	for _, c := range []struct {
		name string
		f    func(*testing.T, objstore.Store)
	}{
		{"WhatIsPutIsRead", whatIsPutIsRead},
		{"PutReplaces", putReplaces},
		{"PutOfAFailingBodyLeavesNothing", func(t *testing.T, s objstore.Store) { failingBody(t, s, 3<<20) }},
		{"CreateOnlyWhereAbsent", createOnce},
		{"OneOfManyCreatesWins", createRace},
		{"SwapOnlyWhatWasRead", swap},
		{"OneOfManySwapsWins", swapRace},
		{"Ranges", ranges},
		{"RangesBeyondTheEndFail", rangesBeyond},
		{"MissingIsNotFound", missing},
		{"ListInKeyOrder", list},
		{"ListStopsWhenTold", listStops},
		{"Folders", folders},
		{"DeleteIsIdempotent", deletes},
		{"ReadersKeepWhatTheyOpened", readersKeep},
		{"NothingIsVisibleInPart", noPartialVisibility},
		{"KeysOfAllShapes", keys},
		{"KeysThatLeadElsewhereAreRefused", badKeys},
		{"AnEndedContextEndsTheCall", ended},
		{"Probe", probe},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, open(t)) })
	}
}

func put(t *testing.T, s objstore.Store, key string, b []byte) {
	t.Helper()
	if err := s.Put(t.Context(), key, bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatalf("Put(%q) = %v", key, err)
	}
}

// get reads a range, and is strict about how the stream ends.
func get(t *testing.T, s objstore.Store, key string, off, n int64) ([]byte, error) {
	t.Helper()
	r, err := s.GetRange(t.Context(), key, off, n)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err == nil && n >= 0 && int64(len(b)) != n {
		t.Fatalf("GetRange(%q, %d, %d) ended without an error after %d bytes", key, off, n, len(b))
	}
	return b, err
}

func want(t *testing.T, s objstore.Store, key string, b []byte) {
	t.Helper()
	got, err := get(t, s, key, 0, -1)
	if err != nil {
		t.Fatalf("GetRange(%q) = %v", key, err)
	}
	if !bytes.Equal(got, b) {
		t.Fatalf("%q holds %d bytes %.40q, want %d bytes %.40q", key, len(got), got, len(b), b)
	}
}

// noise makes n bytes that don't repeat.
func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	r.Read(b)
	return b
}

func whatIsPutIsRead(t *testing.T, s objstore.Store) {
	for _, n := range []int{0, 1, 4095, 1 << 20} {
		key := fmt.Sprintf("a/size-%d", n)
		put(t, s, key, noise(n))
		want(t, s, key, noise(n))
	}
}

func putReplaces(t *testing.T, s objstore.Store) {
	put(t, s, "k", []byte("a longer one"))
	put(t, s, "k", []byte("another"))
	want(t, s, "k", []byte("another"))
}

// brokenReader fails at the byte at.
type brokenReader struct {
	b  []byte
	at int64
}

var errBody = errors.New("the disk failed")

func (r brokenReader) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > r.at {
		return 0, errBody
	}
	return copy(p, r.b[off:]), nil
}

func failingBody(t *testing.T, s objstore.Store, size int) {
	if err := s.Put(t.Context(), "k", brokenReader{noise(size), int64(size) - 100}, int64(size)); err == nil {
		t.Fatalf("Put of %d bytes, of which 100 can't be read, succeeded", size)
	}
	if _, err := get(t, s, "k", 0, -1); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("after a failed Put of %d bytes: GetRange = %v, want ErrNotFound", size, err)
	}
	short := bytes.NewReader(noise(1000))
	if err := s.Put(t.Context(), "k", short, 2000); err == nil {
		t.Error("Put of a body that is shorter than its size succeeded")
	}
	if _, err := get(t, s, "k", 0, -1); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("after a failed Put: GetRange = %v, want ErrNotFound", err)
	}
}

func largeObject(t *testing.T, s objstore.Store) {
	b := noise(objstore.SinglePut + objstore.PartBytes + 12345)
	put(t, s, "large", b)
	got, err := get(t, s, "large", objstore.SinglePut-7, 1<<20)
	if err != nil || !bytes.Equal(got, b[objstore.SinglePut-7:][:1<<20]) {
		t.Errorf("a range across a part's border: %v, or other bytes", err)
	}
	want(t, s, "large", b)
}

func createOnce(t *testing.T, s objstore.Store) {
	if err := s.Create(t.Context(), "firn.json", []byte("one")); err != nil {
		t.Fatalf("Create = %v", err)
	}
	for _, v := range []string{"two", "one"} {
		if err := s.Create(t.Context(), "firn.json", []byte(v)); !errors.Is(err, objstore.ErrExists) {
			t.Errorf("second Create = %v, want ErrExists", err)
		}
	}
	want(t, s, "firn.json", []byte("one"))
	put(t, s, "put", nil)
	if err := s.Create(t.Context(), "put", []byte("x")); !errors.Is(err, objstore.ErrExists) {
		t.Errorf("Create over a Put = %v, want ErrExists", err)
	}
	if err := s.Create(t.Context(), "empty", nil); err != nil {
		t.Errorf("Create of an empty object = %v", err)
	}
	want(t, s, "empty", nil)
}

// race runs f in n goroutines at once and returns how many returned nil, and
// the last that did; any error but allowed fails the test.
func race(t *testing.T, n int, allowed error, f func(i int) error) (wins, winner int) {
	t.Helper()
	var won, last atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			switch err := f(i); {
			case err == nil:
				won.Add(1)
				last.Store(int64(i))
			case !errors.Is(err, allowed):
				t.Errorf("%d: %v, want nil or %v", i, err, allowed)
			}
		})
	}
	close(start)
	wg.Wait()
	return int(won.Load()), int(last.Load())
}

func createRace(t *testing.T, s objstore.Store) {
	for round := range 5 {
		key := fmt.Sprintf("race-%d", round)
		wins, winner := race(t, 8, objstore.ErrExists, func(i int) error {
			return s.Create(t.Context(), key, fmt.Appendf(nil, "value %d", i))
		})
		if wins != 1 {
			t.Fatalf("%d of 8 Creates succeeded, want 1", wins)
		}
		want(t, s, key, fmt.Appendf(nil, "value %d", winner))
	}
}

func swap(t *testing.T, s objstore.Store) {
	put(t, s, "k", []byte("one"))
	if err := objstore.Swap(t.Context(), s, "k", []byte("other"), []byte("two")); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("Swap of what isn't there = %v, want ErrChanged", err)
	}
	want(t, s, "k", []byte("one"))
	if err := objstore.Swap(t.Context(), s, "k", []byte("one"), []byte("two")); err != nil {
		t.Errorf("Swap = %v", err)
	}
	want(t, s, "k", []byte("two"))
	if err := objstore.Swap(t.Context(), s, "none", []byte("one"), []byte("two")); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("Swap of a missing object = %v, want ErrNotFound", err)
	}
}

func swapRace(t *testing.T, s objstore.Store) {
	put(t, s, "k", []byte("start"))
	wins, winner := race(t, 8, objstore.ErrChanged, func(i int) error {
		return objstore.Swap(t.Context(), s, "k", []byte("start"), fmt.Appendf(nil, "value %d", i))
	})
	if wins != 1 {
		t.Fatalf("%d of 8 Swaps succeeded, want 1", wins)
	}
	want(t, s, "k", fmt.Appendf(nil, "value %d", winner))
}

func ranges(t *testing.T, s objstore.Store) {
	b := noise(100_000)
	put(t, s, "k", b)
	for _, r := range [][2]int64{{0, 1}, {0, 100_000}, {99_999, 1}, {500, 70_000}, {0, -1}, {99_999, -1}, {1, -1}, {0, 0}, {50, 0}} {
		off, n := r[0], r[1]
		end := off + n
		if n < 0 {
			end = int64(len(b))
		}
		got, err := get(t, s, "k", off, n)
		if err != nil {
			t.Errorf("GetRange(%d, %d) = %v", off, n, err)
		} else if !bytes.Equal(got, b[off:end]) {
			t.Errorf("GetRange(%d, %d) gave other bytes", off, n)
		}
	}
}

func rangesBeyond(t *testing.T, s objstore.Store) {
	put(t, s, "k", noise(1000))
	for _, r := range [][2]int64{{1000, 1}, {5000, 10}, {5000, -1}, {-1, 5}} {
		if _, err := get(t, s, "k", r[0], r[1]); !errors.Is(err, objstore.ErrRange) {
			t.Errorf("GetRange(%d, %d) of 1000 bytes = %v, want ErrRange", r[0], r[1], err)
		}
	}
	// One that begins inside may be found out at once, or on the way.
	if _, err := get(t, s, "k", 900, 101); !errors.Is(err, objstore.ErrRange) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a range past the end = %v, want ErrRange or io.ErrUnexpectedEOF", err)
	}
	put(t, s, "empty", nil)
	if _, err := get(t, s, "empty", 0, 1); !errors.Is(err, objstore.ErrRange) {
		t.Errorf("a byte of an empty object = %v, want ErrRange", err)
	}
}

func missing(t *testing.T, s objstore.Store) {
	put(t, s, "a/b", []byte("x"))
	for _, key := range []string{"none", "a", "a/b/c", "a/none/none"} {
		for _, n := range []int64{-1, 0, 1} {
			if _, err := get(t, s, key, 0, n); !errors.Is(err, objstore.ErrNotFound) {
				t.Errorf("GetRange(%q, 0, %d) = %v, want ErrNotFound", key, n, err)
			}
		}
	}
}

func listed(t *testing.T, s objstore.Store, prefix string) []string {
	t.Helper()
	var keys []string
	err := s.List(t.Context(), prefix, func(o objstore.Object) error {
		keys = append(keys, o.Key)
		return nil
	})
	if err != nil {
		t.Fatalf("List(%q) = %v", prefix, err)
	}
	return keys
}

func list(t *testing.T, s objstore.Store) {
	if got := listed(t, s, ""); len(got) != 0 {
		t.Fatalf("an empty store lists %q", got)
	}
	// '-' and '.' sort before '/', letters after it: a walk by directories would err.
	keys := []string{"a-b/1", "a.b", "a/0", "a/1/x", "a/1/y", "a/1-z", "a0", "ab/1", "b", "é/1", "zz/1"}
	for i := range 60 {
		keys = append(keys, fmt.Sprintf("many/%06d", i*7%60))
	}
	for _, k := range keys {
		put(t, s, k, []byte(k))
	}
	slices.Sort(keys)
	for _, prefix := range []string{"", "a", "a/", "a/1", "a/1/", "many/00001", "many/", "none", "é/"} {
		var w []string
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) {
				w = append(w, k)
			}
		}
		if got := listed(t, s, prefix); !slices.Equal(got, w) {
			t.Errorf("List(%q) = %.300q\nwant %.300q", prefix, got, w)
		}
	}
	err := s.List(t.Context(), "a/1", func(o objstore.Object) error {
		if o.Size != int64(len(o.Key)) {
			t.Errorf("%s is listed with %d bytes, want %d", o.Key, o.Size, len(o.Key))
		}
		if o.ModTime <= 0 {
			t.Errorf("%s is listed with time %d", o.Key, o.ModTime)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func longList(t *testing.T, s objstore.Store) {
	var want []string
	for i := range 1100 {
		want = append(want, fmt.Sprintf("many/%06d", i))
		put(t, s, want[i], nil)
	}
	if got := listed(t, s, "many/"); !slices.Equal(got, want) {
		t.Errorf("%d of %d objects are listed, or not in order", len(got), len(want))
	}
}

func listStops(t *testing.T, s objstore.Store) {
	for i := range 10 {
		put(t, s, fmt.Sprintf("k%d", i), nil)
	}
	stop := errors.New("enough")
	n := 0
	err := s.List(t.Context(), "", func(objstore.Object) error {
		if n++; n == 3 {
			return stop
		}
		return nil
	})
	if err != stop || n != 3 {
		t.Errorf("List = %v after %d objects, want the error of yield after 3", err, n)
	}
}

func folders(t *testing.T, s objstore.Store) {
	for _, k := range []string{"a/1/x", "a/1/y", "a/2/x", "a/z", "a-b/1", "c", "d/1"} {
		put(t, s, k, nil)
	}
	for prefix, want := range map[string][]string{"": {"a", "a-b", "d"}, "a/": {"1", "2"}, "a/1/": nil, "none/": nil} {
		got, err := objstore.Folders(t.Context(), s, prefix)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Folders(%q) = %q, %v, want %q", prefix, got, err, want)
		}
	}
}

func deletes(t *testing.T, s objstore.Store) {
	put(t, s, "a/b/c", []byte("x"))
	put(t, s, "a/d", []byte("x"))
	for range 2 {
		if err := s.Delete(t.Context(), "a/b/c"); err != nil {
			t.Fatalf("Delete = %v", err)
		}
	}
	if err := s.Delete(t.Context(), "never/was"); err != nil {
		t.Errorf("Delete of a missing key = %v", err)
	}
	if _, err := get(t, s, "a/b/c", 0, -1); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("after Delete: %v, want ErrNotFound", err)
	}
	if got := listed(t, s, ""); !slices.Equal(got, []string{"a/d"}) {
		t.Errorf("after Delete: %q", got)
	}
	put(t, s, "a/b/c", []byte("again"))
	want(t, s, "a/b/c", []byte("again"))
}

func readersKeep(t *testing.T, s objstore.Store) {
	b := noise(100_000)
	put(t, s, "k", b)
	r, err := s.GetRange(t.Context(), "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	put(t, s, "k", []byte("other"))
	got, err := io.ReadAll(r)
	// A store may fail such a reader, but must not give it a mixture.
	if err == nil && !bytes.Equal(got, b) {
		t.Errorf("a reader of a replaced object got %d bytes that are not the object's", len(got))
	}
}

func noPartialVisibility(t *testing.T, s objstore.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	a, b := bytes.Repeat([]byte("a"), 200_000), bytes.Repeat([]byte("b"), 150_000)
	put(t, s, "k", a)
	wg.Go(func() {
		defer cancel()
		for i := range 30 {
			v := a
			if i%2 == 0 {
				v = b
			}
			if err := s.Put(t.Context(), "k", bytes.NewReader(v), int64(len(v))); err != nil {
				t.Errorf("Put = %v", err)
			}
		}
	})
	for ctx.Err() == nil {
		got, err := get(t, s, "k", 0, -1)
		if err != nil {
			continue // a store may fail a reader whose object is replaced
		}
		if !bytes.Equal(got, a) && !bytes.Equal(got, b) {
			t.Errorf("read %d bytes that were never an object", len(got))
			break
		}
	}
	wg.Wait()
}

func keys(t *testing.T, s objstore.Store) {
	all := []string{
		"a b", "a+b", "a%2Fb", "a~b/c", "ü/日本", "a&b=c?d#e", "a:b", ".hidden/.x", "..a/b..", "A/x", "q\"'q",
		strings.Repeat("t", 255) + "/0/x", strings.Repeat("t", 254) + "-", strings.Repeat("u/", 300) + "x",
	}
	for _, k := range all {
		put(t, s, k, []byte(k))
	}
	for _, k := range all {
		want(t, s, k, []byte(k))
	}
	slices.Sort(all)
	if got := listed(t, s, ""); !slices.Equal(got, all) {
		t.Errorf("List = %.2000q\nwant %.2000q", got, all)
	}
	for _, k := range all {
		if err := s.Delete(t.Context(), k); err != nil {
			t.Errorf("Delete(%q) = %v", k, err)
		}
	}
	if got := listed(t, s, ""); len(got) != 0 {
		t.Errorf("after all are deleted: %q", got)
	}
}

func badKeys(t *testing.T, s objstore.Store) {
	for _, k := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", "a\x00b", "a\nb", "\xff", strings.Repeat("x", 256), strings.Repeat("x/", 1000) + "x"} {
		if err := s.Put(t.Context(), k, strings.NewReader("x"), 1); err == nil {
			t.Errorf("Put(%q) succeeded", k)
		}
		if err := s.Create(t.Context(), k, []byte("x")); err == nil || errors.Is(err, objstore.ErrExists) {
			t.Errorf("Create(%q) = %v, want a refusal", k, err)
		}
		if r, err := s.GetRange(t.Context(), k, 0, -1); err == nil || errors.Is(err, objstore.ErrNotFound) {
			if err == nil {
				r.Close()
			}
			t.Errorf("GetRange(%q) = %v, want a refusal", k, err)
		}
		if err := s.Delete(t.Context(), k); err == nil {
			t.Errorf("Delete(%q) succeeded", k)
		}
	}
	if err := s.Put(t.Context(), "k", strings.NewReader("x"), -1); err == nil {
		t.Error("Put of -1 bytes succeeded")
	}
}

func ended(t *testing.T, s objstore.Store) {
	put(t, s, "k", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, "p", strings.NewReader("x"), 1); err == nil {
		t.Error("Put succeeded")
	}
	if err := s.Create(ctx, "c", []byte("x")); err == nil {
		t.Error("Create succeeded")
	}
	if r, err := s.GetRange(ctx, "k", 0, -1); err == nil {
		r.Close()
		t.Error("GetRange succeeded")
	}
	if err := s.List(ctx, "", func(objstore.Object) error { return nil }); err == nil {
		t.Error("List succeeded")
	}
	if err := s.Delete(ctx, "k"); err == nil {
		t.Error("Delete succeeded")
	}
	if got := listed(t, s, ""); !slices.Equal(got, []string{"k"}) {
		t.Errorf("afterwards: %q, want what was there before", got)
	}
}

func probe(t *testing.T, s objstore.Store) {
	if err := objstore.Probe(t.Context(), s); err != nil {
		t.Errorf("Probe = %v", err)
	}
	if got := listed(t, s, ""); len(got) != 0 {
		t.Errorf("Probe left %q", got)
	}
}
