package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"firn/replication/meta"
	"firn/tiering"
	"firn/zkmeta/zktest"
)

// TestRestoreIntoACluster: an archive alone becomes a cluster in ZooKeeper, however
// often that is interrupted; who comes with an empty disk serves it, and who owned it
// before lets go of it.
func TestRestoreIntoACluster(t *testing.T) {
	e := zktest.Start(t)
	dir, old := t.TempDir(), t.TempDir()
	archive := "file://" + dir
	set := map[string]string{
		"archive.url": archive, "archive.upload.max.interval.ms": "1000", "archive.upload.min.bytes": "1",
		"remote.log.manager.task.interval.ms": "200", "log.retention.check.interval.ms": "200",
	}
	writeOne(t, old, set, "events", "before")
	writeOne(t, old, set, "others", "x")
	waitArchived(t, old, set, "events", 1)
	waitArchived(t, old, set, "others", 1)

	store, err := openArchive(t.Context(), archive)
	if err != nil {
		t.Fatal(err)
	}
	connect := e.Chroot()
	restore := func(connect string, after func(string) error) (*tiering.RestorePlan, error) {
		r := restoredCluster{connect: connect, brokers: []int{1, 2, 3}}
		return r.restore(t.Context(), store, tiering.RestoreOptions{ArchiveID: randomID(), Random: random64}, after)
	}
	// Somebody else's ZooKeeper is left alone, and the archive with it.
	other := e.Chroot()
	startsWith(t, inZooKeeper(t.TempDir(), other), func() {})
	was, err := tiering.LoadIdentity(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := restore(other, nil); !errors.Is(err, meta.ErrOccupied) || !strings.Contains(err.Error(), "empty chroot") {
		t.Fatalf("into another cluster's ZooKeeper: %v", err)
	}
	if is, err := tiering.LoadIdentity(t.Context(), store); err != nil || is != was {
		t.Fatalf("the archive was taken over all the same: %+v, %v", is, err)
	}

	kill := errors.New("killed")
	for _, step := range []string{"begun", "taken", "written"} {
		_, err := restore(connect, func(at string) error {
			if at == step {
				return kill
			}
			return nil
		})
		if !errors.Is(err, kill) || !strings.Contains(err.Error(), "restore again") {
			t.Fatalf("killed when %s: %v", step, err)
		}
		refused(t, inZooKeeper(t.TempDir(), connect, "archive.url="+archive), "archive restore again")
		if step == "begun" { // whoever changes his mind goes on alone
			writeOne(t, old, set, "events", "meanwhile")
			waitArchived(t, old, set, "events", 2)
		}
	}
	plan, err := restore(connect, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Topics) != 2 || plan.Now.ArchiveID == was.ArchiveID || plan.Now.ClusterID != was.ClusterID {
		t.Errorf("restored %d topics, %+v", len(plan.Topics), plan.Now)
	}
	if _, err := restore(connect, nil); !errors.Is(err, meta.ErrOccupied) || !strings.Contains(err.Error(), "nothing to do") {
		t.Errorf("once more: %v", err)
	}

	inCluster := maps.Clone(set)
	maps.Copy(inCluster, map[string]string{"zookeeper.connect": connect, "broker.id": "2", "zookeeper.session.timeout.ms": "30000"})
	data := t.TempDir()
	wantRead(t, readAll(t, data, inCluster, "events"), "before", "meanwhile")
	writeOne(t, data, inCluster, "events", "after") // a new producer's first record is no repetition (E13)
	waitArchived(t, data, inCluster, "events", 3)
	wantRead(t, readAll(t, data, inCluster, "events"), "before", "meanwhile", "after")

	// The old owner serves on what it has, and writes nothing to what isn't its own.
	objects := countFiles(t, dir)
	writeOne(t, old, set, "events", "only here")
	wantRead(t, readAll(t, old, set, "events"), "before", "meanwhile", "only here")
	if n := countFiles(t, dir); n != objects {
		t.Errorf("the old broker wrote to the archive: %d objects, then %d", objects, n)
	}
	if log, err := os.ReadFile(filepath.Join(old, "firn.log")); err != nil || !strings.Contains(string(log), "the archive has another owner") {
		t.Errorf("the old broker doesn't say so: %v\n%s", err, log)
	}
	// Its disk is of no use to the new cluster.
	refused(t, inZooKeeper(old, connect, "archive.url="+archive), "older state")
}

func TestRestoreIntoAClusterNeedsBrokers(t *testing.T) {
	archive := "--archive=file://" + t.TempDir()
	for args, word := range map[string]string{
		"--zookeeper=127.0.0.1:1":                                   "--brokers 1,2,3",
		"--zookeeper=127.0.0.1:1 --brokers=1,1":                     "each once",
		"--zookeeper=127.0.0.1:1 --brokers=1,2 --replicas=3":        "there are 2 brokers",
		"--zookeeper=127.0.0.1:1 --brokers=1 --data=" + t.TempDir(): "one of them",
	} {
		c := root()
		c.SetArgs(append([]string{"archive", "restore", archive}, strings.Fields(args)...))
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
