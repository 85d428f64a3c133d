package e2e

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"firn/e2e/harness"
)

// movedIn is a topic in an archive that becomes a cluster's.
type movedIn struct {
	t       *testing.T
	c       *harness.Cluster
	archive string // its directory
	load    *load
}

const movedTopic = "events"

// movingIn starts a broker that is alone, as whoever will be broker 1 of a cluster,
// and has it archive most of a topic.
func movingIn(t *testing.T) *movedIn {
	t.Helper()
	m := &movedIn{t: t, archive: t.TempDir()}
	m.c = harness.PrepareCluster(t, harness.ClusterOptions{Archive: "file://" + m.archive, Set: append(restless(), "auto.leader.rebalance.enable=false", "archive.upload.max.interval.ms=3600000")})
	b := m.c.Broker(1)
	inCluster := b.Args()
	b.SetArgs(slices.DeleteFunc(slices.Clone(inCluster), func(s string) bool {
		return strings.HasPrefix(s, "zookeeper.") || strings.HasPrefix(s, "offsets.topic.")
	})...)
	b.Restart()
	b.SetArgs(inCluster...)
	createTopic(t, b.Addr, movedTopic, 2, map[string]string{"segment.bytes": "65536", "local.retention.ms": "1", "retention.ms": "-1"})
	m.load = startLoad(t, b.Addr, movedTopic, loadShape{})
	m.load.more(3000)
	mostArchived(t, b.Addr, movedTopic)
	return m
}

// mostArchived waits until the archive has well over 2 000 of a topic's records.
func mostArchived(t *testing.T, addr, topic string) {
	t.Helper()
	adm := kadmClient(t, addr)
	harness.Eventually(t, time.Minute, "most of "+topic+" is archived", func() bool {
		ends, err := adm.ListLatestRemoteOffsets(t.Context(), topic)
		records := int64(0)
		ends.Each(func(o kadm.ListedOffset) { records += o.Offset + 1 })
		return err == nil && records > 2200
	})
}

// objects are the keys of what is archived of the topic, and how often each segment
// is there.
func (m *movedIn) objects() (keys []string, segments map[string]int) {
	m.t.Helper()
	segments = map[string]int{}
	err := filepath.WalkDir(m.archive, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".log") && strings.Contains(path, "/"+movedTopic+"~") {
			key, _ := filepath.Rel(m.archive, path)
			keys = append(keys, key)
			partition, name := filepath.Split(key)
			base, _, _ := strings.Cut(name, "-")
			segments[partition+base]++
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return keys, segments
}

func (m *movedIn) run(args ...string) string {
	m.t.Helper()
	o := harness.Run(m.t, time.Minute, "", harness.Binary(m.t), args...)
	if o.Err != nil {
		m.t.Fatalf("firn %s: %v\n%s%s", strings.Join(args, " "), o.Err, o.Stdout, o.Stderr)
	}
	return o.Stdout
}

// connect is the cluster's zookeeper.connect.
func (m *movedIn) connect() string { return m.c.ZooKeeper.Servers() + m.c.Chroot }

// survives writes, kills the leader of partition 0, writes on, and wants every
// record that was ever acknowledged in its place, and none archived twice.
func (m *movedIn) survives(before []string) {
	t := m.t
	t.Helper()
	adm := kadm.NewClient(clusterClient(t, m.c))
	m.load.more(1000)
	killed := m.c.Broker(leaderOf(t, adm, movedTopic, 0))
	killed.Kill()
	m.load.more(1000)
	for _, b := range m.c.Brokers {
		if b != killed {
			m.load.addr = b.Addr
		}
	}
	m.load.finish()
	m.load.check()
	killed.Restart()
	allInSync(t, m.c, movedTopic)
	m.load.check()

	v := &victim{t: t, dir: m.archive}
	v.noOrphansOf(movedTopic) // what the killed leader was uploading, too
	var after []string
	var segments map[string]int
	harness.Eventually(t, time.Minute, "the cluster archives", func() bool {
		after, segments = m.objects()
		return len(after) > len(before)
	})
	for _, key := range before {
		if !slices.Contains(after, key) {
			t.Errorf("%s is gone", key)
		}
	}
	for s, n := range segments {
		if n > 1 {
			t.Errorf("%s was archived %d times", s, n)
		}
	}
	t.Logf("%d segments archived before, %d after", len(before), len(after))
}

// TestABrokerThatWasAloneBecomesACluster: adopted with its archive, joined by two
// with empty disks, its partitions spread over all three, and killed.
func TestABrokerThatWasAloneBecomesACluster(t *testing.T) {
	m := movingIn(t)
	m.load.finish()
	b := m.c.Broker(1)
	at := readAll(t, b.Addr, movedTopic)
	b.Stop()
	before, _ := m.objects()
	if len(before) < 10 {
		t.Fatalf("%d segments are archived", len(before))
	}
	m.run("cluster", "adopt", "--zookeeper", m.connect(), "--data", b.Data, "--set", "archive.url=file://"+m.archive)
	if after, _ := m.objects(); !slices.Equal(after, before) {
		t.Errorf("the adoption changes the archive: %d segments, then %d", len(before), len(after))
	}
	m.c.RestartAll()
	allInSync(t, m.c, movedTopic)
	m.load.check()
	if got := readAll(t, b.Addr, movedTopic); got[0].end() != at[0].end() || got[1].end() != at[1].end() || got[0].start != 0 || got[1].start != 0 {
		t.Errorf("other offsets than before")
	}
	m.load = m.load.goOn(b.Addr, "cluster ", nil)
	m.run("cluster", "reassign", movedTopic, "--to", "1,2,3", "--replicas", "3", "--wait", "-b", m.c.Bootstrap())
	allInSync(t, m.c, movedTopic)
	for _, id := range []int{2, 3} {
		n := int64(metric(t, m.c.Broker(id), replicationBytesIn))
		t.Logf("broker %d has copied %d bytes", id, n)
	}
	m.survives(before)
}

// TestAnArchiveBecomesACluster: nothing is left but the bucket, and brokers with
// empty disks make it a cluster again.
func TestAnArchiveBecomesACluster(t *testing.T) {
	m := movingIn(t)
	b := m.c.Broker(1)
	m.load.finish()
	b.Kill() // with a part of it not archived
	b.Wipe()
	out := m.run("archive", "restore", "--archive", "file://"+m.archive, "--zookeeper", m.connect(), "--brokers", "1,2,3")
	t.Log(out)
	m.c.RestartAll()
	allInSync(t, m.c, movedTopic)
	got := m.load.compare()
	// Uploads that the kill caught are named by no manifest: kept until this.
	m.run("archive", "release", "--archive", "file://"+m.archive)
	(&victim{t: t, dir: m.archive}).noOrphansOf(movedTopic)
	before, _ := m.objects()
	records := 0
	for p, c := range got {
		t.Logf("partition %d: offsets from %d to %d", p, c.start, c.end())
		records += len(c.values)
	}
	if records < 2000 {
		t.Errorf("%d records", records)
	}
	m.load = m.load.goOn(b.Addr, "restored ", got)
	m.survives(before)
	sums(t, m.c.Brokers, map[string]int{uncleanElections: 0})
}
