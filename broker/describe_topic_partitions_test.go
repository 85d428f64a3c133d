package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeTopicPartitionsInPages(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("a", 3)
	n.create("b", 2)
	n.create("c", 1)
	all := []string{"a-0", "a-1", "a-2", "b-0", "b-1", "c-0"}
	for limit := int32(1); limit <= 7; limit++ {
		var got []string
		var at *kmsg.DescribeTopicPartitionsRequestCursor
		for range 10 {
			req := kmsg.NewPtrDescribeTopicPartitionsRequest()
			req.ResponsePartitionLimit, req.Cursor = limit, at
			resp := ask[*kmsg.DescribeTopicPartitionsResponse](n, req)
			page := 0
			for _, topic := range resp.Topics {
				for _, p := range topic.Partitions {
					got = append(got, fmt.Sprintf("%s-%d", *topic.Topic, p.Partition))
					page++
				}
			}
			if page > int(limit) {
				t.Fatalf("a page of %d, limit %d", page, limit)
			}
			if resp.NextCursor == nil {
				break
			}
			at = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
		}
		if !slices.Equal(got, all) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
}

func TestDescribeTopicPartitionsOfTopicsThatAreNot(t *testing.T) {
	n := startNode(t, t.TempDir())
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	for _, name := range []string{"none", "a/b"} {
		topic := kmsg.NewDescribeTopicPartitionsRequestTopic()
		topic.Topic = name
		req.Topics = append(req.Topics, topic)
	}
	resp := ask[*kmsg.DescribeTopicPartitionsResponse](n, req)
	if resp.Topics[0].ErrorCode != kerr.InvalidTopicException.Code || resp.Topics[1].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("%+v", resp.Topics)
	}
}
