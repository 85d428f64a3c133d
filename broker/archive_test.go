package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/tiering/objstore"
)

// fill appends n records of one second each, so small that segments of 1 KiB
// hold several.
func (n *node) fill(topic string, count int) {
	n.t.Helper()
	for range count {
		n.append(topic, 0, time.Now().UnixMilli())
	}
}

func TestSealedSegmentsOfANewTopicAreArchived(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem())
	n.create("t", 1, "segment.bytes=1024")
	if d := n.config("t", "remote.storage.enable"); words(d.Value) != "true" {
		t.Fatalf("remote.storage.enable is %q", words(d.Value))
	}
	if last, pending := n.list("t", 0, -5).Offset, n.list("t", 0, -6).Offset; last != -1 || pending != 0 {
		t.Errorf("of an empty topic: latest archived %d, earliest pending %d", last, pending)
	}
	n.fill("t", 100)
	end := int64(0)
	eventually(t, "archived, and the next one pending", func() bool {
		end = n.list("t", 0, -5).Offset
		pending := n.list("t", 0, -6).Offset
		return end > 50 && pending == end+1 // unless another went up meanwhile
	})
	n.restart()
	if got := n.list("t", 0, -5).Offset; got < end {
		t.Errorf("after a restart %d is archived, before it %d", got, end)
	}
}

func TestTheArchiveOfATopicIsSwitchedOnLater(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem())
	n.create("t", 1, "segment.bytes=1024", "remote.storage.enable=false")
	n.fill("t", 50)
	if got := n.list("t", 0, -5).Offset; got != -1 {
		t.Fatalf("%d is archived", got)
	}
	if r := n.alter("t", "remote.storage.enable", "true"); r.ErrorCode != 0 {
		t.Fatalf("code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	eventually(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 0 })

	if r := n.alter("t", "remote.storage.enable", "false"); r.ErrorCode != kerr.InvalidConfig.Code {
		t.Errorf("switched off without remote.log.delete.on.disable: code %d", r.ErrorCode)
	}
	if r := n.alter("t", "remote.log.copy.disable", "true"); r.ErrorCode != 0 {
		t.Errorf("remote.log.copy.disable: code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	n.alter("t", "remote.log.delete.on.disable", "true")
	if r := n.alter("t", "remote.storage.enable", "false"); r.ErrorCode != 0 {
		t.Fatalf("code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	eventually(t, "no answer about the archive", func() bool { return n.list("t", 0, -5).Offset == -1 && n.list("t", 0, -6).Offset == -1 })
}

func TestAShortenedLocalRetentionFreesTheDiskAtOnce(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem())
	n.create("t", 1, "segment.bytes=1024", "file.delete.delay.ms=0")
	n.fill("t", 100)
	eventually(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 50 })
	n.alter("t", "local.retention.bytes", "1")
	eventually(t, "gone from the disk", func() bool { return n.list("t", 0, -4).Offset > 50 })
	if got := n.list("t", 0, -2).Offset; got != 0 {
		t.Errorf("log start is %d", got)
	}
}

func TestADeletedTopicLeavesTheArchiveAfterTheGrace(t *testing.T) {
	store := objstore.NewMem()
	n := startNodeWith(t, t.TempDir(), store, "archive.delete.grace.ms=0")
	n.create("t", 1, "segment.bytes=1024")
	n.fill("t", 100)
	eventually(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 50 })
	if code := n.delete("t"); code != 0 {
		t.Fatalf("code %d", code)
	}
	// The broker is at it by itself, too: one of the two finds nothing to wait for.
	eventually(t, "nothing is left to come back to", func() bool { return n.purge(t.Context()) == purgeEvery })
	var left []string
	err := store.List(context.Background(), "t~", func(o objstore.Object) error { left = append(left, o.Key); return nil })
	if err != nil || len(left) > 0 {
		t.Errorf("left in the archive: %v, %v", left, err)
	}
}

func TestABrokerWithArchivedDataDoesNotStartWithoutItsArchive(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem())
	n.create("t", 1, "segment.bytes=1024")
	n.fill("t", 50)
	eventually(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 0 })
	n.stop()
	for name, archive := range map[string]objstore.Store{"no archive": nil, "an empty one": objstore.NewMem()} {
		if err := n.tryStart(archive); err == nil {
			t.Errorf("started with %s", name)
		}
	}
}

