package tiering

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
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
		if plan.Was.ArchiveID != "archive-1" || plan.Now.ArchiveID != "archive-2" || plan.Now.ClusterID != "cluster-1" || plan.Epoch != 4+epochGap || plan.Unnamed != 0 {
			t.Errorf("plan %+v", plan)
		}
		if plan.ProducerID != 800+1+producerIDGap {
			t.Errorf("producer ids go on at %d, want %d above 800", plan.ProducerID, producerIDGap)
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
		x.x.Starts = []BatchStart{{Offset: i * 10}}
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
		var calls atomic.Int64
		bt.store = objstore.Inject(bt.store, func(objstore.Op) objstore.Fault {
			if calls.Add(1) == int64(n+1) {
				return objstore.Fault{Before: down}
			}
			return objstore.Fault{}
		})
		plan, err := bt.restore("b", true)
		if err == nil {
			if calls.Load() > int64(n) {
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

// TestRestoreRebuildsWhatManifestsSaid damages a page, the newest manifest, all
// manifests, and removes them: the indexes tell the same (T6).
func TestRestoreRebuildsWhatManifestsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		wreck func(*bucketTest, Partition, *manifestNode)
		o     RestoreOptions
		stops bool // unless told
	}{
		"page lost":          {func(t *bucketTest, p Partition, m *manifestNode) { t.remove(m.Pages[0].Key(p)) }, RestoreOptions{}, true},
		"page damaged":       {func(t *bucketTest, p Partition, m *manifestNode) { t.damage(m.Pages[0].Key(p), 40) }, RestoreOptions{}, true},
		"newest damaged":     {func(t *bucketTest, p Partition, m *manifestNode) { t.damage(m.key, 40) }, RestoreOptions{}, true},
		"all damaged":        {func(t *bucketTest, p Partition, m *manifestNode) { t.damage(m.key, 40); t.damage(m.PrevKey, 40) }, RestoreOptions{}, true},
		"all manifests gone": {func(t *bucketTest, p Partition, m *manifestNode) { t.remove(m.key); t.remove(m.PrevKey) }, RestoreOptions{Rebuild: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			onStores(t, func(t *bucketTest) {
				p, entries, last := t.standard()
				// Beside what is named, an attempt that failed and one of a zombie.
				t.upload(p, t.seal(p, 200, 300, 1, 100), 200, 1)
				half := t.upload(p, t.seal(p, 600, 700, 3, 100), 600, 3)
				t.put(half.LogKey(p), []byte("half"))
				c.wreck(t, p, last)
				o := c.o
				o.ArchiveID, o.Random = "b", func() uint64 { return 1<<40 + t.id() }
				if _, err := Restore(t.Context(), t.store, o); c.stops != errors.Is(err, ErrDamaged) {
					t.Fatalf("not told to go on: %v", err)
				}
				o.InSpiteOfProblems = true
				plan, err := Restore(t.Context(), t.store, o)
				if err != nil {
					t.Fatal(err)
				}
				rp := &plan.Topics[0].Partitions[0]
				got := t.served(rp)
				if drawn(got) != drawn(entries) || rp.Pointer.ArchivedEnd != 800 || rp.Pointer.LastEpoch != 4 || rp.Pointer.LogStart != 0 {
					t.Errorf("serves %s, pointer %+v", drawn(got), rp.Pointer)
				}
				for i, e := range got {
					want := entries[i]
					if e.Size != want.Size || e.Records != want.Records || e.LogCRC != want.LogCRC || e.MaxTime != want.MaxTime || !slices.Equal(e.Epochs, want.Epochs) {
						t.Errorf("rebuilt %+v\nwant %+v", e, want)
					}
				}
			})
		})
	}
}

// Without being told to, a restore takes uploads without a manifest for what
// they most likely are.
func TestRestoreOfUploadsThatWereNeverNamed(t *testing.T) {
	bt := &bucketTest{T: t, store: objstore.NewMem()}
	bt.owner("a")
	p := bt.topic("events", 1)
	bt.archive(p, 0, 2, 1)
	plan, err := bt.restore("b", false)
	if err != nil || plan.Topics[0].Partitions[0].Pointer.ManifestKey != "" || plan.Unnamed != 4 {
		t.Errorf("Restore = %+v, %v", plan, err)
	}
}

// Segments of replicas with other borders make one list without overlaps (D28).
func TestRebuildAcrossBorders(t *testing.T) {
	bt := &bucketTest{T: t, store: objstore.NewMem()}
	bt.owner("a")
	p := bt.topic("events", 1)
	for _, r := range [][2]int64{{0, 100}, {0, 150}, {120, 200}, {200, 300}, {180, 250}} {
		bt.upload(p, bt.seal(p, r[0], r[1], 1, 10), r[0], 1)
	}
	plan, err := Restore(t.Context(), bt.store, RestoreOptions{ArchiveID: "b", Rebuild: true, InSpiteOfProblems: true, Random: bt.id})
	if err != nil {
		t.Fatal(err)
	}
	if got := drawn(bt.served(&plan.Topics[0].Partitions[0])); got != "0-150 150-200 200-300" {
		t.Errorf("serves %s", got)
	}
}
