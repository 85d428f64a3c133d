package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/config"
	"firn/replication/meta"
	"firn/segment/vfs"
	"firn/tiering/objstore"
	"firn/zkmeta/solo"
)

// node is a whole broker on a directory of its own: real logs, real metadata
// file. Tests ask its handlers, as a connection would.
type node struct {
	*Broker
	t   testing.TB
	dir string
	// id is the broker's; 0 means 1.
	id  int32
	set map[string]string
	reg *prometheus.Registry
	// disk is nil for the system's.
	disk vfs.FS
	// archive is nil for a broker without one.
	archive objstore.Store
	// archiveWait is Config.ArchiveWait.
	archiveWait time.Duration
	// tune changes the broker before it runs; nil changes nothing.
	tune func(*Broker)
	// member is the cluster that the broker is of; nil: it is alone.
	member *cluster
	// running: it has started, and not been stopped. crashed: the next stop may fail.
	running, crashed bool
	// ended gets what Run returns; who takes it puts it back.
	ended chan error
	stop  func()
}

// startNode starts broker 1 on dir, with settings as key=value.
func startNode(t testing.TB, dir string, settings ...string) *node {
	t.Helper()
	return startNodeWith(t, dir, nil, settings...)
}

// startNodeWith starts it with an archive.
func startNodeWith(t testing.TB, dir string, archive objstore.Store, settings ...string) *node {
	t.Helper()
	n := &node{t: t, dir: dir, archive: archive, set: map[string]string{"num.partitions": "1"}}
	for _, s := range settings {
		k, v, _ := strings.Cut(s, "=")
		n.set[k] = v
	}
	n.start()
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *node) start() {
	n.t.Helper()
	if err := n.tryStart(n.archive); err != nil {
		n.t.Fatal(err)
	}
}

