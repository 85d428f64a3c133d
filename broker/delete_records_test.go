package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
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
