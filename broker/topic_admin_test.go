package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestACreatedTopicIsServedWhenTheAnswerComes(t *testing.T) {
	n := startNode(t, t.TempDir())
	created := n.create("t", 3, "retention.ms=1000")
	if created.NumPartitions != 3 || created.ReplicationFactor != 1 || created.TopicID == [16]byte{} {
		t.Fatalf("created: %+v", created)
	}
	got := n.describe("t")
	if got.ErrorCode != 0 || got.TopicID != created.TopicID || len(got.Partitions) != 3 {
		t.Fatalf("described: %+v", got)
	}
	for _, p := range got.Partitions {
		if p.ErrorCode != 0 || p.Leader != 1 || p.LeaderEpoch < 0 || len(p.ISR) != 1 {
			t.Errorf("partition: %+v", p)
		}
		if _, _, here := n.topics.Load().byName["t"].parts[p.Partition].Leader(); !here {
			t.Errorf("partition %d isn't led", p.Partition)
		}
	}
}

func TestWhatCannotBeCreated(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("my.topic", 1)
	for name, c := range map[string]struct {
		topic      string
		partitions int32
		factor     int16
		configs    []string
		want       *kerr.Error
	}{
		"bad name":          {"a/b", 1, 1, nil, kerr.InvalidTopicException},
		"taken":             {"my.topic", 1, 1, nil, kerr.TopicAlreadyExists},
		"colliding":         {"my_topic", 1, 1, nil, kerr.InvalidTopicException},
		"no partitions":     {"t", 0, 1, nil, kerr.InvalidPartitions},
		"too many":          {"t", maxPartitions + 1, 1, nil, kerr.InvalidPartitions},
		"two replicas":      {"t", 1, 2, nil, kerr.InvalidReplicationFactor},
		"no replica":        {"t", 1, 0, nil, kerr.InvalidReplicationFactor},
		"unknown config":    {"t", 1, 1, []string{"retention.msx=1"}, kerr.InvalidConfig},
		"bad value":         {"t", 1, 1, []string{"retention.ms=soon"}, kerr.InvalidConfig},
		"compaction":        {"t", 1, 1, []string{"cleanup.policy=compact"}, kerr.InvalidConfig},
		"tiny segments":     {"t", 1, 1, []string{"segment.bytes=1023"}, kerr.InvalidConfig},
		"archive, no store": {"t", 1, 1, []string{"remote.storage.enable=true"}, kerr.InvalidConfig},
	} {
		got := n.tryCreate(c.topic, c.partitions, c.factor, c.configs...)
		if got.ErrorCode != c.want.Code || words(got.ErrorMessage) == "" {
			t.Errorf("%s: code %d %q, want %v", name, got.ErrorCode, words(got.ErrorMessage), c.want)
		}
	}
	if got := n.tryCreate("defaults", -1, -1); got.ErrorCode != 0 || got.NumPartitions != 1 || got.ReplicationFactor != 1 {
		t.Errorf("defaults: %+v", got)
	}
	if got := n.tryCreate("small", 1, 1, "segment.bytes=1024"); got.ErrorCode != 0 {
		t.Errorf("segment.bytes=1024: %s", words(got.ErrorMessage))
	}
}

func TestATopicComesBackUnderAnotherID(t *testing.T) {
	n := startNode(t, t.TempDir())
	for range 3 {
		first := n.create("t", 2)
		old := n.topics.Load().byName["t"].parts[0]
		if code := n.delete("t"); code != 0 {
			t.Fatalf("delete: code %d", code)
		}
		if got := n.describe("t"); got.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Fatalf("deleted: %+v", got)
		}
		if _, _, here := old.Leader(); here {
			t.Fatal("a deleted partition is still led")
		}
		second := n.create("t", 1)
		if second.TopicID == first.TopicID {
			t.Fatal("the same id again")
		}
		n.delete("t")
	}
}

func TestARestartRaisesEveryLeaderEpochAndKeepsTheRest(t *testing.T) {
	n := startNode(t, t.TempDir())
	before := n.create("t", 5, "max.message.bytes=2000")
	was := n.describe("t")
	cluster := n.clusterID
	n.restart()
	is := n.describe("t")
	if n.clusterID != cluster || is.TopicID != before.TopicID || len(is.Partitions) != 5 {
		t.Fatalf("after the restart: %+v", is)
	}
	for p := range is.Partitions {
		if is.Partitions[p].LeaderEpoch <= was.Partitions[p].LeaderEpoch {
			t.Errorf("partition %d: epoch %d after %d", p, is.Partitions[p].LeaderEpoch, was.Partitions[p].LeaderEpoch)
		}
	}
	if got := n.topics.Load().byName["t"].overrides["max.message.bytes"]; got != "2000" {
		t.Errorf("max.message.bytes is %q", got)
	}
}
