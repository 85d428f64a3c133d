package broker

import (
	"firn/broker/wire"
	"firn/replication"
	"firn/replication/meta"
)

// topicIndex is an immutable picture of all topics, replaced as a whole when
// one changes, so that the hot path finds a partition without a lock.
type topicIndex struct {
	byName map[string]*topic
	byID   map[meta.TopicID]*topic
}

// topic is one topic in the picture. It is immutable; the partitions live on.
type topic struct {
	meta.Topic
	internal bool
	// states[p] is the partition's state in the metadata store.
	states []meta.PartitionState
	// parts[p] is the replica that this broker hosts, nil if it hosts none.
	parts []*replication.Partition
}

// partition returns the hosted replica of partition p, or nil.
func (t *topic) partition(p int32) *replication.Partition {
	if t == nil || p < 0 || int(p) >= len(t.parts) {
		return nil
	}
	return t.parts[p]
}

// leader is what a client is told of who leads partition p.
func (t *topic) leader(p int32) wire.Leader {
	if p < 0 || int(p) >= len(t.states) {
		return wire.NoLeader
	}
	s := &t.states[p]
	return wire.Leader{ID: s.Leader.ID, Epoch: s.LeaderEpoch}
}

// appendNode appends where clients of a listener reach a leader, if that is known
// and not there yet.
func (b *Broker) appendNode(nodes []wire.Node, listener string, l wire.Leader) []wire.Node {
	return nodes
}
