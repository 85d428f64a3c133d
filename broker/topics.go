package broker

import (
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/broker/config"
	"firn/broker/wire"
	"firn/replication"
	"firn/replication/meta"
)

// topicIndex is an immutable picture of the cluster, replaced as a whole when
// something changes, so that the hot path finds a partition without a lock.
type topicIndex struct {
	byName map[string]*topic
	byID   map[meta.TopicID]*topic
	// brokers are the registered ones, by rising id.
	brokers []meta.Broker
	// registered are the registrations that brokers hold now.
	registered map[int32]meta.Registration
	// controller is the id of the broker that is controller, -1 for none.
	controller int32
	// controllerEpoch is that of the last controller.
	controllerEpoch int32
	// offline is what brokers give up, by id.
	offline map[int32]meta.Offline
	// settings is this broker's configuration, dynamic values included; dynamic
	// is those values by entity, as they stand in the store.
	settings *config.Broker
	dynamic  map[string]map[string]string
	// registrations are of all brokers that ever were.
	registrations map[int32]meta.Registration
	// deleting are the names of topics that are deleted but not gone yet: they
	// can't be taken.
	deleting map[string]bool
	// vanished are topics of the last picture that are gone without a tombstone.
	vanished map[meta.TopicID]bool
}

// topic is one topic in the picture. It is immutable; the partitions live on.
type topic struct {
	meta.Topic
	// from is what it was drawn from: the same means that nothing has changed.
	from     *meta.TopicImage
	internal bool
	// overrides are the topic's own configs, settings what they resolve to.
	overrides map[string]string
	settings  config.Topic
	// states[p] is the partition's state in the metadata store; it has no leader
	// as long as the controller has not written one.
	states []meta.PartitionState
	// parts[p] is the replica that this broker hosts, nil if it hosts none.
	parts []*replication.Partition
	stats *topicStats
	// throttledLeaders and throttledFollowers are replicas whose replication is bounded.
	throttledLeaders, throttledFollowers *throttledReplicas
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
	if l.ID < 0 || slices.ContainsFunc(nodes, func(n wire.Node) bool { return n.ID == l.ID }) {
		return nodes
	}
	broker := b.topics.Load().broker(l.ID)
	e := endpoint(broker, listener)
	if e == nil {
		return nodes
	}
	return append(nodes, wire.Node{ID: l.ID, Host: e.Host, Port: e.Port, Rack: broker.Rack})
}

// has says whether the topic has a partition p.
func (t *topic) has(p int32) bool {
	return t != nil && p >= 0 && int(p) < len(t.Replicas)
}

// hosted returns this broker's replica of a partition, or the Kafka error that
// says why there is none.
func (x *topicIndex) hosted(name string, p int32) (*replication.Partition, error) {
	t := x.byName[name]
	switch {
	case !t.has(p):
		return nil, kerr.UnknownTopicOrPartition
	case t.parts[p] == nil:
		return nil, kerr.NotLeaderForPartition
	}
	return t.parts[p], nil
}

// broker returns the registered broker with that id, or nil.
func (x *topicIndex) broker(id int32) *meta.Broker {
	i, ok := slices.BinarySearchFunc(x.brokers, id, func(b meta.Broker, id int32) int { return int(b.ID) - int(id) })
	if !ok {
		return nil
	}
	return &x.brokers[i]
}

// isFull: the broker is registered, and has others lead because its disk is full.
func (x *topicIndex) isFull(id int32) bool {
	b := x.broker(id)
	return b != nil && x.offline[id].IsFull(b.Epoch)
}

// sorted returns the topics by name.
func (x *topicIndex) sorted() []*topic {
	return slices.SortedFunc(maps.Values(x.byName), func(a, b *topic) int { return strings.Compare(a.Name, b.Name) })
}

// endpoint is where clients of a listener reach a broker; nil if it has no such listener.
func endpoint(b *meta.Broker, listener string) *meta.Endpoint {
	if b == nil {
		return nil
	}
	for i := range b.Endpoints {
		if b.Endpoints[i].Listener == listener {
			return &b.Endpoints[i]
		}
	}
	return nil
}

// ids lists the members' broker ids.
func ids(members []meta.Member) []int32 {
	out := make([]int32, len(members))
	for i, m := range members {
		out[i] = m.ID
	}
	return out
}