// tryStart starts the broker with an archive, nil for none, unless it refuses.
func (n *node) tryStart(archive objstore.Store) error {
	n.t.Helper()
	store := n.openStore()
	conf, _, err := config.NewBroker(config.NewRegistry(), config.Static{Set: n.set})
	if err != nil {
		n.t.Fatal(err)
	}
	n.reg = prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("BROKER_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	disk := n.disk
	if disk == nil {
		disk = vfs.OS()
	}
	b, err := New(Config{
		NodeID:      max(n.id, 1),
		Settings:    conf,
		LogDir:      filepath.Join(n.dir, "logs"),
		Meta:        store,
		Archive:     archive,
		ArchiveWait: n.archiveWait,
		CacheDir:    filepath.Join(n.dir, "cache"),
		FS:          disk,
		Listeners:   n.listeners(),
		Log:         log.With("node", max(n.id, 1)),
		Metrics:     n.reg,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.Broker = b
	if n.tune != nil {
		n.tune(b)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	n.ended = done
	go func() { done <- b.Run(ctx) }()
	end := func() error {
		cancel()
		return errors.Join(<-done, store.Close())
	}
	for {
		changed := b.changed.wait()
		if b.settled(b.topics.Load()) {
			break
		}
		select {
		case <-changed:
		case err := <-done:
			done <- nil
			return errors.Join(err, end())
		case <-time.After(patience):
			return errors.Join(fmt.Errorf("not ready after %v", patience), end())
		}
	}
	n.running = true
	n.stop = func() {
		n.stop, n.running = func() {}, false
		if err := end(); err != nil && !n.crashed {
			n.t.Errorf("Run: %v", err)
		}
		n.crashed = false
	}
	return nil
}

// openStore opens the broker's metadata: its own file, or its session of the cluster's.
func (n *node) openStore() closingStore {
	n.t.Helper()
	if n.member != nil {
		return n.member.open(n.id)
	}
	store, err := solo.Open(filepath.Join(n.dir, "meta.db"))
	if err != nil {
		n.t.Fatal(err)
	}
	return store
}

type closingStore interface {
	meta.Store
	io.Closer
}

// listeners are for clients, and in a cluster for brokers besides.
func (n *node) listeners() []Listener {
	ls := []Listener{{Name: "PLAINTEXT", Host: "127.0.0.1"}}
	if n.member != nil {
		ls = append(ls, Listener{Name: "INTERNAL", Host: "127.0.0.1"})
	}
	return ls
}

// dial connects to the broker's listener.
func (n *node) dial() *client {
	n.t.Helper()
	return (&testBroker{t: n.t, b: n.Broker, addr: n.server.listeners[0].Addr().String()}).dial()
}

// metric is the value of a metric with these labels, as name=value.
func (n *node) metric(name string, labels ...string) float64 {
	n.t.Helper()
	families, err := n.reg.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := 0
			for _, l := range m.GetLabel() {
				if slices.Contains(labels, l.GetName()+"="+l.GetValue()) {
					has++
				}
			}
			if has == len(labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	n.t.Fatalf("no metric %s%v", name, labels)
	panic("unreachable")
}

// restart stops the broker in order and starts it again on the same directory.
func (n *node) restart() {
	n.t.Helper()
	n.stop()
	n.start()
}

// ask has the broker answer req, in the version that req says.
func ask[R kmsg.Response](n *node, req kmsg.Request) R {
	n.t.Helper()
	for _, a := range apis() {
		if int16(a.key) != req.Key() {
			continue
		}
		if v := req.GetVersion(); v < a.min || v > a.max {
			n.t.Fatalf("%T: version %d is not served", req, v)
		}
		resp := a.handle(n.Broker, n.t.Context(), &request{version: req.GetVersion(), listener: "PLAINTEXT", msg: req})
		if resp == nil {
			n.t.Fatalf("%T: the connection was closed", req)
		}
		resp.SetVersion(req.GetVersion())
		return resp.(R)
	}
	n.t.Fatalf("%T is not served", req)
	panic("unreachable")
}

// create makes a topic, with configs as key=value.
func (n *node) create(name string, partitions int32, configs ...string) kmsg.CreateTopicsResponseTopic {
	n.t.Helper()
	resp := n.tryCreate(name, partitions, 1, configs...)
	if resp.ErrorCode != 0 {
		n.t.Fatalf("create %s: code %d, %s", name, resp.ErrorCode, words(resp.ErrorMessage))
	}
	return resp
}

func (n *node) tryCreate(name string, partitions int32, factor int16, configs ...string) kmsg.CreateTopicsResponseTopic {
	n.t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, factor
	return n.askCreate(topic, configs)
}

// tryCreateOn makes a topic with replicas that the test has placed.
func (n *node) tryCreateOn(name string, replicas [][]int32, configs ...string) kmsg.CreateTopicsResponseTopic {
	n.t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	for p, ids := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(p), ids
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, a)
	}
	return n.askCreate(topic, configs)
}

func (n *node) askCreate(topic kmsg.CreateTopicsRequestTopic, configs []string) kmsg.CreateTopicsResponseTopic {
	n.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, waitMillis
	for _, c := range configs {
		k, v, _ := strings.Cut(c, "=")
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = k, &v
		topic.Configs = append(topic.Configs, rc)
	}
	req.Topics = append(req.Topics, topic)
	return ask[*kmsg.CreateTopicsResponse](n, req).Topics[0]
}

// delete deletes a topic by name and returns the code.
func (n *node) delete(name string) int16 {
	n.t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = 5, waitMillis
	req.TopicNames = []string{name}
	return ask[*kmsg.DeleteTopicsResponse](n, req).Topics[0].ErrorCode
}

// describe asks Metadata v13 for one topic, without auto-creation.
func (n *node) describe(name string) kmsg.MetadataResponseTopic {
	n.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 13
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	return ask[*kmsg.MetadataResponse](n, req).Topics[0]
}

func words(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
