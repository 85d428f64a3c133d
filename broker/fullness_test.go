package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication/meta"
	"firn/segment"
	"firn/segment/vfs"
)

// startSmallDisk starts three brokers; what is free on the disk of broker 1 is the
// test's to say, and what it says is believed within seconds.
func startSmallDisk(t *testing.T, settings ...string) (*cluster, *vfs.Injector) {
	t.Helper()
	c := startCluster(t, 3, settings...)
	n := c.node(1)
	n.stop()
	disk := vfs.Inject(vfs.OS(), nil)
	n.disk = disk
	n.tune = func(b *Broker) { b.diskPatience = segment.Patience{Full: time.Second, Room: time.Second} }
	n.start()
	return c, disk
}

// leads: a picture shows that a broker leads partition 0 of t.
func leads(id int32) func(*topicIndex) bool {
	return func(x *topicIndex) bool { return x.byName["t"].states[0].Leader.ID == id }
}

// A leader whose disk is full hands on what others in sync can lead, and stays in the
// ISR; while it is full it gets no lead; with room again it may have them back.
func TestAFullDiskHandsOnTheLeads(t *testing.T) {
	c, disk := startSmallDisk(t, "log.dir.min.free.bytes=1000000")
	c.create("t", [][]int32{{1, 2, 3}})
	c.create("alone", [][]int32{{1}})
	n := c.leader("t", 0)
	if n.id != 1 {
		t.Fatalf("broker %d leads", n.id)
	}
	c.produceAll("t", "before")
	disk.SetQuota(900_000)
	c.await("broker 2 leads", leads(2))
	c.inSyncWith("t", 1, 2, 3)
	c.produceAll("t", "while it is full")
	if s := c.state("alone", 0); s.Leader != n.self() {
		t.Errorf("what nobody else has: %+v", s)
	}
	eventually(t, "it says so", func() bool {
		return n.metric("firn_broker_disk_full") == 1 && strings.Contains(n.problems(), "below its reserve") && strings.Contains(n.problems(), "others lead")
	})

	// It gets nothing back that it can't serve, and nothing new.
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.TimeoutMillis = 2, waitMillis
	req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	got := ask[*kmsg.ElectLeadersResponse](c.node(3), req).Topics[0].Partitions[0]
	if got.ErrorCode != kerr.PreferredLeaderNotAvailable.Code || !strings.Contains(words(got.ErrorMessage), "disk is full") {
		t.Errorf("election of who is full: code %d, %s", got.ErrorCode, words(got.ErrorMessage))
	}
	c.create("new", [][]int32{{1, 2}})
	if l := c.leader("new", 0); l.id != 2 {
		t.Errorf("broker %d leads a new topic", l.id)
	}

	// Little more than the reserve isn't room.
	disk.SetQuota(1_200_000)
	eventually(t, "it is above its reserve", func() bool { return !n.replicas.dir.Space().Low })
	if p := n.problems(); n.metric("firn_broker_disk_full") != 1 || !strings.Contains(p, "short of space") {
		t.Errorf("with little room it says %q", p)
	}
	disk.SetQuota(1_700_000)
	eventually(t, "it says that it has room", func() bool { return n.metric("firn_broker_disk_full") == 0 && n.problems() == "" })
	c.node(3).elect(0, "t", 0)
	c.await("broker 1 leads", leads(1))
	c.produceAll("t", "after")
}

// Without a reserve it is the writes that fail: by them a disk is judged.
func TestADiskThatTakesNothingHandsOnTheLeads(t *testing.T) {
	c, disk := startSmallDisk(t, "log.dir.min.free.bytes=0", "replica.lag.time.max.ms=1000")
	c.create("t", [][]int32{{1, 2, 3}}, "min.insync.replicas=2")
	if n := c.leader("t", 0); n.id != 1 {
		t.Fatalf("broker %d leads", n.id)
	}
	c.produceAll("t", "before")
	disk.SetQuota(0)
	// Its replica can't follow either: it leaves the ISR, as a full follower does.
	c.produceAll("t", "while it is full")
	if s := c.state("t", 0); s.Leader.ID == 1 {
		t.Errorf("the state is %+v", s)
	}
	disk.SetQuota(-1)
	c.inSyncWith("t", 1, 2, 3)
	eventually(t, "it says that it has room", func() bool { return c.node(1).metric("firn_broker_disk_full") == 0 })
}

// A broker that starts on a full disk says so at once, and one that has room since its
// last life isn't held for full.
func TestWhatWasFullIsJudgedAnewAtAStart(t *testing.T) {
	c, disk := startSmallDisk(t, "log.dir.min.free.bytes=1000000")
	c.create("t", [][]int32{{1, 2}})
	n := c.node(1)
	n.tune = func(b *Broker) { b.diskPatience = segment.Patience{Full: time.Hour, Room: time.Hour} }
	full := func() bool {
		o, err := meta.LoadOffline(t.Context(), c.tree.Begin(), 1)
		return err == nil && o.IsFull(n.self().Epoch)
	}
	disk.SetQuota(900_000)
	n.restart()
	eventually(t, "it is listed", full)
	c.await("broker 2 leads", leads(2))
	disk.SetQuota(-1)
	n.restart()
	c.inSyncWith("t", 1, 2)
	c.node(2).elect(0, "t", 0)
	c.await("broker 1 leads", leads(1))
	if full() {
		t.Error("held for full in another life")
	}
}
