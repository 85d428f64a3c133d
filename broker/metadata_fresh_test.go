package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/replication"
	"firn/replication/meta"
)

// A partition that never had a leader is not shown: clients of Kafka's have never
// seen one, and some give up on it. A topic of nothing else is on its way.
func TestMetadataShowsAPartitionOnceItHasHadALeader(t *testing.T) {
	m := metadataView{x: &topicIndex{controller: -1}, version: 8}
	gone := meta.PartitionState{Leader: meta.NoLeader} // had one
	for _, c := range []struct {
		states []meta.PartitionState
		shown  int
		code   int16
	}{
		{[]meta.PartitionState{meta.NoState(), meta.NoState()}, 0, kerr.LeaderNotAvailable.Code},
		{[]meta.PartitionState{gone, meta.NoState()}, 1, 0}, // partitions were added
		{[]meta.PartitionState{gone, gone}, 2, 0},
	} {
		tp := &topic{
			Topic:  meta.Topic{Name: "t", Replicas: [][]int32{{1}, {1}}},
			states: c.states, parts: make([]*replication.Partition, 2),
		}
		if got := m.topic(tp); len(got.Partitions) != c.shown || got.ErrorCode != c.code {
			t.Errorf("%d partitions, code %d; want %d, %d", len(got.Partitions), got.ErrorCode, c.shown, c.code)
		}
	}
}
