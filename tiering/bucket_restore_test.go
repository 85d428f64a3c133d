package tiering

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"firn/tiering/objstore"
)

func (t *bucketTest) restore(archive string, inSpite bool) (*RestorePlan, error) {
	return Restore(t.Context(), t.store, RestoreOptions{ArchiveID: archive, InSpiteOfProblems: inSpite, Random: func() uint64 { return 1<<40 + t.id() }})
}

// served reads through a plan's pointer what a broker would: the entries, all
// of which verify.
func (t *bucketTest) served(rp *RestorePartition) []Entry {
	t.Helper()
	if rp.Pointer.ManifestKey == "" {
		return nil
	}
	object, err := getExact(t.Context(), t.store, rp.Pointer.ManifestKey, rp.Pointer.ManifestSize, rp.Pointer.ManifestCRC)
	if err != nil {
		t.Fatal(err)
	}
	m, err := DecodeManifest(object)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Check(rp.Partition, rp.Pointer); err != nil {
		t.Error(err)
	}
	b := NewBucket(t.store)
	var list []Entry
	for e, err := range b.entriesOf(t.Context(), rp.Partition, m) {
		if err == nil {
			err = b.readable(t.Context(), rp.Partition, e)
		}
		if err != nil {
			t.Fatalf("entry at %d: %v", rp.Pointer.LogStart, err)
		}
		list = append(list, *e)
	}
	return list
}

func drawn(list []Entry) string {
	var s []string
	for _, e := range list {
		s = append(s, fmt.Sprintf("%d-%d", e.Base, e.End))
	}
	return strings.Join(s, " ")
}

func TestRestoreOfAnArchive(t *testing.T) {
	onStores(t, func(t *bucketTest) {
		p0, _, last := t.standard()
		before := t.keys()
		plan, err := t.restore("archive-2", false)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Was.ArchiveID != "archive-1" || plan.Now.ArchiveID != "archive-2" || plan.Now.ClusterID != "cluster-1" || plan.Epoch != 4+EpochGap || plan.Unnamed != 0 {
			t.Errorf("plan %+v", plan)
		}
		if len(plan.Deleted) != 1 || plan.Deleted[0].Name != "gone" || len(plan.Topics) != 1 {
			t.Fatalf("topics %+v, deleted %+v", plan.Topics, plan.Deleted)
		}
		tp := plan.Topics[0]
		if tp.Info.Name != "events" || tp.Info.ID != p0.ID || tp.Info.Configs["segment.bytes"] != "1048576" || len(tp.Partitions) != 3 {
			t.Errorf("topic %+v", tp)
		}
		if got := tp.Partitions[0].Pointer; got.ManifestKey != last.key || got.ArchivedEnd != 800 || got.LastEpoch != 4 || got.Version != NoPointer {
			t.Errorf("pointer %+v", got)
		}
		for i, want := range []string{"0-100 100-200 200-300 300-400 400-500 500-600 600-700 700-800", "0-100 100-200", ""} {
			if got := drawn(t.served(&tp.Partitions[i])); got != want {
				t.Errorf("partition %d serves %s, want %s", i, got, want)
			}
		}
		if got := t.keys(); !slices.Equal(got, before) {
			t.Errorf("a restore that had nothing to unite wrote objects: %q", got)
		}
		id, err := LoadIdentity(t.Context(), t.store)
		if err != nil || id != plan.Now || id.KeepBelow <= 4 {
			t.Errorf("firn.json %+v, %v, want %+v", id, err, plan.Now)
		}
		// The owner before sees it.
		if err := checkOwner(t.Context(), t.store, Identity{ClusterID: "cluster-1", ArchiveID: "archive-1"}); !errors.Is(err, ErrNotOurs) {
			t.Errorf("the owner before: %v", err)
		}
		if err := ReleaseKept(t.Context(), t.store); err != nil {
			t.Fatal(err)
		}
		if id, err := LoadIdentity(t.Context(), t.store); err != nil || id.KeepBelow != 0 || id.ArchiveID != "archive-2" {
			t.Errorf("after the release: %+v, %v", id, err)
		}
	})
}

// A zombie and its successor each wrote a manifest with the same predecessor (D27).
func TestRestoreWhereManifestsFork(t *testing.T) {
	onStores(t, func(t *bucketTest) {
		t.owner("a")
		p := t.topic("events", 1)
		list := t.archive(p, 0, 2, 1)
		m := t.manifest(p, 1, nil, 0, nil, list)
		zombies := append(slices.Clone(list), t.archive(p, 200, 3, 1)...)
		t.manifest(p, 1, m, 100, nil, zombies)
		winners := append(slices.Clone(list), t.archive(p, 200, 1, 2)...)
		t.manifest(p, 2, m, 0, nil, winners)
		plan, err := t.restore("b", false)
		if err != nil {
			t.Fatal(err)
		}
		got := t.served(&plan.Topics[0].Partitions[0])
		if drawn(got) != "0-100 100-200 200-300" || got[2].ID != winners[2].ID {
			t.Errorf("serves %s of %d, want the branch of the highest epoch", drawn(got), got[2].ID)
		}
		if plan.Unnamed != 6 || plan.UnnamedBytes == 0 {
			t.Errorf("%d objects unnamed, want the zombie's 6", plan.Unnamed)
		}
	})
}

