package broker

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/segment/batch"
	"firn/segment/vfs"
)

// startOnDisk starts a broker whose logs lie on a disk that can be filled.
func startOnDisk(t *testing.T) (*node, *vfs.Injector) {
	t.Helper()
	disk := vfs.Inject(vfs.OS(), nil)
	n := &node{t: t, dir: t.TempDir(), disk: disk, set: map[string]string{"num.partitions": "1"}}
	n.start()
	t.Cleanup(func() { n.stop() })
	return n, disk
}

// createFor is create, by a client that waits for so long.
func (n *node) createFor(name string, timeout time.Duration) int16 {
	n.t.Helper()
	return n.createAnswer(name, timeout).ErrorCode
}

// createAnswer is createFor with all of the answer.
func (n *node) createAnswer(name string, timeout time.Duration) kmsg.CreateTopicsResponseTopic {
	n.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, int32(timeout.Milliseconds())
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
	req.Topics = append(req.Topics, topic)
	return ask[*kmsg.CreateTopicsResponse](n, req).Topics[0]
}

// On a disk without a free byte a topic can be deleted, and what follows isn't held
// up: other topics have the space.
func TestATopicIsDeletedOnAFullDisk(t *testing.T) {
	n, disk := startOnDisk(t)
	n.create("old", 2)
	for range 20 {
		n.append("old", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	}
	if err := n.replicas.dir.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	disk.SetQuota(0)
	if code := n.delete("old"); code != 0 {
		t.Errorf("deletion: %v", kerr.ErrorForCode(code))
	}
	if code := n.createFor("new", patience); code != 0 {
		t.Errorf("creation of another topic: %v", kerr.ErrorForCode(code))
	}
	if code := n.createFor("old", patience); code != 0 {
		t.Fatalf("creation of a topic of the same name: %v", kerr.ErrorForCode(code))
	}
	if o := n.hosted("old").local.Offsets(); o.End != 0 || o.LogStart != 0 {
		t.Errorf("the new topic begins with %+v", o)
	}
	if gone, err := filepath.Glob(filepath.Join(n.dir, "logs", "*-delete")); err != nil || len(gone) != 0 {
		t.Errorf("still on disk: %v, %v", gone, err)
	}
}

// A topic that is created when there is no space for its log is served as soon as
// there is, without anybody's doing.
func TestATopicCreatedOnAFullDiskWaitsForSpace(t *testing.T) {
	n, disk := startOnDisk(t)
	disk.SetQuota(0)
	if a := n.createAnswer("t", time.Second); a.ErrorCode != kerr.RequestTimedOut.Code || !strings.Contains(words(a.ErrorMessage), "disk") {
		t.Errorf("creation on a full disk: %v, %s", kerr.ErrorForCode(a.ErrorCode), words(a.ErrorMessage))
	}
	disk.SetQuota(-1)
	eventually(t, "it is served", func() bool {
		part := n.topics.Load().byName["t"].partition(0)
		if part == nil {
			return false
		}
		_, _, here := part.Leader()
		return here
	})
	eventually(t, "appends are taken", func() bool {
		_, err := n.tryAppend("t", 0, n.batch(batch.Spec{}, 1))
		return err == nil
	})
}

// problems are what broker n tells its operator.
func (n *node) problems() string {
	return strings.Join(n.Problems(n.t.Context(), time.Minute), "\n")
}

// log.dir.min.free.bytes may be changed while a broker runs.
func TestTheReserveIsDynamic(t *testing.T) {
	n := startNode(t, t.TempDir(), "log.dir.min.free.bytes=0")
	n.create("t", 1)
	n.append("t", 0, 1)
	if r := n.alter("", "log.dir.min.free.bytes", "9000000000000000"); r.ErrorCode != 0 {
		t.Fatalf("code %d, %s", r.ErrorCode, words(r.ErrorMessage))
	}
	eventually(t, "it is reached", func() bool { return n.replicas.dir.Space().Low })
	if p := n.problems(); !strings.Contains(p, "produce requests are refused") {
		t.Errorf("it tells %q", p)
	}
	if r := n.edit("", "log.dir.min.free.bytes", kmsg.IncrementalAlterConfigOpDelete, nil); r.ErrorCode != 0 {
		t.Fatalf("code %d, %s", r.ErrorCode, words(r.ErrorMessage))
	}
	eventually(t, "it isn't", func() bool { return !n.replicas.dir.Space().Low })
	n.append("t", 0, 1)
}
