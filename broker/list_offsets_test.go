package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication"
	"firn/segment"
	"firn/segment/batch"
)

// append appends one batch with a record for each timestamp.
func (n *node) append(topic string, p int32, timestamps ...int64) replication.Appended {
	n.t.Helper()
	a, err := n.tryAppend(topic, p, n.batch(batch.Spec{}, timestamps...))
	if err != nil {
		n.t.Fatal(err)
	}
	return a
}

func (n *node) batch(spec batch.Spec, timestamps ...int64) []byte {
	n.t.Helper()
	b := batch.NewBuilder(spec)
	for _, ts := range timestamps {
		b.Add(ts, nil, []byte("value"))
	}
	out, err := b.Build()
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

func (n *node) tryAppend(topic string, p int32, b []byte) (replication.Appended, error) {
	part := n.topics.Load().byName[topic].parts[p]
	return part.Append(b, replication.AppendOptions{Epoch: replication.AnyEpoch, All: true, Origin: segment.OriginClient, Now: time.Now().UnixMilli()})
}

// list asks ListOffsets v11 for one partition.
func (n *node) list(topic string, p int32, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	n.t.Helper()
	return n.listAs(topic, p, timestamp, 11, -1)
}

func (n *node) listAs(topic string, p int32, timestamp int64, version int16, epoch int32) kmsg.ListOffsetsResponseTopicPartition {
	n.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.TimeoutMillis = version, -1, waitMillis
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.Timestamp, part.CurrentLeaderEpoch = p, timestamp, epoch
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	return ask[*kmsg.ListOffsetsResponse](n, req).Topics[0].Partitions[0]
}

func TestListOffsetsOfALogWithoutArchive(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	base := time.Now().UnixMilli() - 100_000
	for _, ts := range []int64{10, 20, 90, 30, 40} {
		n.append("t", 0, base+ts)
	}
	type found struct{ timestamp, offset int64 }
	for name, c := range map[string]struct {
		ask  int64
		want found
	}{
		"latest":             {-1, found{-1, 5}},
		"earliest":           {-2, found{-1, 0}},
		"largest timestamp":  {-3, found{base + 90, 2}},
		"earliest local":     {-4, found{-1, 0}},
		"latest archived":    {-5, found{-1, -1}},
		"earliest pending":   {-6, found{-1, -1}},
		"before all":         {0, found{base + 10, 0}},
		"exactly":            {base + 20, found{base + 20, 1}},
		"between":            {base + 21, found{base + 90, 2}},
		"after the largest":  {base + 91, found{-1, -1}},
		"out of order later": {base + 35, found{base + 90, 2}},
	} {
		got := n.list("t", 0, c.ask)
		if got.ErrorCode != 0 || (found{got.Timestamp, got.Offset}) != c.want {
			t.Errorf("%s: code %d, timestamp %d, offset %d, want %+v", name, got.ErrorCode, got.Timestamp, got.Offset, c.want)
		}
		if wantEpoch := n.describe("t").Partitions[0].LeaderEpoch; c.want.offset >= 0 && got.LeaderEpoch != wantEpoch {
			t.Errorf("%s: leader epoch %d, want %d", name, got.LeaderEpoch, wantEpoch)
		}
	}
}

func TestListOffsetsRefusals(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	epoch := n.describe("t").Partitions[0].LeaderEpoch
	for name, c := range map[string]struct {
		topic   string
		p       int32
		ts      int64
		version int16
		epoch   int32
		want    *kerr.Error
	}{
		"no such topic":     {"u", 0, -1, 11, -1, kerr.UnknownTopicOrPartition},
		"no such partition": {"t", 1, -1, 11, -1, kerr.UnknownTopicOrPartition},
		"-3 in v6":          {"t", 0, -3, 6, -1, kerr.UnsupportedVersion},
		"-4 in v7":          {"t", 0, -4, 7, -1, kerr.UnsupportedVersion},
		"-5 in v8":          {"t", 0, -5, 8, -1, kerr.UnsupportedVersion},
		"-6 in v10":         {"t", 0, -6, 10, -1, kerr.UnsupportedVersion},
		"-7":                {"t", 0, -7, 11, -1, kerr.UnsupportedVersion},
		"older epoch":       {"t", 0, -1, 11, epoch - 1, kerr.FencedLeaderEpoch},
		"newer epoch":       {"t", 0, -1, 11, epoch + 1, kerr.UnknownLeaderEpoch},
	} {
		if c.epoch == -1 && name == "older epoch" {
			continue // the first epoch has none before it
		}
		if got := n.listAs(c.topic, c.p, c.ts, c.version, c.epoch); got.ErrorCode != c.want.Code {
			t.Errorf("%s: code %d, want %v", name, got.ErrorCode, c.want)
		}
	}
	if got := n.listAs("t", 0, -1, 11, epoch); got.ErrorCode != 0 {
		t.Errorf("the present epoch: code %d", got.ErrorCode)
	}
}
