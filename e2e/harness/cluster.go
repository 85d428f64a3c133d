package harness

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/zkmeta/zktest"
)

// ClusterOptions set up a Cluster. The zero value is three brokers on one
// ZooKeeper server, without an archive.
type ClusterOptions struct {
	// Brokers is how many brokers there are, 0 means 3; ZooKeepers how many
	// ZooKeeper servers, 0 means 1.
	Brokers, ZooKeepers int
	// SessionMillis is zookeeper.session.timeout.ms; 0 means 6000, which a broker
	// that the machine starves for a while doesn't lose.
	SessionMillis int
	// Archive is the archive.url of all brokers; "dir" means a directory of this
	// test, "" none.
	Archive string
	// Set are --set pairs of all brokers, Each further ones of broker id.
	Set  []string
	Each func(id int) []string
}

// Cluster is brokers, each a process with ids from 1 on, and their ZooKeeper.
// Clients come in at Firn.Addr, brokers at Firn.Internal.
type Cluster struct {
	ZooKeeper *zktest.Ensemble
	Chroot    string
	Brokers   []*Firn // by id-1
	t         testing.TB
}

// StartCluster starts ZooKeeper and brokers, and waits until all are ready.
func StartCluster(t testing.TB, o ClusterOptions) *Cluster {
	t.Helper()
	c := PrepareCluster(t, o)
	c.RestartAll()
	return c
}

// PrepareCluster starts ZooKeeper, and no broker yet.
func PrepareCluster(t testing.TB, o ClusterOptions) *Cluster {
	t.Helper()
	Binary(t) // before anything waits for it
	if o.Archive == "dir" {
		o.Archive = "file://" + t.TempDir()
	}
	c := &Cluster{t: t, ZooKeeper: zktest.StartN(t, max(o.ZooKeepers, 1), zktest.Options{}), Chroot: "/firn-e2e"}
	brokers, session := o.Brokers, o.SessionMillis
	if brokers == 0 {
		brokers = 3
	}
	if session == 0 {
		session = 6000
	}
	for id := 1; id <= brokers; id++ {
		set := append([]string{
			fmt.Sprintf("broker.id=%d", id),
			"zookeeper.connect=" + c.ZooKeeper.Servers() + c.Chroot,
			fmt.Sprintf("zookeeper.session.timeout.ms=%d", session), "zookeeper.connection.timeout.ms=60000",
			"archive.url=" + o.Archive,
			"offsets.topic.num.partitions=5",
			fmt.Sprintf("offsets.topic.replication.factor=%d", min(brokers, 3)),
		}, o.Set...)
		if o.Each != nil {
			set = append(set, o.Each(id)...)
		}
		c.Brokers = append(c.Brokers, prepare(t, Options{Set: set, Internal: true}))
	}
	return c
}

// Broker is broker id.
func (c *Cluster) Broker(id int) *Firn { return c.Brokers[id-1] }

// Addrs are where clients come in.
func (c *Cluster) Addrs() (addrs []string) {
	for _, b := range c.Brokers {
		addrs = append(addrs, b.Addr)
	}
	return addrs
}

// Bootstrap is Addrs as command lines take them.
func (c *Cluster) Bootstrap() string { return strings.Join(c.Addrs(), ",") }

// KillAll kills all brokers at once.
func (c *Cluster) KillAll() {
	var wg sync.WaitGroup
	for _, b := range c.Brokers {
		wg.Go(b.Kill)
	}
	wg.Wait()
}

// RestartAll starts all brokers, and waits until they are ready and know each other.
func (c *Cluster) RestartAll() {
	c.t.Helper()
	for _, b := range c.Brokers {
		b.Start()
	}
	for _, b := range c.Brokers {
		b.WaitReady()
	}
	for _, b := range c.Brokers {
		Eventually(c.t, 30*time.Second, b.Addr+" knows all brokers", func() bool {
			md, err := b.Metadata(c.t.Context())
			return err == nil && len(md.Brokers) == len(c.Brokers)
		})
	}
}

// Running are the brokers whose processes run.
func (c *Cluster) Running() []*Firn {
	return slices.DeleteFunc(slices.Clone(c.Brokers), func(f *Firn) bool { return !f.Runs() })
}

// Everywhere waits until ok holds of what every running broker says of a topic: a
// change is known to one broker before it is to another, and a client may ask any.
func (c *Cluster) Everywhere(t testing.TB, limit time.Duration, what, topic string, ok func(kmsg.MetadataResponseTopic) bool) {
	t.Helper()
	Eventually(t, limit, what, func() bool {
		for _, b := range c.Running() {
			md, err := b.Metadata(t.Context(), topic)
			if err != nil || len(md.Topics) != 1 || md.Topics[0].ErrorCode != 0 || !ok(md.Topics[0]) {
				return false
			}
		}
		return true
	})
}

// Metadata is what this very broker says, of some topics or of all.
func (f *Firn) Metadata(ctx context.Context, topics ...string) (*kmsg.MetadataResponse, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(f.Addr))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
	}
	resp, err := client.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.MetadataResponse), nil
}

// Pause stops the process where it is (SIGSTOP); Resume has it go on.
func (f *Firn) Pause() {
	if f.cmd != nil && f.cmd.Process != nil {
		_ = zktest.Stop(f.cmd.Process) // it may have ended
	}
}

// Resume ends a Pause.
func (f *Firn) Resume() { f.send(syscall.SIGCONT) }

// send sends a signal and waits for nothing.
func (f *Firn) send(s syscall.Signal) {
	if f.cmd != nil && f.cmd.Process != nil {
		_ = f.cmd.Process.Signal(s) // it may have ended
	}
}

// Wipe empties the data directory of a broker that doesn't run.
func (f *Firn) Wipe() {
	f.t.Helper()
	entries, err := os.ReadDir(f.Data)
	for _, e := range entries {
		if err == nil {
			err = os.RemoveAll(f.Data + "/" + e.Name())
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
}
