package broker

import (
	"strings"
	"sync"
	"testing"

	"firn/segment/vfs"
)

// hangingDisk is a disk under which the logs of some topics hang, until heal. Each
// log that does so for the first time is told.
func hangingDisk(t *testing.T, topics ...string) (disk vfs.FS, hangs <-chan string, heal func()) {
	goOn, told := make(chan struct{}), make(chan string, len(topics))
	var once sync.Map
	disk = vfs.Inject(vfs.OS(), func(op vfs.Op) error {
		for _, topic := range topics {
			if op.Kind != vfs.OpWrite || !strings.HasSuffix(op.Name, ".log") || !strings.Contains(op.Name, "/"+topic+"-0/") {
				continue
			}
			if _, again := once.LoadOrStore(topic, true); !again {
				told <- topic
			}
			<-goOn
		}
		return nil
	})
	heal = sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(heal)
	return disk, told, heal
}

// onDisk gives broker id another disk.
func (c *cluster) onDisk(id int32, disk vfs.FS) *node {
	c.t.Helper()
	n := c.node(id)
	n.stop()
	n.disk = disk
	n.start()
	c.await("all brokers are known to all", func(x *topicIndex) bool { return len(x.brokers) == len(c.nodes) })
	return n
}

// produceOne has the leader alone acknowledge one record.
func (c *cluster) produceOne(topic string) {
	c.t.Helper()
	cl := c.leader(topic, 0).dial()
	defer cl.c.Close()
	if got := produced(cl.call(produceReq(12, 1, topic, 0, textBatch(c.t, "to a disk that hangs")))); got.ErrorCode != 0 {
		c.t.Fatalf("produce: code %d", got.ErrorCode)
	}
}

// A disk that hangs under a log that follows one broker holds up neither who else is
// followed nor who asks how far they are: nobody waits for it who has a change.
func TestADiskThatHangsHoldsUpItsSourceAlone(t *testing.T) {
	c := startCluster(t, 3)
	disk, hangs, heal := hangingDisk(t, "hangs")
	t.Cleanup(heal) // before the brokers stop
	n := c.onDisk(2, disk)

	c.create("hangs", [][]int32{{1, 2}}, "min.insync.replicas=1")
	c.produceOne("hangs")
	<-hangs
	c.create("same", [][]int32{{1, 2}}, "min.insync.replicas=2")
	c.create("other", [][]int32{{3, 2}}, "min.insync.replicas=2")
	c.produceAll("other", "from another source")
	n.followers.maxLag()
	n.metric("kafka_server_replicamanager_partitioncount")

	heal()
	c.produceAll("same", "from the source that hung")
}

// What hangs for so long that its leader is about to take all that follow it for
// lagging, hangs alone: the others are followed without it, whether they were before
// or come to be. When the write returns, it is followed again.
func TestALogThatHangsIsLeftByTheOthers(t *testing.T) {
	c := startCluster(t, 2, "replica.lag.time.max.ms=2000")
	disk, hangs, heal := hangingDisk(t, "hangs", "hangs2")
	t.Cleanup(heal)
	n := c.onDisk(2, disk)
	c.create("before", [][]int32{{1, 2}}, "min.insync.replicas=2")
	c.produceAll("before", "one")
	for _, topic := range []string{"hangs", "hangs2"} {
		c.create(topic, [][]int32{{1, 2}}, "min.insync.replicas=1")
		c.produceOne(topic)
		if got := <-hangs; got != topic {
			t.Fatalf("%s hangs", got)
		}
		c.produceAll("before", "goes on without "+topic)
	}
	c.create("after", [][]int32{{1, 2}}, "min.insync.replicas=2")
	c.produceAll("after", "one")
	eventually(t, "what hangs is out of sync", func() bool { return len(c.state("hangs", 0).ISR) == 1 })

	heal()
	for _, topic := range []string{"hangs", "hangs2", "before", "after"} {
		eventually(t, topic+" is in sync", func() bool { return len(c.state(topic, 0).ISR) == 2 })
		c.produceAll(topic, "all again")
		c.sameOn(topic, n)
	}
}
