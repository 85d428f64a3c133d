package tiering

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"firn/tiering/objstore"
)

// TestSweepGoesByEpoch puts keys of all sorts beside what is archived.
func TestSweepGoesByEpoch(t *testing.T) {
	w := newWorld(t)
	b := w.start(newDisk(), w.defaults())
	b.lead(4)
	b.append(150)
	b.mustUpload()
	if err := b.log.SetLogStart(t.Context(), 10); err != nil { // a second manifest
		t.Fatal(err)
	}
	at := func(kind Kind, epoch int32, id uint64) string {
		return Key{Kind: kind, Partition: testPart, Base: 3, Last: 9, Epoch: epoch, Seq: 1, ID: id}.String()
	}
	b.log.lead.Load().track(77) // an attempt under way
	keep := []string{
		at(KindLog, 5, 1), at(KindPage, 5, 2), at(KindManifest, 5, 3), // higher epochs
		at(KindLog, 4, 77), at(KindIndex, 4, 77), at(KindManifest, 4, 77), // live
		testPart.Dir() + "notes.txt", testPart.Dir() + "00000000000000000003-1-xyz.log", // not ours
		Key{Kind: KindLog, Partition: Partition{Topic: testPart.Topic, ID: TopicID{5}, Num: 7}, Epoch: 1}.String(), // another topic of that name
		Key{Kind: KindLog, Partition: Partition{Topic: testPart.Topic, ID: testPart.ID, Num: 70}, Epoch: 1}.String(),
	}
	gone := []string{
		at(KindLog, 3, 11), at(KindIndex, 3, 11), at(KindPage, 0, 12), at(KindManifest, 2, 13),
		at(KindLog, 4, 14), at(KindIndex, 4, 15), at(KindPage, 4, 16),
	}
	named := w.bucket.Keys()
	for _, key := range append(append([]string{}, keep...), gone...) {
		if err := w.bucket.Create(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := b.log.Sweep(t.Context(), w.now()); n != 0 || err != nil {
		t.Fatalf("young objects: removed %d, %v", n, err)
	}
	w.advance(2 * time.Minute)
	if n, err := b.log.Sweep(t.Context(), w.now()); n != len(gone) || err != nil {
		t.Fatalf("removed %d, %v; want %d", n, err, len(gone))
	}
	left := strings.Join(w.bucket.Keys(), "\n")
	for _, key := range append(keep, named...) {
		if !strings.Contains(left, key) {
			t.Errorf("%s is gone", key)
		}
	}
	for _, key := range gone {
		if strings.Contains(left, key) {
			t.Errorf("%s is left", key)
		}
	}
	w.checkArchived(100)
}

// TestSweepSeesWhatIsPublishedMeanwhile: objects that are in the listing become
// named, or are put, while the sweep goes on.
// unfinished is a store with uploads in parts that nobody finished.
type unfinished struct {
	objstore.Store
	keys []string
}

func (u *unfinished) AbortIncomplete(_ context.Context, prefix string, keep func(string) bool) (int, error) {
	n := len(u.keys)
	u.keys = slices.DeleteFunc(u.keys, func(key string) bool { return strings.HasPrefix(key, prefix) && !keep(key) })
	return n - len(u.keys), nil
}

// TestSweepAbortsUploadsOfTheDead: by epoch too, and whatever their age.
func TestSweepAbortsUploadsOfTheDead(t *testing.T) {
	w := newWorld(t)
	b := w.start(newDisk(), w.defaults())
	b.lead(4)
	b.append(150)
	b.mustUpload()
	b.log.lead.Load().track(77)
	at := func(p Partition, epoch int32, id uint64) string {
		return Key{Kind: KindLog, Partition: p, Base: 3, Epoch: epoch, ID: id}.String()
	}
	other := testPart
	other.Num++
	keep := []string{at(testPart, 5, 1), at(testPart, 4, 77), testPart.Dir() + "notes.txt", at(other, 1, 5)}
	u := &unfinished{b.archive.store, append([]string{at(testPart, 3, 2), at(testPart, 4, 78)}, keep...)}
	b.archive.store = u
	if _, err := b.log.Sweep(t.Context(), w.now()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(u.keys, keep) {
		t.Errorf("left are %v, want %v", u.keys, keep)
	}
}

func TestSweepSeesWhatIsPublishedMeanwhile(t *testing.T) {
	for _, during := range []objstore.OpKind{objstore.OpList, objstore.OpGet} {
		w, b := leading(t)
		b.append(150)
		b.mustUpload()
		b.append(150)
		b.settle()
		if _, err := b.log.Step(t.Context(), w.now()); err != nil { // one is uploaded, not named
			t.Fatal(err)
		}
		w.advance(2 * time.Minute)
		once := false
		b.store.Set(func(op objstore.Op) objstore.Fault {
			if op.Kind == during && !once && (during == objstore.OpList || op.Key == identityKey) {
				once = true
				b.mustUpload()
			}
			return objstore.Fault{}
		})
		if n, err := b.log.Sweep(t.Context(), w.now()); n != 0 || err != nil || !once {
			t.Fatalf("%s: removed %d objects that a manifest names by now, %v", during, n, err)
		}
		b.verify()
	}
}

func TestUnreadablePageStopsTheSweep(t *testing.T) {
	w, b := leading(t)
	b.manySegments(2*PageEntries + 1)
	b.stop()
	b = w.start(b.disk, w.defaults()) // with no page in memory
	b.lead(2)
	orphan := Key{Kind: KindLog, Partition: testPart, Epoch: 1, ID: 5}.String()
	if err := w.bucket.Create(t.Context(), orphan, []byte("x")); err != nil {
		t.Fatal(err)
	}
	w.advance(2 * time.Minute)
	b.store.Set(func(op objstore.Op) objstore.Fault {
		if op.Kind == objstore.OpGet && strings.Contains(op.Key, "/page/") {
			return objstore.Fault{Before: errAway}
		}
		return objstore.Fault{}
	})
	if n, err := b.log.Sweep(t.Context(), w.now()); n != 0 || !errors.Is(err, ErrUnavailable) {
		t.Fatalf("removed %d, %v", n, err)
	}
	b.store.Set(nil)
	for deadline := time.Now().Add(time.Minute); ; { // the failed load is not tried again at once
		if _, err := b.log.Sweep(t.Context(), w.now()); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if left := w.orphans(); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
}

// TestOwnerThatWasDisplacedTouchesNothing: another took the prefix over.
func TestOwnerThatWasDisplacedTouchesNothing(t *testing.T) {
	w, b := leading(t)
	b.append(100)
	b.mustUpload()
	if err := b.log.SetLogStart(t.Context(), 60); err != nil {
		t.Fatal(err)
	}
	next := Identity{ClusterID: "c2", ArchiveID: "a2"}
	if err := TakeOver(t.Context(), w.bucket, w.identity, next); err != nil {
		t.Fatal(err)
	}
	if err := TakeOver(t.Context(), w.bucket, w.identity, Identity{ClusterID: "c3", ArchiveID: "a3"}); !errors.Is(err, objstore.ErrChanged) {
		t.Fatalf("taken over twice: %v", err)
	}
	w.advance(2 * time.Minute)
	keys := len(w.bucket.Keys())
	if err := b.log.Keep(t.Context(), w.now()); !errors.Is(err, ErrNotOurs) {
		t.Fatalf("keep: %v", err)
	}
	if _, err := b.log.Sweep(t.Context(), w.now()); !errors.Is(err, ErrNotOurs) {
		t.Fatalf("sweep: %v", err)
	}
	if _, err := b.archive.Purge(t.Context(), testPart.Topic, testPart.ID); !errors.Is(err, ErrNotOurs) {
		t.Fatalf("purge: %v", err)
	}
	b.append(100)
	if err := b.upload(); !errors.Is(err, ErrNotOurs) {
		t.Fatalf("upload: %v", err)
	}
	if s := b.log.Status(w.now()); !strings.Contains(s.Reason, "took it over") {
		t.Fatalf("reason %q", s.Reason)
	}
	if got := len(w.bucket.Keys()); got != keys {
		t.Fatalf("%d objects, there were %d", got, keys)
	}
	b.verify() // reading goes on
}

// TestPurgeLeavesNothingOfTheTopicAndAllOfOthers is D22.
func TestPurgeLeavesNothingOfTheTopicAndAllOfOthers(t *testing.T) {
	w, b := leading(t)
	b.append(300)
	b.mustUpload()
	b.append(100)
	other := Key{Kind: KindLog, Partition: Partition{Topic: testPart.Topic, ID: TopicID{5}}, Epoch: 1}.String()
	foreign := topicDir(testPart.Topic, testPart.ID) + "README"
	for _, key := range []string{other, foreign} {
		if err := w.bucket.Create(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	// The deletion's first write fences what is under way.
	w.pointers.DeleteTopic(testPart.ID)
	b.settle()
	b.mustSteps(5)
	if b.log.lead.Load() != nil {
		w.advance(time.Hour)
		b.mustSteps(1)
	}
	if b.log.lead.Load() != nil {
		t.Fatal("an upload for a deleted topic passed the fence")
	}
	if err := b.archive.Bury(t.Context(), testPart.Topic, testPart.ID); err != nil {
		t.Fatal(err)
	}
	tomb := Key{Kind: KindDeleted, Partition: Partition{Topic: testPart.Topic, ID: testPart.ID}}.String()
	var got Tombstone
	if err := decodeJSON(w.object(tomb), &got); err != nil || got.ID != testPart.ID || got.Name != testPart.Topic {
		t.Fatalf("%+v, %v", got, err)
	}
	var deleted []string
	b.store.Set(func(op objstore.Op) objstore.Fault {
		if op.Kind == objstore.OpDelete {
			deleted = append(deleted, op.Key)
			if len(deleted) == 4 {
				return objstore.Fault{After: errAway}
			}
		}
		return objstore.Fault{}
	})
	if _, err := b.archive.Purge(t.Context(), testPart.Topic, testPart.ID); !errors.Is(err, errAway) {
		t.Fatal(err)
	}
	if _, err := b.archive.Purge(t.Context(), testPart.Topic, testPart.ID); err != nil { // begun again
		t.Fatal(err)
	}
	if last := deleted[len(deleted)-1]; last != tomb {
		t.Fatalf("the last to go is %s", last)
	}
	if got := strings.Join(w.bucket.Keys(), " "); got != strings.Join([]string{identityKey, foreign, other}, " ") && got != strings.Join([]string{identityKey, other, foreign}, " ") {
		t.Fatalf("left: %s", got)
	}
}
