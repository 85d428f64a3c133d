package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"firn/replication/meta"
	"firn/zkmeta"
	"firn/zkmeta/zktest"
)

// zookeeper opens the metadata beside a broker.
func zookeeper(t *testing.T, connect string) *zkmeta.Store {
	t.Helper()
	s, err := zkmeta.Open(t.Context(), zkmeta.Config{Connect: connect, SessionTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func wantRegistered(t *testing.T, connect string, id int32) {
	t.Helper()
	b, err := meta.LoadBroker(t.Context(), zookeeper(t, connect), id)
	if err != nil || len(b.Endpoints) != 1 {
		t.Errorf("broker %d in ZooKeeper: %+v, %v", id, b, err)
	}
}

// inZooKeeper is the sources of a broker with its metadata in ZooKeeper.
func inZooKeeper(data, connect string, set ...string) sources {
	return sources{data: data, set: append([]string{"zookeeper.connect=" + connect, "broker.id=1", "zookeeper.session.timeout.ms=30000",
		"listeners=PLAINTEXT://127.0.0.1:0", "admin.listener=", "archive.url="}, set...)}
}

// refused starts a broker that must refuse, and wants its reason to hold words.
func refused(t *testing.T, src sources, words ...string) {
	t.Helper()
	s, err := load(src)
	if err == nil {
		var n *node
		if n, err = openNode(t.Context(), s, logger("text", t.Output())); err == nil {
			ctx, cancel := context.WithCancel(t.Context())
			err = n.run(ctx, func() { t.Error("the broker serves"); cancel() })
			cancel()
		}
	}
	if err == nil {
		t.Fatal("not refused")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("refused with %q, which says nothing of %q", err, w)
		}
	}
}

func TestBrokerWithZooKeeperNeedsAnID(t *testing.T) {
	refused(t, inZooKeeper(t.TempDir(), "127.0.0.1:1", "broker.id=-1"), "broker.id")
	unnamed := inZooKeeper(t.TempDir(), "127.0.0.1:1")
	unnamed.set = slices.DeleteFunc(unnamed.set, func(kv string) bool { return strings.HasPrefix(kv, "broker.id=") })
	refused(t, unnamed, "broker.id")
}

func TestUnreachableZooKeeperIsNamed(t *testing.T) {
	refused(t, inZooKeeper(t.TempDir(), "127.0.0.1:1,127.0.0.1:2/firn", "zookeeper.connection.timeout.ms=3000"),
		"127.0.0.1:1", "127.0.0.1:2", "3s", "refused")
}

func TestZooKeeperKeysThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	jks := filepath.Join(dir, "trust.jks")
	if err := os.WriteFile(jks, []byte("\xfe\xed\xfe\xed"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ set, words []string }{
		{[]string{"zookeeper.set.acl=true"}, []string{"digest", "certificate"}},
		{[]string{"zookeeper.ssl.client.enable=true", "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNIO"}, []string{"ClientCnxnSocketNetty"}},
		{[]string{"zookeeper.ssl.client.enable=true", "zookeeper.ssl.truststore.location=" + jks}, []string{"PEM", "keytool"}},
		{[]string{"zookeeper.ssl.client.enable=true", "zookeeper.ssl.crl.enable=true"}, []string{"crl"}},
		{[]string{"zookeeper.ssl.truststore.location=" + jks}, []string{"zookeeper.ssl.client.enable"}},
		{[]string{"zookeeper.digest.auth.file=" + dir + "/none"}, []string{"zookeeper.digest.auth.file"}},
	} {
		refused(t, inZooKeeper(t.TempDir(), "127.0.0.1:1", c.set...), c.words...)
	}
}

// TestBrokerAndZooKeeperBelongTogether: B9, B10.
func TestBrokerAndZooKeeperBelongTogether(t *testing.T) {
	e := zktest.Start(t)
	ours, data := e.Chroot(), t.TempDir()
	serve := func(connect, data string) {
		t.Helper()
		startsWith(t, inZooKeeper(data, connect), func() {})
	}
	serve(ours, data)
	refused(t, inZooKeeper(data, e.Chroot()), "metadata store is new", "adopt")

	other := e.Chroot()
	serve(other, t.TempDir())
	refused(t, inZooKeeper(data, other), "holds logs of cluster", "but the metadata store is that of cluster")

	node := e.Nodes[0]
	node.Kill()
	node.SaveData()
	node.Start()
	serve(ours, data)
	node.Kill()
	node.RestoreData()
	node.Start()
	refused(t, inZooKeeper(data, ours), "gone back to an older state")

	s := zookeeper(t, ours)
	if _, err := s.Get(t.Context(), meta.BrokerPath(1)); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("a broker that refused is registered: %v", err)
	}
}

// TestForgottenChroot: where a broker would make a second cluster beside or inside
// the one that was meant, it makes nothing.
func TestForgottenChroot(t *testing.T) {
	e := zktest.Start(t)
	startsWith(t, inZooKeeper(t.TempDir(), e.Servers()+"/firn"), func() {})
	refused(t, inZooKeeper(t.TempDir(), e.Servers(), "broker.id=2"), "no cluster", "/firn", "zookeeper.connect="+e.Servers()+"/firn")
	refused(t, inZooKeeper(t.TempDir(), e.Servers()+"/firn/firn", "broker.id=2"), "inside")
	if _, err := zookeeper(t, e.Servers()+"/firn").Get(t.Context(), "/changes"); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("the refused broker has left something behind: %v", err)
	}
}
