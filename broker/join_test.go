package broker

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"firn/replication"
	"firn/replication/meta"
	"firn/segment/vfs"
)

func TestABrokerRefusesLogsOfAnotherCluster(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	other := startNode(t, t.TempDir())
	other.create("t", 1)
	n.stop()
	other.stop()
	for name, c := range map[string]struct {
		spoil func(dir string) error
		says  string
	}{
		"an empty metadata store": {func(dir string) error { return os.Remove(filepath.Join(dir, "meta.db")) }, "metadata store is new"},
		"another cluster's": {func(dir string) error {
			return os.Rename(filepath.Join(other.dir, "meta.db"), filepath.Join(dir, "meta.db"))
		}, "metadata store is that of cluster"},
		"another broker's logs": {func(dir string) error {
			name := filepath.Join(dir, "logs", "meta.properties")
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			return os.WriteFile(name, []byte(strings.Replace(string(b), "broker.id=1", "broker.id=2", 1)), 0o644)
		}, "logs of broker 2"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(n.dir)); err != nil {
			t.Fatal(err)
		}
		if err := c.spoil(dir); err != nil {
			t.Fatal(err)
		}
		m := &node{t: t, dir: dir, set: n.set}
		if err := m.tryStart(nil); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "logs", "t-0", "00000000000000000000.log")); err != nil {
			t.Errorf("%s: the log is gone: %v", name, err)
		}
	}
}

func TestAStrayLogIsKept(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	n.append("t", 0, 1, 2, 3)
	n.stop()
	logs := filepath.Join(n.dir, "logs")
	if err := os.CopyFS(filepath.Join(logs, "stray-7"), os.DirFS(filepath.Join(logs, "t-0"))); err != nil {
		t.Fatal(err)
	}
	n.start()
	if got := n.list("t", 0, -1).Offset; got != 3 {
		t.Errorf("t ends at %d", got)
	}
	if n.topics.Load().byName["stray"] != nil {
		t.Error("the stray log is served")
	}
	if _, err := os.Stat(filepath.Join(logs, "stray-7", "00000000000000000000.log")); err != nil {
		t.Error(err)
	}
	n.create("stray", 8) // its name is free: what lies there is set aside
	if got := n.list("stray", 7, -1); got.ErrorCode != 0 || got.Offset != 0 {
		t.Errorf("the new topic: %+v", got)
	}
	aside, err := filepath.Glob(filepath.Join(logs, "stray-7.*-stray"))
	if err != nil || len(aside) != 1 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
}

func TestALogWhoseTopicWasDeletedGoesAtTheNextStart(t *testing.T) {
	n := startNode(t, t.TempDir(), "log.segment.delete.delay.ms=0")
	n.create("t", 1)
	logs := filepath.Join(n.dir, "logs")
	kept := t.TempDir()
	if err := os.CopyFS(kept, os.DirFS(filepath.Join(logs, "t-0"))); err != nil {
		t.Fatal(err)
	}
	n.delete("t")
	n.stop()
	// As if the broker had died before it came to delete the log.
	if err := os.CopyFS(filepath.Join(logs, "t-0"), os.DirFS(kept)); err != nil {
		t.Fatal(err)
	}
	n.start()
	if _, err := os.Stat(filepath.Join(logs, "t-0")); !os.IsNotExist(err) {
		t.Errorf("the log is there: %v", err)
	}
}

// Of two brokers with one id the second waits as long as the first may be dead, says so
// once, and gives up.
func TestTheSecondBrokerOfAnIDSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := meta.NewMemory()
		first, second := tree.Client(), tree.Client()
		second.Timeout = 18 * time.Second
		if err := meta.Init(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		in := func(disk string) meta.Incarnation {
			return meta.Incarnation{
				Broker: meta.Broker{ID: 1, StorageID: disk, Endpoints: []meta.Endpoint{{Listener: "L", Protocol: "PLAINTEXT", Host: "h", Port: 9092}}},
				Intend: func(int64) error { return nil },
			}
		}
		if _, err := meta.Register(t.Context(), first, in("a")); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		b := &Broker{cfg: Config{NodeID: 1, Meta: second}, log: slog.New(slog.NewTextHandler(&said, nil)), lease: replication.NewLease()}
		began := time.Now()
		_, err := b.admit(t.Context(), in("b"))
		if !errors.Is(err, meta.ErrDuplicateBroker) || !strings.Contains(err.Error(), "h:9092") {
			t.Errorf("admitted: %v", err)
		}
		if d := time.Since(began); d < second.Timeout {
			t.Errorf("gave up after %v", d)
		}
		if n := strings.Count(said.String(), "\n"); n != 1 {
			t.Errorf("%d lines: %s", n, said.String())
		}
	})
}

func TestBrokerEpochsAreRemembered(t *testing.T) {
	fs, dir := vfs.OS(), t.TempDir()
	if e, err := readEpochs(fs, dir); err != nil || e.Last != 0 {
		t.Fatalf("new: %+v, %v", e, err)
	}
	want := brokerEpochs{Version: 1, Last: 7, Intended: 8}
	if err := writeEpochs(fs, dir, want); err != nil {
		t.Fatal(err)
	}
	if e, err := readEpochs(fs, dir); err != nil || e != want {
		t.Errorf("%+v, %v", e, err)
	}
	for _, damaged := range []string{"", "{", `{"version":2}`, strings.Repeat("x", epochsMaxSize+1)} {
		if err := os.WriteFile(filepath.Join(dir, epochsFile), []byte(damaged), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readEpochs(fs, dir); err == nil {
			t.Errorf("%.10q was read", damaged)
		}
	}
}
