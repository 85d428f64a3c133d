package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Record is a record of __consumer_offsets. A nil Value deletes.
type Record struct{ Key, Value []byte }

// Versions that are written. Kafka's tools read them all.
const (
	keyOffset      = 1 // 0 is read, too
	keyMetadata    = 2
	offsetValue    = 4
	offsetExpiring = 1 // the one version that has an expiry of its own
	metadataValue  = 3
)

// OffsetRecord is the record of a commit.
func OffsetRecord(group string, p Partition, o Offset) Record {
	v := kmsg.NewOffsetCommitValue()
	v.Version = offsetValue
	v.Offset, v.LeaderEpoch, v.Metadata, v.TopicID = o.Offset, o.LeaderEpoch, o.Metadata, o.TopicID
	v.CommitTimestamp = o.Committed.UnixMilli()
	if !o.Expires.IsZero() {
		v.Version, v.ExpireTimestamp = offsetExpiring, o.Expires.UnixMilli()
	}
	return Record{offsetKey(group, p.Topic, p.Num), v.AppendTo(nil)}
}

// OffsetTombstone deletes an offset.
func OffsetTombstone(group, topic string, partition int32) Record {
	return Record{Key: offsetKey(group, topic, partition)}
}

func offsetKey(group, topic string, partition int32) []byte {
	k := kmsg.NewOffsetCommitKey()
	k.Version, k.Group, k.Topic, k.Partition = keyOffset, group, topic, partition
	return k.AppendTo(nil)
}

// tombstone deletes a group.
func tombstone(group string) Record { return Record{Key: metadataKey(group)} }

func metadataKey(group string) []byte {
	k := kmsg.NewGroupMetadataKey()
	k.Version, k.Group = keyMetadata, group
	return k.AppendTo(nil)
}

// metadataRecord is the record of the group as it stands, with these assignments.
func (g *Group) metadataRecord(assignments map[string][]byte) Record {
	v := kmsg.NewGroupMetadataValue()
	v.Version = metadataValue
	v.ProtocolType, v.Generation = g.protocolType, g.generation
	if g.protocol != "" {
		v.Protocol = &g.protocol
	}
	if g.leader != "" {
		v.Leader = &g.leader
	}
	v.CurrentStateTimestamp = g.since.UnixMilli()
	for _, m := range g.members {
		w := kmsg.NewGroupMetadataValueMember()
		w.MemberID, w.InstanceID, w.ClientID, w.ClientHost = m.id, m.instance, m.clientID, m.host
		w.RebalanceTimeoutMillis = int32(m.rebalance.Milliseconds())
		w.SessionTimeoutMillis = int32(m.session.Milliseconds())
		w.Subscription, w.Assignment = m.metadata(g.protocol), assignments[m.id]
		v.Members = append(v.Members, w)
	}
	return Record{metadataKey(g.name), v.AppendTo(nil)}
}

// Entry is a decoded record: a commit, or a group's metadata.
type Entry struct {
	Group string
	// Partition and Offset are those of a commit; Offset is nil for a deletion.
	Commit    bool
	Partition Partition
	Offset    *Offset
	// Metadata is a group's; nil for a deletion.
	Metadata *kmsg.GroupMetadataValue
}

// ErrForeign is a record that isn't a classic group's.
var ErrForeign = errors.New("group: record of another kind")

// Decode reads a record. It keeps neither key nor value.
func Decode(key, value []byte) (Entry, error) {
	if len(key) < 2 {
		return Entry{}, fmt.Errorf("group: key of %d bytes", len(key))
	}
	switch version := int16(binary.BigEndian.Uint16(key)); version {
	case 0, keyOffset:
		return decodeOffset(key, value)
	case keyMetadata:
		return decodeMetadata(key, value)
	default:
		return Entry{}, ErrForeign
	}
}

func decodeOffset(key, value []byte) (Entry, error) {
	var k kmsg.OffsetCommitKey
	if err := k.ReadFrom(key); err != nil {
		return Entry{}, fmt.Errorf("group: key of a commit: %w", err)
	}
	e := Entry{Group: k.Group, Commit: true, Partition: Partition{k.Topic, k.Partition}}
	if value == nil {
		return e, nil
	}
	var v kmsg.OffsetCommitValue
	if err := checkVersion(value, offsetValue); err != nil {
		return Entry{}, err
	}
	v.LeaderEpoch = -1 // where the version has none
	if err := v.ReadFrom(value); err != nil {
		return Entry{}, fmt.Errorf("group: commit of %s: %w", k.Group, err)
	}
	e.Offset = &Offset{
		Offset: v.Offset, LeaderEpoch: v.LeaderEpoch, Metadata: v.Metadata,
		Committed: time.UnixMilli(v.CommitTimestamp), TopicID: v.TopicID,
	}
	if v.Version < 3 {
		e.Offset.LeaderEpoch = -1
	}
	if v.Version == offsetExpiring && v.ExpireTimestamp >= 0 {
		e.Offset.Expires = time.UnixMilli(v.ExpireTimestamp)
	}
	return e, nil
}

func decodeMetadata(key, value []byte) (Entry, error) {
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return Entry{}, fmt.Errorf("group: key of a group: %w", err)
	}
	e := Entry{Group: k.Group}
	if value == nil {
		return e, nil
	}
	if err := checkVersion(value, 4); err != nil {
		return Entry{}, err
	}
	v := kmsg.NewGroupMetadataValue()
	if err := v.ReadFrom(value); err != nil {
		return Entry{}, fmt.Errorf("group: metadata of %s: %w", k.Group, err)
	}
	if v.Version < 2 {
		v.CurrentStateTimestamp = -1
	}
	e.Metadata = &v
	return e, nil
}

// checkVersion refuses a value that is newer than what we know: what it says
// could be read only in part.
func checkVersion(value []byte, newest int16) error {
	if len(value) < 2 {
		return fmt.Errorf("group: value of %d bytes", len(value))
	}
	if v := int16(binary.BigEndian.Uint16(value)); v < 0 || v > newest {
		return fmt.Errorf("group: value of version %d", v)
	}
	return nil
}
