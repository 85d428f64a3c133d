package broker

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"firn/replication/meta"
	"firn/tiering/objstore"
)

// cluster is several whole brokers in this process, with ids from 1 on: real
// logs and connections, and one metadata tree in memory, on which each has a
// session of its own. Clients come in on PLAINTEXT, brokers on INTERNAL.
type cluster struct {
	t     testing.TB
	tree  *meta.Memory
	nodes []*node // by id-1

	mu      sync.Mutex
	clients map[int32]*meta.MemoryClient
}

// shortSession has a broker's lease end within seconds when it isn't renewed, and so
// in a stall too.
const shortSession = "zookeeper.session.timeout.ms=6000"

// startCluster starts n brokers, with settings as key=value.
func startCluster(t testing.TB, n int, settings ...string) *cluster {
	t.Helper()
	return startClusterWith(t, n, nil, settings...)
}

// startClusterWith starts them with a common archive.
func startClusterWith(t testing.TB, n int, archive objstore.Store, settings ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, tree: meta.NewMemory(), clients: map[int32]*meta.MemoryClient{}}
	dir := t.TempDir()
	for id := int32(1); id <= int32(n); id++ {
		m := &node{t: t, id: id, dir: filepath.Join(dir, fmt.Sprint(id)), archive: archive, member: c, set: map[string]string{
			"node.id": fmt.Sprint(id), "num.partitions": "1", "inter.broker.listener.name": "INTERNAL",
			"listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
			"zookeeper.session.timeout.ms": fmt.Sprint(patience.Milliseconds()), // no stall outlasts a lease
		}}
		for _, s := range settings {
			k, v, _ := strings.Cut(s, "=")
			m.set[k] = v
		}
		m.start()
		c.nodes = append(c.nodes, m)
		t.Cleanup(func() { m.stop() })
	}
	c.await("all brokers are known to all", func(x *topicIndex) bool { return len(x.brokers) == n })
	return c
}

// open begins the way to the metadata of broker id's next life.
func (c *cluster) open(id int32) *meta.MemoryClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients[id] = c.tree.Client()
	return c.clients[id]
}

// node is broker id.
func (c *cluster) node(id int32) *node { return c.nodes[id-1] }

// store is broker id's way to the metadata: a test can cut it off, or end its
// session.
func (c *cluster) store(id int32) *meta.MemoryClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clients[id]
}

// crash stops broker id as if its process had died: the metadata store hears
// nothing more of it, and its session has ended.
func (c *cluster) crash(id int32) {
	c.t.Helper()
	c.store(id).Cut()
	c.store(id).Expire()
	n := c.node(id)
	n.crashed = true
	n.draining.Store(true) // a process that dies asks nobody to take over
	n.stop()
}

// await waits until ok likes the picture of every broker that runs.
func (c *cluster) await(what string, ok func(*topicIndex) bool) {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.running {
			eventually(c.t, fmt.Sprintf("broker %d: %s", n.id, what), func() bool { return ok(n.topics.Load()) })
		}
	}
}

// create makes a topic with replicas on brokers, those of partition p first led
// by the first of replicas[p], and waits until every broker has seen it.
func (c *cluster) create(name string, replicas [][]int32, configs ...string) *topic {
	c.t.Helper()
	got := c.nodes[0].tryCreateOn(name, replicas, configs...)
	if got.ErrorCode != 0 {
		c.t.Fatalf("create %s: code %d, %s", name, got.ErrorCode, words(got.ErrorMessage))
	}
	c.await(name+" is there", func(x *topicIndex) bool {
		t := x.byName[name]
		return t != nil && len(t.states) == len(replicas) && t.states[len(replicas)-1].Version != meta.Missing
	})
	return c.nodes[0].topics.Load().byName[name]
}

// state is a partition's state as the store has it.
func (c *cluster) state(topic string, p int32) meta.PartitionState {
	c.t.Helper()
	s, err := meta.LoadState(c.t.Context(), c.tree.Begin(), topic, p)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// leader waits until a partition has a leader that is at work, and returns it.
func (c *cluster) leader(topic string, p int32) *node {
	c.t.Helper()
	var found *node
	eventually(c.t, fmt.Sprintf("%s-%d has a leader", topic, p), func() bool {
		for _, n := range c.nodes {
			if !n.running {
				continue
			}
			if _, _, here := leaderOf(n.topics.Load().byName[topic].partition(p)); here {
				if s := c.state(topic, p); s.Leader == n.self() {
					found = n
					return true
				}
			}
		}
		return false
	})
	return found
}
