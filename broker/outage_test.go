package broker

import (
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/replication/meta"
	"firn/tiering/objstore"
)

// S7, T8: with other replicas, a log that can't be led is given up: another leads,
// and the log comes anew from there.
func TestALogAtOddsWithTheArchiveIsGivenUpToTheOthers(t *testing.T) {
	c := startClusterWith(t, 2, objstore.NewMem())
	tp := c.create("t", [][]int32{{1, 2}}, "segment.bytes=1024", "remote.log.copy.disable=true")
	n := c.node(1)
	n.fill("t", 100)
	inSync := func() bool { return len(c.state("t", 0).ISR) == 2 }
	eventually(t, "both have it", func() bool { return c.node(2).hosted("t").local.Offsets().HighWatermark == 100 && inSync() })
	first := n.logFiles("t")[0]
	n.stop()
	if err := os.Remove(first); err != nil { // a hole that nothing was deleted for
		t.Fatal(err)
	}
	if got := c.leader("t", 0); got.id != 2 {
		t.Fatalf("broker %d leads", got.id)
	}
	n.start()
	eventually(t, "both are in sync", inSync)
	epoch := c.state("t", 0).LeaderEpoch
	n.elect(0, "t", 0) // it answers when the election is made, or not
	eventually(t, "it was elected, and has given up", func() bool {
		s := c.state("t", 0)
		return s.LeaderEpoch >= epoch+2 && s.Leader == c.node(2).self()
	})
	eventually(t, "its log has come anew, whole", func() bool {
		o := n.hosted("t").local.Offsets()
		return o.LocalStart == 0 && o.End == 100 && inSync()
	})
	eventually(t, "it is well, and listed no more", func() bool {
		o, err := meta.LoadOffline(t.Context(), c.tree.Begin(), 1)
		return n.OutOfService() == 0 && err == nil && !o.Lists(tp.ID, 0)
	})
	c.node(2).stop()
	if got := c.leader("t", 0); got != n {
		t.Fatalf("broker %d leads", got.id)
	}
	if got := n.list("t", 0, -1); got.Offset != 100 {
		t.Errorf("it ends at %+v", got)
	}
}

// TestALogAtOddsWithTheArchiveIsTold: a partition that its broker can't lead for
// good is shown as such, to operators and clients.
func TestALogAtOddsWithTheArchiveIsTold(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem())
	n.create("t", 1, "segment.bytes=1024", "remote.log.copy.disable=true")
	n.create("well", 1)
	n.fill("t", 100)
	first := n.logFiles("t")[0]
	n.stop()
	if err := os.Rename(first, first+".kept"); err != nil { // a hole that nothing was deleted for
		t.Fatal(err)
	}
	n.start()
	eventually(t, "told", func() bool {
		got := strings.Join(n.Problems(t.Context(), 0), "\n")
		return strings.Contains(got, "1 logs are out of service") && strings.Contains(got, "t-0") && strings.Contains(got, "different histories")
	})
	if got := n.OutOfService(); got != 1 {
		t.Errorf("%d out of service", got)
	}
	if got := n.metric("kafka_server_replicamanager_offlinereplicacount"); got != 1 {
		t.Errorf("the metric is %v", got)
	}
	if got := n.describe("t").Partitions[0]; got.Leader != -1 || got.ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Errorf("it is led: %+v", got)
	}
	if got := n.describe("well").Partitions[0]; got.Leader != n.self().ID || got.ErrorCode != 0 {
		t.Errorf("another isn't: %+v", got)
	}
	if why := n.NotReady(); len(why) > 0 {
		t.Errorf("not ready: %v", why)
	}
	n.stop()
	if err := os.Rename(first+".kept", first); err != nil {
		t.Fatal(err)
	}
	n.start()
	eventually(t, "in service, and told no more", func() bool {
		return n.list("t", 0, -1).Offset == 100 && n.OutOfService() == 0 && len(n.Problems(t.Context(), 0)) == 0
	})
	if got := n.metric("kafka_server_replicamanager_offlinereplicacount"); got != 0 {
		t.Errorf("the metric is %v", got)
	}
}
