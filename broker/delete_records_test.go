package broker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/tiering/objstore"
)

func (n *node) deleteRecords(topic string, p int32, offset int64) kmsg.DeleteRecordsResponseTopicPartition {
	n.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = 2, waitMillis
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = topic
	part := kmsg.NewDeleteRecordsRequestTopicPartition()
	part.Partition, part.Offset = p, offset
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	return ask[*kmsg.DeleteRecordsResponse](n, req).Topics[0].Partitions[0]
}

func TestDeleteRecordsMovesTheLogStartForGood(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	n.append("t", 0, 1, 2, 3, 4, 5)
	n.append("t", 0, 6, 7, 8)
	for _, c := range []struct {
		offset, want int64
		code         int16
	}{
		{3, 3, 0}, // in the middle of a batch
		{2, 3, 0}, // never back
		{9, -1, kerr.OffsetOutOfRange.Code},
		{-2, -1, kerr.OffsetOutOfRange.Code},
		{6, 6, 0},
	} {
		got := n.deleteRecords("t", 0, c.offset)
		if got.LowWatermark != c.want || got.ErrorCode != c.code {
			t.Errorf("below %d: low watermark %d, code %d, want %d, %d", c.offset, got.LowWatermark, got.ErrorCode, c.want, c.code)
		}
	}
	if got := n.list("t", 0, -2).Offset; got != 6 {
		t.Errorf("earliest is %d", got)
	}
	n.restart()
	if got := n.list("t", 0, -2).Offset; got != 6 {
		t.Errorf("after a restart earliest is %d", got)
	}
	if got := n.deleteRecords("t", 0, -1); got.LowWatermark != 8 || got.ErrorCode != 0 {
		t.Errorf("all: %+v", got)
	}
	if got := n.deleteRecords("t", 7, 0); got.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("no such partition: %+v", got)
	}
}

func TestRecordsOfAnInternalTopicAreNotDeleted(t *testing.T) {
	n := startNode(t, t.TempDir(), "offsets.topic.num.partitions=2")
	n.offsetsTopic()
	if got := n.deleteRecords(offsetsTopic, 0, 0); got.ErrorCode != kerr.InvalidTopicException.Code {
		t.Errorf("%+v", got)
	}
}

// T8: nothing of a log is archived yet, and its oldest records are deleted, from
// the disk too: that is no damage, on no replica, whatever comes after.
func TestRecordsDeletedBeforeAnyIsArchived(t *testing.T) {
	c := startClusterWith(t, 2, objstore.NewMem(), "remote.log.manager.task.interval.ms=200")
	c.create("t", [][]int32{{1, 2}}, "segment.bytes=1024", "remote.log.copy.disable=true")
	c.node(1).fill("t", 100)
	eventually(t, "committed", func() bool { return c.node(1).hosted("t").local.Offsets().HighWatermark == 100 })
	first := segmentAt(t, c.node(1).hosted("t").local, 0)
	start := segmentAt(t, c.node(1).hosted("t").local, first.End).End
	if got := c.node(1).deleteRecords("t", 0, start); got.LowWatermark != start || got.ErrorCode != 0 {
		t.Fatalf("delete records: %+v", got)
	}
	for _, n := range c.nodes {
		eventually(t, "gone from the disk", func() bool { return n.hosted("t").local.Offsets().LocalStart == start })
		n.checkpoint(t.Context())
	}
	inSync := func() {
		t.Helper()
		eventually(t, "both are in sync", func() bool { return len(c.state("t", 0).ISR) == 2 })
	}
	for _, id := range []int32{1, 2} {
		// Whoever leads stops, then is killed; the other takes over.
		n, other := c.node(id), c.node(3-id)
		n.restart()
		inSync()
		c.crash(id)
		if got := c.leader("t", 0); got != other {
			t.Fatalf("broker %d leads", got.id)
		}
		if got := other.list("t", 0, -2); got.Offset != start || got.ErrorCode != 0 {
			t.Fatalf("with broker %d away the log begins at %+v, want %d", id, got, start)
		}
		other.fill("t", 5)
		n.crashed = false
		n.start()
		inSync()
	}
	wiped := c.node(2)
	wiped.stop()
	if err := os.RemoveAll(filepath.Join(wiped.dir, "logs", "t-0")); err != nil {
		t.Fatal(err)
	}
	wiped.start()
	inSync()
	wiped.checkpoint(t.Context())
	wiped.restart()
	inSync()
	c.node(1).stop()
	c.leader("t", 0)
	for _, want := range []struct{ at, offset int64 }{{-2, start}, {-4, start}, {-1, 110}} {
		if got := wiped.list("t", 0, want.at); got.Offset != want.offset || got.ErrorCode != 0 {
			t.Errorf("offset for %d: %+v, want %d", want.at, got, want.offset)
		}
	}
	if r := wiped.alter("t", "remote.log.copy.disable", "false"); r.ErrorCode != 0 {
		t.Fatalf("code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	eventually(t, "archived from there on", func() bool { return wiped.list("t", 0, -5).Offset > start })
	if got := wiped.list("t", 0, -2); got.Offset != start {
		t.Errorf("archived, it begins at %d, want %d", got.Offset, start)
	}
}
