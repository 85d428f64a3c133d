//go:build long

package e2e

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/sys/unix"

	"firn/e2e/harness"
)

// syncFails is the failpoint of an fsync of a segment.
const syncFails = "vfs.sync"

// A disk that fails under a broker that runs (S4, S7): its partition is given up,
// another leads, and nothing that was acknowledged is lost; after a restart it is
// back. The write fails for real, by a limit on the size of files; the fsync by a
// failpoint.
func TestLongBrokerWhoseDiskFails(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterOptions{Set: []string{"auto.leader.rebalance.enable=false"}})
	adm := kadm.NewClient(clusterClient(t, c))
	createInSync(t, c, adm, "t", 1)
	alter(t, adm, "t", "segment.bytes", "262144")
	w := startPadded(t, c, "t", bytes.Repeat([]byte("padding "), 256))

	// fails waits until another leads, and has the broker restarted.
	fails := func(what string, id int, at time.Time) {
		t.Helper()
		harness.Eventually(t, 30*time.Second, "another leads", func() bool { l := leaderOf(t, adm, "t", 0); return l > 0 && l != id })
		w.more(20)
		t.Logf("%s of the leader: next ack after %v", what, w.gap(at).Round(time.Millisecond))
		broker := c.Broker(id)
		if code, _ := broker.Get("/metrics"); code != 200 {
			t.Errorf("the broker itself is gone: %d", code)
		}
		if !strings.Contains(broker.Log(), "given up to the other replicas") {
			t.Error("the broker gave nothing up")
		}
		w.more(50)
		broker.Kill()
		broker.Restart()
		allInSync(t, c, "t")
	}

	id := leaderOf(t, adm, "t", 0)
	preferred := id
	at := time.Now()
	tight := unix.Rlimit{Cur: 32 << 10, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(c.Broker(id).Pid(), unix.RLIMIT_FSIZE, &tight, nil); err != nil {
		t.Fatal(err)
	}
	fails("EFBIG", id, at)

	c.Broker(preferred).Stop()
	// A sealed segment is a sync, and 1 300 records: enough that it leads by then.
	c.Broker(preferred).SetFailpoints(syncFails + "=error@30")
	c.Broker(preferred).Restart()
	allInSync(t, c, "t")
	set := kadm.TopicsSet{}
	set.Add("t", 0)
	// It can lead again as soon as it is off its broker's list.
	harness.Eventually(t, 10*time.Second, "the preferred leader leads", func() bool {
		_, _ = adm.ElectLeaders(t.Context(), kadm.ElectPreferredReplica, set)
		return leaderOf(t, adm, "t", 0) == preferred
	})
	id = leaderOf(t, adm, "t", 0)
	harness.Eventually(t, 2*time.Minute, "a sync fails", func() bool { return synced(c) })
	for _, b := range c.Brokers {
		b.SetFailpoints("")
	}
	if strings.Contains(c.Broker(id).Log(), "failpoint "+syncFails+" fired") {
		fails("a failed fsync", id, time.Now())
	} else {
		t.Log("the fsync of a follower failed")
		for i, b := range c.Brokers {
			if strings.Contains(b.Log(), "failpoint "+syncFails+" fired") {
				harness.Eventually(t, 10*time.Second, "it is given up", func() bool { return len(isrOf(t, adm, "t")) == 2 })
				w.more(50)
				c.Broker(i + 1).Kill()
				c.Broker(i + 1).Restart()
			}
		}
		allInSync(t, c, "t")
	}
	whole(t, c, "t", w.stop())
	sums(t, c.Brokers, map[string]int{uncleanElections: 0, offlinePartitions: 0, underReplicated: 0})
}

func synced(c *harness.Cluster) bool {
	for _, b := range c.Brokers {
		if strings.Contains(b.Log(), "failpoint "+syncFails+" fired") {
			return true
		}
	}
	return false
}

func isrOf(t *testing.T, adm *kadm.Client, topic string) []int32 {
	t.Helper()
	md, err := adm.Metadata(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return md.Topics[topic].Partitions[0].ISR
}
