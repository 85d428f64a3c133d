package broker

import (
	"strings"
	"sync"
	"testing"

	"firn/segment/vfs"
)

// A disk that hangs under a log that follows one broker holds up neither who else is
// followed nor who asks how far they are: nobody waits for it who has a change.
func TestADiskThatHangsHoldsUpItsSourceAlone(t *testing.T) {
	c := startCluster(t, 3)
	goOn, hangs := make(chan struct{}), make(chan struct{})
	var once sync.Once
	n := c.node(2)
	n.stop()
	n.disk = vfs.Inject(vfs.OS(), func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, ".log") && strings.Contains(op.Name, "/hangs-0/") {
			once.Do(func() { close(hangs) })
			<-goOn
		}
		return nil
	})
	n.start()
	heal := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(heal)
	c.await("all brokers are known to all", func(x *topicIndex) bool { return len(x.brokers) == 3 })

	c.create("hangs", [][]int32{{1, 2}}, "min.insync.replicas=1")
	cl := c.leader("hangs", 0).dial()
	if got := produced(cl.call(produceReq(12, 1, "hangs", 0, textBatch(t, "to a disk that hangs")))); got.ErrorCode != 0 {
		t.Fatalf("produce: code %d", got.ErrorCode)
	}
	cl.c.Close()
	<-hangs
	c.create("same", [][]int32{{1, 2}}, "min.insync.replicas=2")
	c.create("other", [][]int32{{3, 2}}, "min.insync.replicas=2")
	c.produceAll("other", "from another source")
	n.followers.maxLag()
	n.metric("kafka_server_replicamanager_partitioncount")

	heal()
	c.produceAll("same", "from the source that hung")
}