// A leader that couldn't learn whether its pointer write had happened left two
// leaves. One of them had a retention in it.
func TestRestoreUnitesTheLeavesOfOneEpoch(t *testing.T) {
	onStores(t, func(t *bucketTest) {
		t.owner("a")
		p := t.topic("events", 1)
		list := t.archive(p, 0, 4, 1)
		m := t.manifest(p, 1, nil, 0, nil, list)
		longer := append(slices.Clone(list), t.archive(p, 400, 2, 2)...)
		t.manifest(p, 2, m, 0, nil, longer)
		t.manifest(p, 2, m, 250, nil, list[2:])
		t.remove(list[0].LogKey(p)) // the retention was under way

		for range 2 { // a restore that was interrupted is begun again
			plan, err := t.restore("b", false)
			if err != nil {
				t.Fatal(err)
			}
			rp := &plan.Topics[0].Partitions[0]
			if got := drawn(t.served(rp)); got != "100-200 200-300 300-400 400-500 500-600" {
				t.Errorf("serves %s", got)
			}
			if rp.Pointer.LogStart != 100 || rp.Pointer.ArchivedEnd != 600 || rp.Pointer.LastEpoch != 2 || rp.Pointer.Sequence < 3 {
				t.Errorf("pointer %+v", rp.Pointer)
			}
		}
	})
}

func TestRestoreOfAUnionInPages(t *testing.T) {
	bt := &bucketTest{T: t, store: objstore.NewMem()}
	bt.owner("a")
	p := bt.topic("events", 1)
	s := bt.seal(p, 0, 10, 1, 1)
	var list []Entry
	for i := range int64(2*PageEntries + 10) {
		x := s
		x.x.FileBase, x.x.End, x.x.Epochs = i*10, i*10+10, s.x.Epochs
		list = append(list, bt.upload(p, x, i*10, 1))
	}
	ref := bt.page(p, 1, list[:PageEntries])
	m := bt.manifest(p, 1, nil, 0, nil, list[:1])
	bt.manifest(p, 1, m, 0, []PageRef{ref}, list[PageEntries:])
	bt.manifest(p, 1, m, 0, nil, list[:5])
	plan, err := bt.restore("b", false)
	if err != nil {
		t.Fatal(err)
	}
	if got := bt.served(&plan.Topics[0].Partitions[0]); !sameList(got, list) {
		t.Errorf("%d entries, want %d", len(got), len(list))
	}
}

func TestRestoreStopsAtDamageUnlessTold(t *testing.T) {
	onStores(t, func(t *bucketTest) {
		p, entries, _ := t.standard()
		t.remove(entries[6].LogKey(p))
		owner := t.get(identityKey)
		plan, err := t.restore("b", false)
		if !errors.Is(err, ErrDamaged) || len(plan.Problems) != 1 || plan.Problems[0].From != 600 || plan.Problems[0].What != "missing" {
			t.Errorf("Restore = %v, problems %v", err, plan.Problems)
		}
		if string(t.get(identityKey)) != string(owner) {
			t.Error("a restore that stopped took the archive over")
		}
		plan, err = t.restore("b", true)
		if err != nil || plan.Topics[0].Partitions[0].Pointer.ArchivedEnd != 800 {
			t.Errorf("told to go on: %v", err)
		}
	})
}

// TestRestoreOfAnOutage fails each read of the store in turn: the restore stops.
func TestRestoreOfAnOutage(t *testing.T) {
	down := errors.New("connection refused")
	for n := 0; ; n++ {
		bt := &bucketTest{T: t, store: objstore.NewMem()}
		bt.standard()
		i := 0
		bt.store = objstore.Inject(bt.store, func(objstore.Op) objstore.Fault {
			if i++; i == n+1 {
				return objstore.Fault{Before: down}
			}
			return objstore.Fault{}
		})
		plan, err := bt.restore("b", true)
		if err == nil {
			if i > n {
				t.Fatalf("call %d failed and the restore did not stop: %+v", n+1, plan)
			}
			break
		}
		if !errors.Is(err, down) {
			t.Fatalf("call %d failed: %v", n+1, err)
		}
		if plan, err := bt.restore("c", false); err != nil || plan.Topics[0].Partitions[0].Pointer.ArchivedEnd != 800 {
			t.Fatalf("begun again after call %d failed: %v", n+1, err)
		}
	}
}

func TestRestoreSaysWhatStandsInItsWay(t *testing.T) {
	bt := &bucketTest{T: t, store: objstore.NewMem()}
	if _, err := bt.restore("b", false); err == nil || !strings.Contains(err.Error(), "firn.json") {
		t.Errorf("an empty prefix: %v", err)
	}
	bt.standard()
	twin := Partition{Topic: "events", ID: TopicID{9}}
	if err := putTopic(t.Context(), bt.store, TopicInfo{Name: "events", ID: twin.ID, Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := bt.restore("b", false); err == nil || !strings.Contains(err.Error(), "deleted.json") {
		t.Errorf("two topics of one name: %v", err)
	}
}

// Whoever takes over sees an owner that has changed since.
func TestRestoreOfTwoAtOnce(t *testing.T) {
	bt := &bucketTest{T: t, store: objstore.NewMem()}
	bt.standard()
	inner := bt.store
	first := true
	f := objstore.Inject(inner, func(op objstore.Op) objstore.Fault {
		if op.Kind == objstore.OpSwap && first {
			first = false
			other := &bucketTest{T: t, store: inner}
			if _, err := other.restore("other", false); err != nil {
				t.Error(err)
			}
		}
		return objstore.Fault{}
	})
	bt.store = f
	if _, err := bt.restore("b", false); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("Restore = %v, want ErrChanged", err)
	}
}