// A store that hangs is waited for as long as Config says, and then served without.
func TestABrokerStartsBesideAStoreThatHangs(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem())
	n.create("t", 1, "remote.storage.enable=false")
	n.fill("t", 5)
	n.stop()
	n.archiveWait = time.Millisecond
	n.archive = objstore.Inject(n.archive, func(objstore.Op) objstore.Fault { return objstore.Fault{Hold: make(chan struct{})} })
	took := archiveStartWait
	for tries := 0; took >= archiveStartWait && tries < 5; tries++ { // the machine may stand still for as long
		n.stop()
		began := time.Now()
		n.start()
		took = time.Since(began)
	}
	if took >= archiveStartWait {
		t.Errorf("started after %v", took)
	}
	n.fill("t", 5)
	if got := n.list("t", 0, -1).Offset; got != 10 {
		t.Errorf("the log ends at %d", got)
	}
}

func TestABrokerWithoutTheClustersArchiveDoesNotJoin(t *testing.T) {
	c := startClusterWith(t, 2, objstore.NewMem())
	n := c.node(2)
	n.stop()
	if err := n.tryStart(nil); err == nil || !strings.Contains(err.Error(), "archive.url") {
		t.Errorf("started without the archive that its cluster has: %v", err)
	}
}

// crash copies the broker's directory as a killed process leaves it, and returns
// a node that can be started on the copy.
func (n *node) crash() *node {
	n.t.Helper()
	dir := n.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(n.dir)); err != nil {
		n.t.Fatal(err)
	}
	m := &node{t: n.t, dir: dir, set: n.set, archive: n.archive, stop: func() {}}
	n.t.Cleanup(func() { m.stop() })
	return m
}

func TestAKilledBrokerComesBackWithAllThatWasAcknowledged(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem())
	n.create("t", 1, "segment.bytes=1024", "local.retention.bytes=2048")
	n.fill("t", 200)
	eventually(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 150 })
	n.retain(t.Context())
	eventually(t, "gone from the disk", func() bool { return n.list("t", 0, -4).Offset > 100 })
	n.fill("t", 7)
	epoch, local := n.describe("t").Partitions[0].LeaderEpoch, n.list("t", 0, -4).Offset
	m := n.crash()
	n.stop()
	m.start()
	if got := m.list("t", 0, -1).Offset; got != 207 {
		t.Errorf("the log ends at %d", got)
	}
	if got := m.list("t", 0, -4).Offset; got != local {
		t.Errorf("its local part begins at %d, before at %d", got, local)
	}
	if got := m.list("t", 0, -2).Offset; got != 0 {
		t.Errorf("it begins at %d", got)
	}
	if got := m.describe("t").Partitions[0].LeaderEpoch; got <= epoch {
		t.Errorf("epoch %d after %d", got, epoch)
	}
}

