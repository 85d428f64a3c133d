package broker

import (
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/tiering/objstore"
)

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
