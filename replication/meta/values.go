package meta

import "encoding/base64"

// TopicID identifies a topic for good: a topic created again under its name is another.
type TopicID [16]byte

// String is Kafka's form: base64 for URLs, without padding.
func (t TopicID) String() string { return base64.RawURLEncoding.EncodeToString(t[:]) }

// IsZero: no id.
func (t TopicID) IsZero() bool { return t == TopicID{} }

// Topic is the node of a topic, the commit point of its creation.
type Topic struct {
	Name string
	ID   TopicID
	// Replicas[p] lists the brokers of partition p, the preferred leader first.
	Replicas [][]int32
	// Adding and Removing are what a reassignment under way does to partitions.
	Adding, Removing map[int32][]int32
	// Deleting: the topic is deleted, what is left of it is on its way out, and
	// its name free when this node is gone.
	Deleting bool
	Version  int32
	Rev      int64
}

// Missing is the Version of what has no node yet: writing it creates one. In
// all values Version is that of the node, for compare-and-set, and Rev its Rev.
const Missing int32 = -2

// Member is a broker in one of its registrations (R6).
type Member struct {
	ID    int32
	Epoch int64 // broker epoch
}

// PartitionState is who leads a partition and who is in sync.
type PartitionState struct {
	ControllerEpoch int32
	// Leader's ID is -1 for "leader none".
	Leader      Member
	LeaderEpoch int32
	ISR         []Member
	// Eligible: were in the ISR when it fell below min.insync.replicas (KIP-966).
	Eligible []Member
	Version  int32
	Rev      int64
}

// NoLeader is the leader of a partition that nobody leads.
var NoLeader = Member{ID: -1, Epoch: -1}

// Endpoint is where clients reach a listener of a broker.
type Endpoint struct {
	Listener string
	Protocol string // PLAINTEXT
	Host     string
	Port     int32
}

// Broker is a registered broker.
type Broker struct {
	ID        int32
	Epoch     int64
	Rack      string
	Endpoints []Endpoint
	// StorageID identifies its data directory.
	StorageID string
}

// Pointer names the newest manifest of an archived partition (T3).
type Pointer struct {
	ManifestKey  string
	ManifestSize int64
	ManifestCRC  uint32
	Sequence     int64
	// LastEpoch is the leader epoch of the last archived offset, -1 for none.
	LastEpoch   int32
	LogStart    int64
	ArchivedEnd int64
	Version     int32
	Rev         int64
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// ConfigKind is a kind of entity that has dynamic configs. Its value is
// ZooKeeper-mode Kafka's name for it.
type ConfigKind string

const (
	TopicConfig  ConfigKind = "topics"
	BrokerConfig ConfigKind = "brokers" // entity: the id, or "<default>"
)

// Config is the dynamic configs of an entity.
type Config struct {
	Values  map[string]string
	Version int32
	Rev     int64
}

// Note tells brokers what a commit changed, so that they re-read only that.
type Note struct {
	Number int64 `json:"-"`
	// Topics whose node or configs changed, appeared or went.
	Topics []string `json:"topics,omitempty"`
	// Partitions whose state changed.
	Partitions []TopicPartition `json:"partitions,omitempty"`
	// Configs changed of entities that aren't topics.
	Configs []string `json:"configs,omitempty"`
	// Brokers: the set of registered brokers changed.
	Brokers bool `json:"brokers,omitempty"`
	// Elections were asked for, or granted.
	Elections bool `json:"elections,omitempty"`
}
