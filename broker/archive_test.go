package broker

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/tiering/objstore"
)

// until waits for something that another goroutine is about to do.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

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
	n.fill("t", 100)
	until(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 50 })
	end := n.list("t", 0, -5).Offset
	if pending := n.list("t", 0, -6).Offset; pending != end+1 {
		t.Errorf("latest archived %d, earliest pending %d", end, pending)
	}
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
	until(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 0 })

	if r := n.alter("t", "remote.storage.enable", "false"); r.ErrorCode != kerr.InvalidConfig.Code {
		t.Errorf("switched off without remote.log.delete.on.disable: code %d", r.ErrorCode)
	}
	if r := n.alter("t", "remote.log.copy.disable", "true"); r.ErrorCode != 0 {
		t.Errorf("remote.log.copy.disable: code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
}

func TestAShortenedLocalRetentionFreesTheDiskAtOnce(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem())
	n.create("t", 1, "segment.bytes=1024", "file.delete.delay.ms=0")
	n.fill("t", 100)
	until(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 50 })
	n.alter("t", "local.retention.bytes", "1")
	until(t, "gone from the disk", func() bool { return n.list("t", 0, -4).Offset > 50 })
	if got := n.list("t", 0, -2).Offset; got != 0 {
		t.Errorf("log start is %d", got)
	}
}

func TestADeletedTopicLeavesTheArchiveAfterTheGrace(t *testing.T) {
	store := objstore.NewMem()
	n := startNodeWith(t, t.TempDir(), store, "archive.delete.grace.ms=0")
	n.create("t", 1, "segment.bytes=1024")
	n.fill("t", 100)
	until(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 50 })
	if code := n.delete("t"); code != 0 {
		t.Fatalf("code %d", code)
	}
	n.purge(t.Context())
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
	until(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 0 })
	n.stop()
	for name, archive := range map[string]objstore.Store{"no archive": nil, "an empty one": objstore.NewMem()} {
		if err := n.tryStart(archive); err == nil {
			t.Errorf("started with %s", name)
		}
	}
}
