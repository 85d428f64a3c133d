package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"firn/replication/meta"
	"firn/zkmeta/zktest"
)

// logsOf are the archived segments below dir: partition and base offset of each.
func logsOf(t *testing.T, dir string) map[string]int {
	t.Helper()
	segments := map[string]int{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".log") && !strings.Contains(path, "/probe/") && !strings.Contains(path, "/.firn-tmp/") {
			rel, _ := filepath.Rel(dir, path)
			partition, name := filepath.Split(rel)
			base, _, _ := strings.Cut(name, "-")
			segments[partition+base]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return segments
}

// TestAdopt: a single broker with an archive moves into ZooKeeper, interrupted
// wherever it can be, and serves the same records at the same offsets from the same
// objects.
func TestAdopt(t *testing.T) {
	e := zktest.Start(t)
	connect := e.Chroot()
	dir := t.TempDir()
	archive := "file://" + dir
	set := map[string]string{
		"archive.url": archive, "archive.upload.max.interval.ms": "1000", "archive.upload.min.bytes": "1",
		"remote.log.manager.task.interval.ms": "200", "log.retention.check.interval.ms": "200",
	}
	data := t.TempDir()
	for i := range 3 {
		writeOne(t, data, set, "events", fmt.Sprint("single ", i))
	}
	writeOne(t, data, set, "others", "x")
	waitArchived(t, data, set, "events", 3)
	waitArchived(t, data, set, "others", 1)
	before := logsOf(t, dir)

	inCluster := maps.Clone(set)
	maps.Copy(inCluster, map[string]string{"zookeeper.connect": connect, "broker.id": "1", "zookeeper.session.timeout.ms": "30000"})
	var kv []string
	for k, v := range inCluster {
		kv = append(kv, k+"="+v)
	}
	s, err := load(sources{data: data, set: kv})
	if err != nil {
		t.Fatal(err)
	}
	// Somebody else's ZooKeeper is left alone.
	other := e.Chroot()
	startsWith(t, inZooKeeper(t.TempDir(), other), func() {})
	elsewhere, err := load(sources{data: data, set: append(kv, "zookeeper.connect="+other)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adopt(t.Context(), elsewhere, nil); !errors.Is(err, meta.ErrOccupied) || !strings.Contains(err.Error(), "empty chroot") {
		t.Fatalf("into another cluster's ZooKeeper: %v", err)
	}

	kill := errors.New("killed")
	for _, step := range []string{"copied", "taken", "marked"} {
		_, err := adopt(t.Context(), s, func(at string) error {
			if at == step {
				return kill
			}
			return nil
		})
		if !errors.Is(err, kill) || !strings.Contains(err.Error(), "adopt again") {
			t.Fatalf("killed when %s: %v", step, err)
		}
		refused(t, inZooKeeper(data, connect), "adopt again")
		refused(t, inZooKeeper(t.TempDir(), connect), "adopt again")
		if step == "copied" {
			// Whoever changes his mind goes on alone; what he writes moves later.
			writeOne(t, data, set, "events", "single 3")
			waitArchived(t, data, set, "events", 4)
			before = logsOf(t, dir)
		}
	}
	done, err := adopt(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if done.Topics != 2 || len(done.Brokers) != 1 || done.Brokers[0] != 1 || done.ArchiveID == "" {
		t.Errorf("adopted %+v", done)
	}
	if _, err := adopt(t.Context(), s, nil); !errors.Is(err, meta.ErrOccupied) || !strings.Contains(err.Error(), "nothing to do") {
		t.Errorf("once more: %v", err)
	}
	refused(t, sources{data: data, set: []string{"archive.url=" + archive, "listeners=PLAINTEXT://127.0.0.1:0", "admin.listener="}}, "moved", connect, "zookeeper.connect")

	wantRead(t, readAll(t, data, inCluster, "events"), "single 0", "single 1", "single 2", "single 3")
	writeOne(t, data, inCluster, "events", "cluster")
	waitArchived(t, data, inCluster, "events", 5)
	wantRead(t, readAll(t, data, inCluster, "events"), "single 0", "single 1", "single 2", "single 3", "cluster")
	after := logsOf(t, dir)
	if len(after) != len(before)+1 {
		t.Errorf("archived segments: %v, then %v", before, after)
	}
	for segment, n := range before { // a stop during an upload may have left two, of which a sweep takes one
		if after[segment] < 1 || after[segment] > n {
			t.Errorf("%s: %d objects, then %d", segment, n, after[segment])
		}
	}
}

func wantRead(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("read %q, want %q", got, want)
	}
}

func TestAdoptNeedsABroker(t *testing.T) {
	for args, word := range map[string]string{
		"":                        "--zookeeper",
		"--zookeeper=127.0.0.1:1": "--data",
		"--zookeeper=127.0.0.1:1 --data=" + t.TempDir(): "no meta.db",
	} {
		c := root()
		c.SetArgs(append([]string{"cluster", "adopt"}, strings.Fields(args)...))
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
