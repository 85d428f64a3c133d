package meta

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// Where things stand. Names are those of Kafka with ZooKeeper where it has one;
// what is ours lies below /firn.
const (
	brokerIDs       = "/brokers/ids"
	topics          = "/brokers/topics"
	controllerPath  = "/controller"
	controllerEpoch = "/controller_epoch"
	configs         = "/config"
	clusterID       = "/cluster/id"
	producerIDs     = "/latest_producer_id_block"

	registrations = "/firn/brokers"
	topicIDs      = "/firn/topics"
	tier          = "/firn/tier"
	offline       = "/firn/offline"
	purge         = "/firn/purge"
	archiveID     = "/firn/archive"
	adopting      = "/firn/adopting"
	leases        = "/firn/lease"
	elections     = "/firn/elections"
)

// roots are the nodes that everything else stands below, parents first.
var roots = [...]string{
	"/brokers", brokerIDs, topics,
	configs, configs + "/" + string(TopicConfig), configs + "/" + string(BrokerConfig),
	"/cluster",
	"/firn", registrations, topicIDs, tier, offline, purge, leases, elections,
}

func itoa(n int32) string { return strconv.FormatInt(int64(n), 10) }

// BrokerPath is the ephemeral node of a registered broker.
func BrokerPath(id int32) string { return brokerIDs + "/" + itoa(id) }

// RegistrationPath is the persistent node with a broker's epoch (R6).
func RegistrationPath(id int32) string { return registrations + "/" + itoa(id) }

// offlinePath is where a broker lists what it gives up.
func offlinePath(id int32) string { return offline + "/" + itoa(id) }

// leasePath is what a broker writes to keep its lease.
func leasePath(id int32) string { return leases + "/" + itoa(id) }

// TopicPath is the node of a topic.
func TopicPath(name string) string { return topics + "/" + name }

func partitionsPath(topic string) string { return TopicPath(topic) + "/partitions" }

func partitionPath(topic string, p int32) string { return partitionsPath(topic) + "/" + itoa(p) }

// StatePath is the node of a partition's state.
func StatePath(topic string, p int32) string { return partitionPath(topic, p) + "/state" }

// TopicIDPath is the node that exists while the topic does.
func TopicIDPath(id TopicID) string { return topicIDs + "/" + id.String() }

func tierPath(id TopicID) string { return tier + "/" + id.String() }

// PointerPath is the node of a partition's archive pointer (T3).
func PointerPath(id TopicID, p int32) string { return tierPath(id) + "/" + itoa(p) }

// PurgePath is the tombstone of a deleted topic, until its archive is gone.
func PurgePath(id TopicID) string { return purge + "/" + id.String() }

func electionPath(name string) string { return elections + "/" + name }

// ConfigPath is the node of an entity's dynamic configs.
func ConfigPath(kind ConfigKind, entity string) string {
	return configs + "/" + string(kind) + "/" + entity
}

// CheckPath says whether path may name a node: absolute, of non-empty names
// without control characters, none of them a dot or two. That is ZooKeeper's rule.
func CheckPath(path string) error {
	if len(path) < 2 || path[0] != '/' {
		return fmt.Errorf("meta: path %q is not absolute", path)
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" || name == "." || name == ".." || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("meta: path %q has a bad name", path)
		}
	}
	return nil
}

// parseTopicID reads what TopicID.String writes.
func parseTopicID(s string) (TopicID, error) {
	var id TopicID
	if len(s) != base64.RawURLEncoding.EncodedLen(len(id)) {
		return TopicID{}, fmt.Errorf("meta: topic id %.40q: %w", s, ErrFormat)
	}
	if _, err := base64.RawURLEncoding.Strict().Decode(id[:], []byte(s)); err != nil {
		return TopicID{}, fmt.Errorf("meta: topic id %.40q: %w", s, ErrFormat)
	}
	return id, nil
}
