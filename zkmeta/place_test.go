package zkmeta

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"firn/zkmeta/zktest"
)

// TestPlace: what a chroot must not be; cmd/firn shows it with brokers.
func TestPlace(t *testing.T) {
	e := zktest.Start(t)
	conn, _, err := zk.Connect([]string{e.Servers()}, time.Minute, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	make := func(paths ...string) {
		for _, p := range paths {
			if _, err := conn.Create(p, []byte(`{"version":"1","id":"x"}`), 0, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatalf("%s: %v", p, err)
			}
		}
	}
	make("/kafka", "/kafka/cluster", "/kafka/cluster/id", "/a", "/a/b", "/a/b/cluster", "/a/b/cluster/id", "/a/b/firn", "/a/b/firn/changes")
	tree := func() (names []string) {
		for _, at := range []string{"/", "/kafka", "/a", "/a/b/firn"} {
			below, _, err := conn.Children(at)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, below...)
		}
		return names
	}
	before := len(tree())
	for chroot, words := range map[string]string{
		"/kafka":    "Kafka cluster in /kafka",
		"/a":        "zookeeper.connect=" + e.Servers() + "/a/b",
		"/a/b/firn": "inside the cluster",
	} {
		s, err := Open(t.Context(), Config{Connect: e.Servers() + chroot, SessionTimeout: 30 * time.Second, ConnectTimeout: limit})
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, ErrPlace) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", chroot, err, words)
		}
	}
	if now := tree(); len(now) != before {
		t.Errorf("something was made: %q", now)
	}
	s, err := Open(t.Context(), Config{Connect: e.Servers(), SessionTimeout: 30 * time.Second, ConnectTimeout: limit})
	if err != nil {
		t.Fatalf("beside Kafka: %v", err)
	}
	s.Close()
	conn.Close()
}
