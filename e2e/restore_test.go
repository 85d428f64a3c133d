package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"firn/e2e/harness"
	"firn/tiering"
)

// TestRestoreFromTheBucketAlone wipes a broker's metadata and logs, and makes
// another of the archive: every archived record is there once, at its offset, and
// writing goes on behind it; also if every manifest is gone (T6).
func TestRestoreFromTheBucketAlone(t *testing.T) {
	archive := filepath.Join(ramDir(t), "archive")
	url := "file://" + archive
	old := &victim{t: t, dir: archive, Firn: harness.Start(t, harness.Options{Data: ramDir(t), Set: append(restless(), "archive.url="+url+"?create=true", "archive.delete.grace.ms=60000")})}
	createTopic(t, old.Addr, victimTopic, 2, map[string]string{"segment.bytes": "65536", "local.retention.ms": "1", "retention.ms": "-1"})
	old.load = startLoad(t, old.Addr, victimTopic, loadShape{})
	old.load.more(3000)
	old.deleteArchived()
	old.deleteOther()
	harness.Eventually(t, time.Minute, "the deleted topic is buried", func() bool {
		return slices.ContainsFunc(old.otherObjects(), func(key string) bool { return strings.HasSuffix(key, "/deleted.json") })
	})
	old.load.more(1000)
	old.load.finish()
	mostArchived(t, old.Addr, victimTopic)
	old.Kill() // with a part of it not archived yet, and perhaps in the midst of an upload
	if err := os.RemoveAll(old.Data); err != nil {
		t.Fatal(err)
	}
	withoutManifests := filepath.Join(ramDir(t), "archive")
	if err := os.CopyFS(withoutManifests, os.DirFS(archive)); err != nil {
		t.Fatal(err)
	}
	removeManifests(t, withoutManifests)
	t.Run("as it is", func(t *testing.T) { restore(t, old.load, archive) })
	t.Run("without manifests", func(t *testing.T) { restore(t, old.load, withoutManifests, "--rebuild", "--in-spite-of-problems") })
}

func removeManifests(t testing.TB, archive string) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(archive, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(filepath.Dir(path)) != "manifest" {
			return err
		}
		n++
		return os.Remove(path)
	})
	if err != nil || n == 0 {
		t.Fatalf("%d manifests removed: %v", n, err)
	}
}

func restore(t *testing.T, l *load, archive string, flags ...string) {
	url, data := "file://"+archive, filepath.Join(ramDir(t), "data")
	o := harness.Run(t, time.Minute, "", harness.Binary(t), append([]string{"archive", "restore", "--archive", url, "--data", data}, flags...)...)
	if o.Err != nil {
		t.Fatalf("firn archive restore: %v\n%s%s", o.Err, o.Stdout, o.Stderr)
	}
	store, err := tiering.OpenStore(t.Context(), url, tiering.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := tiering.NewBucket(store).Verify(t.Context(), tiering.VerifyOptions{Topic: victimTopic})
	if err != nil || len(rep.Problems) > 0 {
		t.Fatalf("%v; %+v", err, rep)
	}

	v := &victim{t: t, Firn: harness.Start(t, harness.Options{Data: data, Set: append(restless(), "archive.url="+url)})}
	if topics := topicNames(t, v.Addr); !slices.Equal(topics, []string{victimTopic}) {
		t.Errorf("topics are %v; the deleted one is not to come back", topics)
	}
	l.t, l.addr = t, v.Addr
	got := l.compare()
	records := 0
	for p, c := range got {
		t.Logf("partition %d: offsets from %d to %d", p, c.start, c.end())
		records += len(c.values)
	}
	if records < 2000 || int64(records) > rep.Records {
		t.Fatalf("%d records read, %d are archived", records, rep.Records)
	}
	v.load = l.goOn(v.Addr, "restored ", got)
	v.load.more(500)
	v.load.finish()
	v.waitArchived(victimTopic)
	v.load.check()
	v.Stop()
}

func topicNames(t testing.TB, addr string) []string {
	t.Helper()
	cl := newAdmin(t, addr)
	defer cl.Close()
	topics, err := cl.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return topics.Names()
}