func TestALostLogWaitsForItsOperatorAndThenStartsAgainAtTheArchivedEnd(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem())
	n.create("t", 1, "segment.bytes=1024")
	n.fill("t", 100)
	eventually(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 50 })
	n.stop()
	moved := filepath.Join(t.TempDir(), "t-0")
	dir := filepath.Join(n.dir, "logs", "t-0")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	n.start()
	for range 2 { // it isn't made anew in silence
		if got := n.describe("t").Partitions[0]; got.Leader != -1 || got.ErrorCode != kerr.LeaderNotAvailable.Code {
			t.Fatalf("a lost log is led: %+v", got)
		}
		n.restart()
	}
	n.stop()
	if err := os.Rename(moved, dir); err != nil {
		t.Fatal(err)
	}
	n.start()
	eventually(t, "led, put back", func() bool { return n.list("t", 0, -1).ErrorCode == 0 })
	if got := n.list("t", 0, -1).Offset; got != 100 {
		t.Fatalf("put back, the log ends at %d", got)
	}
	n.stop()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	n.start()
	if r := n.alter("t", "unclean.leader.election.enable", "true"); r.ErrorCode != 0 {
		t.Fatalf("code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	eventually(t, "led again", func() bool { return n.list("t", 0, -1).ErrorCode == 0 })
	end := n.list("t", 0, -5).Offset + 1
	if got := n.list("t", 0, -1).Offset; got != end || end < 50 {
		t.Errorf("the log ends at %d, archived is up to %d", got, end)
	}
	if got := n.append("t", 0, 1).First; got != end {
		t.Errorf("the next record got offset %d", got)
	}
}

func TestABrokerStartsWithoutItsStoreAndLeadsWhatDoesNotNeedIt(t *testing.T) {
	var down atomic.Bool
	store := objstore.Inject(objstore.NewMem(), func(objstore.Op) (f objstore.Fault) {
		if down.Load() {
			f.Before = errors.New("store is down")
		}
		return f
	})
	n := startNodeWith(t, t.TempDir(), store)
	n.create("whole", 1, "segment.bytes=1024")
	n.create("lost", 1, "segment.bytes=1024", "unclean.leader.election.enable=true")
	n.fill("whole", 50)
	n.fill("lost", 50)
	eventually(t, "archived", func() bool { return n.list("whole", 0, -5).Offset > 0 && n.list("lost", 0, -5).Offset > 0 })
	n.stop()
	if err := os.RemoveAll(filepath.Join(n.dir, "logs", "lost-0")); err != nil {
		t.Fatal(err)
	}
	down.Store(true)
	n.start()
	eventually(t, "serving", func() bool { return n.list("whole", 0, -1).ErrorCode == 0 })
	n.append("whole", 0, 1)
	if got := n.list("lost", 0, -1); got.ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Errorf("a log that must wait for the store (T8): %+v", got)
	}
	if len(n.Problems(t.Context(), 0)) == 0 {
		t.Error("no problem is told")
	}
	down.Store(false)
	eventually(t, "leading again", func() bool { return n.list("lost", 0, -1).ErrorCode == 0 })
	end := n.list("lost", 0, -5).Offset + 1
	if got := n.list("lost", 0, -1).Offset; got != end || end < 1 {
		t.Errorf("the log ends at %d, archived is up to %d", got, end)
	}
	eventually(t, "well again, though nobody produces", func() bool { return len(n.Problems(t.Context(), 0)) == 0 })
}

func TestADeletedTopicIsBuriedAtOnce(t *testing.T) {
	store := objstore.NewMem()
	n := startNodeWith(t, t.TempDir(), store)
	n.create("t", 1, "segment.bytes=1024")
	n.fill("t", 100)
	eventually(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 50 })
	if code := n.delete("t"); code != 0 {
		t.Fatalf("code %d", code)
	}
	eventually(t, "buried", func() bool {
		found := false
		err := store.List(t.Context(), "t~", func(o objstore.Object) error {
			found = found || strings.HasSuffix(o.Key, "/deleted.json")
			return nil
		})
		return found && err == nil
	})
}

func TestADeletedTopicIsLookedAtWhenItsGraceIsOver(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem(), "archive.delete.grace.ms=25000")
	n.create("t", 1)
	if code := n.delete("t"); code != 0 {
		t.Fatalf("code %d", code)
	}
	if again := n.purge(t.Context()); again > 25*time.Second || again <= 0 { // it looks every 30 s anyway
		t.Errorf("looks again in %v", again)
	}
}

func TestAnActiveSegmentOfAnySizeGoesUpIfTheMinimumIsZero(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem(), "archive.upload.max.interval.ms=1000", "archive.upload.min.bytes=0")
	n.create("t", 1)
	n.fill("t", 1)
	eventually(t, "archived", func() bool { return n.list("t", 0, -5).Offset == 0 })
}
