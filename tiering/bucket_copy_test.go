package tiering

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"firn/tiering/objstore"
)

// same checks that two archives hold the same objects.
func (t *bucketTest) same(other objstore.Store) {
	t.Helper()
	o := &bucketTest{T: t.T, store: other}
	if got, want := o.keys(), t.keys(); !slices.Equal(got, want) {
		t.Fatalf("copied %q\nwant %q", got, want)
	}
	for _, k := range t.keys() {
		if !bytes.Equal(t.get(k), o.get(k)) {
			t.Errorf("%s differs", k)
		}
	}
}

func TestCopyIsTheSameArchive(t *testing.T) {
	onStores(t, func(t *bucketTest) {
		p, _, _ := t.standard()
		t.upload(p, t.seal(p, 800, 900, 4, 30_000), 800, 4) // not named yet
		to := objstore.NewMem()
		var last CopyReport
		r, err := Copy(t.Context(), t.store, to, CopyOptions{Progress: func(p CopyReport) { last = p }, Spool: t.TempDir()})
		if err != nil || len(r.Problems) != 0 || r.Copied != len(t.keys())-1 || r.Kept != 0 || last.Copied != r.Copied {
			t.Fatalf("Copy = %+v, %v; last progress %+v", r, err, last)
		}
		t.same(to)
		if v, err := NewBucket(to).Verify(t.Context(), VerifyOptions{}); err != nil || len(v.Problems) != 0 {
			t.Errorf("the copy: %v, %v", v.Problems, err)
		}
		r, err = Copy(t.Context(), t.store, to, CopyOptions{})
		if err != nil || r.Copied != 0 || r.Kept != len(t.keys())-1 {
			t.Errorf("again: %+v, %v", r, err)
		}
	})
}

// TestCopyInterrupted ends a copy before each of its writes: what is there is no
// archive, nothing names what is missing, and the next run finishes it.
func TestCopyInterrupted(t *testing.T) {
	bt := &bucketTest{T: t, store: objstore.NewMem()}
	bt.standard()
	stop := errors.New("interrupted")
	for n := 0; ; n++ {
		to := objstore.NewMem()
		writes := 0
		f := objstore.Inject(to, func(op objstore.Op) objstore.Fault {
			if op.Kind == objstore.OpPut || op.Kind == objstore.OpCreate {
				if writes++; writes > n {
					return objstore.Fault{Before: stop}
				}
			}
			return objstore.Fault{}
		})
		_, err := Copy(t.Context(), bt.store, f, CopyOptions{Workers: 1})
		if err == nil {
			if n != len(bt.keys()) {
				t.Errorf("finished after %d writes, there are %d objects", n, len(bt.keys()))
			}
			break
		}
		keys := to.Keys()
		if !errors.Is(err, stop) || slices.Contains(keys, identityKey) {
			t.Fatalf("after %d writes: %v, %q", n, err, keys)
		}
		b := NewBucket(to)
		topics, err := b.Topics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range topics {
			for _, num := range topics[i].Partitions {
				bp, err := b.Partition(t.Context(), topics[i].Part(num))
				if err != nil {
					t.Fatal(err)
				}
				for e, err := range b.Entries(t.Context(), bp) {
					if err == nil {
						err = b.readable(t.Context(), bp.Partition, e)
					}
					if err != nil {
						t.Fatalf("after %d writes a manifest names what is missing: %v", n, err)
					}
				}
			}
		}
		if r, err := Copy(t.Context(), bt.store, to, CopyOptions{}); err != nil || r.Kept == 0 && n > 0 {
			t.Fatalf("taken up after %d writes: %+v, %v", n, r, err)
		}
		bt.same(to)
	}
}

func TestCopyTellsAndKeepsDamage(t *testing.T) {
	bt := &bucketTest{T: t, store: objstore.NewMem()}
	_, entries, last := bt.standard()
	p := Partition{Topic: "events", ID: TopicID{1: 6, 15: 'e'}}
	bt.damage(entries[1].LogKey(p), 300)
	bt.damage(entries[2].IndexKey(p), 100)
	bt.damage(last.key, 30)
	to := objstore.NewMem()
	r, err := Copy(t.Context(), bt.store, to, CopyOptions{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range r.Problems {
		got = append(got, p.Key)
	}
	want := []string{entries[2].IndexKey(p), entries[1].LogKey(p), entries[2].LogKey(p), last.key}
	if !slices.Equal(got, want) {
		t.Errorf("problems %q\nwant %q", got, want)
	}
	bt.same(to)
}

// A reply that is damaged on the way is fetched again.
func TestCopyDoesNotKeepWhatTheWireDamaged(t *testing.T) {
	bt := &bucketTest{T: t, store: objstore.NewMem()}
	bt.standard()
	seen := map[string]int{}
	f := objstore.Inject(bt.store, func(op objstore.Op) objstore.Fault {
		seen[op.Key]++
		if op.Kind == objstore.OpGet && seen[op.Key] == 1 && !strings.HasSuffix(op.Key, ".json") {
			return objstore.Fault{Corrupt: func(off int64, b []byte) {
				if off == 0 {
					b[len(b)/2] ^= 4
				}
			}}
		}
		return objstore.Fault{}
	})
	to := objstore.NewMem()
	if r, err := Copy(t.Context(), f, to, CopyOptions{Workers: 1}); err != nil || len(r.Problems) != 0 {
		t.Errorf("Copy = %+v, %v", r, err)
	}
	bt.same(to)
}

func TestCopyRefusesAForeignDestination(t *testing.T) {
	bt := &bucketTest{T: t, store: objstore.NewMem()}
	bt.standard()
	other := &bucketTest{T: t, store: objstore.NewMem()}
	other.owner("archive-2")
	if _, err := Copy(t.Context(), bt.store, other.store, CopyOptions{}); !errors.Is(err, ErrNotOurs) {
		t.Errorf("another owner's: %v", err)
	}
	other.remove(identityKey)
	other.topic("other-topic", 1)
	if _, err := Copy(t.Context(), bt.store, other.store, CopyOptions{}); !errors.Is(err, ErrNotOurs) {
		t.Errorf("another topic's: %v", err)
	}
	if _, err := Copy(t.Context(), objstore.NewMem(), objstore.NewMem(), CopyOptions{}); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("no archive: %v", err)
	}
}
