package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"

	"firn/e2e/harness"
)

// smallDisk is a file system of its own, of so many bytes, that a test can fill.
type smallDisk struct {
	t   testing.TB
	dir string
}

func mountSmallDisk(t testing.TB, bytes int64) *smallDisk {
	t.Helper()
	d := &smallDisk{t: t, dir: t.TempDir()}
	if err := unix.Mount("firn-test", d.dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("a small disk needs the right to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *smallDisk) free() int64 {
	d.t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(d.dir, &st); err != nil {
		d.t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

func (d *smallDisk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fillTo lets somebody else's file leave so many bytes.
func (d *smallDisk) fillTo(free int64) {
	d.t.Helper()
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for n := d.free() - free; n > 0; n = d.free() - free {
		if _, err := f.Write(block[:min(n, int64(len(block)))]); err != nil {
			if errors.Is(err, unix.ENOSPC) {
				return
			}
			d.t.Fatal(err)
		}
	}
}

// relieve takes the file away.
func (d *smallDisk) relieve() {
	d.t.Helper()
	if err := os.Remove(d.ballast()); err != nil {
		d.t.Fatal(err)
	}
}

// write tries to produce one record, once.
func write(t testing.TB, addr, topic string) error {
	t.Helper()
	cl := newClient(t, addr, kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	return cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: make([]byte, 1000)}).FirstErr()
}

// backWithin is how soon writes are accepted once there is space (S4): within ten
// seconds, on a machine with time.
const backWithin = time.Minute

func (d *smallDisk) relieveAndGoOn(l *load) {
	d.t.Helper()
	d.relieve()
	began := time.Now()
	l.more(1)
	took := time.Since(began).Round(time.Millisecond)
	d.t.Logf("first acknowledgement %v after there was space", took)
	if took > backWithin {
		d.t.Errorf("the first acknowledgement came %v after there was space", took)
	}
	l.more(100)
}

// TestDiskBelowReserve lets others fill the disk to below log.dir.min.free.bytes:
// writes are refused, reads and uploads go on, and writes come back.
func TestDiskBelowReserve(t *testing.T) {
	t.Parallel()
	d := mountSmallDisk(t, 96<<20)
	f := harness.Start(t, harness.Options{Data: filepath.Join(d.dir, "data"), Set: append(restless(),
		"archive.url=file://"+filepath.Join(ramDir(t), "archive")+"?create=true", "log.dir.min.free.bytes=33554432")})
	createTopic(t, f.Addr, victimTopic, 2, map[string]string{"segment.bytes": "65536", "local.retention.ms": "1"})
	createTopic(t, f.Addr, "probe", 1, nil)
	l := startLoad(t, f.Addr, victimTopic, loadShape{})
	l.more(1000)

	d.fillTo(24 << 20)
	harness.Eventually(t, 20*time.Second, "writes are refused by KAFKA_STORAGE_ERROR", func() bool {
		err := write(t, f.Addr, "probe")
		if err != nil && !errors.Is(err, kerr.KafkaStorageError) {
			t.Fatalf("a write got %v", err)
		}
		return err != nil
	})
	before := ended(t, f.Addr, victimTopic)
	l.check() // reads go on
	(&victim{t: t, Firn: f}).waitArchived(victimTopic)
	if _, health := f.Get("/readyz"); !strings.Contains(health, "reserve") {
		t.Errorf("/readyz does not tell: %s", health)
	}
	if n := ended(t, f.Addr, victimTopic) - before; n > 0 {
		t.Errorf("%d records were appended below the reserve", n)
	}
	d.relieveAndGoOn(l)
	l.finish()
	l.check()
}

// TestDiskFull lets others take the last byte while the broker writes, without a
// reserve, with and without a kill in between.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	d := mountSmallDisk(t, 48<<20)
	f := harness.Start(t, harness.Options{Data: filepath.Join(d.dir, "data"), Set: append(restless(),
		"archive.url=file://"+filepath.Join(ramDir(t), "archive")+"?create=true", "log.dir.min.free.bytes=0")})
	createTopic(t, f.Addr, victimTopic, 2, map[string]string{"segment.bytes": "65536", "local.retention.ms": "-1"})
	createTopic(t, f.Addr, "probe", 1, nil)
	l := startLoad(t, f.Addr, victimTopic, loadShape{})
	for _, killed := range []bool{false, true} {
		l.more(500)
		d.fillTo(0)
		harness.Eventually(t, 20*time.Second, "writes are refused by KAFKA_STORAGE_ERROR", func() bool {
			d.fillTo(0) // what the broker deletes, somebody else takes
			err := write(t, f.Addr, "probe")
			if err != nil && !errors.Is(err, kerr.KafkaStorageError) {
				t.Fatalf("a write got %v", err)
			}
			return err != nil
		})
		if killed {
			f.Kill()
			d.relieve()
			d.fillTo(24 << 20)
			f.Restart()
		}
		d.relieveAndGoOn(l)
	}
	l.finish()
	l.check()
}

// TestDirectoryArchiveLeavesTheReserve has log and archive on one small disk: the
// archive takes no segment that would eat the reserve, and the log gives way.
func TestDirectoryArchiveLeavesTheReserve(t *testing.T) {
	t.Parallel()
	const size, reserve, segment = 128 << 20, 32 << 20, 2 << 20
	d := mountSmallDisk(t, size)
	f := harness.Start(t, harness.Options{Data: filepath.Join(d.dir, "data"), Set: []string{
		"log.retention.check.interval.ms=200", "remote.log.manager.task.interval.ms=200", "log.segment.delete.delay.ms=0",
		fmt.Sprintf("log.dir.min.free.bytes=%d", reserve)}})
	createTopic(t, f.Addr, victimTopic, 1, map[string]string{"segment.bytes": fmt.Sprint(segment), "local.retention.ms": "1"})
	createTopic(t, f.Addr, "probe", 1, nil)
	l := startLoad(t, f.Addr, victimTopic, loadShape{producers: 1, partitions: 1, valueBytes: 8000, burst: 32, pause: time.Millisecond, batchBytes: 256 << 10})
	refused := func() bool { _, s := f.Get("/readyz"); return strings.Contains(s, "no room for") }
	least := int64(size)
	harness.Eventually(t, time.Minute, "the archive refuses a segment", func() bool {
		least = min(least, d.free())
		return refused() && write(t, f.Addr, "probe") != nil
	})
	for range 20 {
		least = min(least, d.free())
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("at least %d MiB were free, the reserve is %d MiB", least>>20, reserve>>20)
	if least < reserve/2 { // what both write before they notice each other's is a segment or two; it would be all of it
		t.Errorf("only %d bytes were free, the reserve is %d", least, reserve)
	}
	if err := unix.Mount("", d.dir, "", unix.MS_REMOUNT, fmt.Sprintf("size=%d", 4*size)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l.more(1)
	if took := time.Since(began); took > backWithin {
		t.Errorf("the first acknowledgement came %v after there was space", took)
	}
	l.finish()
	l.check()
	harness.Eventually(t, time.Minute, "the archive goes on", func() bool { return !refused() })
}

// TestTopicDeletionFreesAFullDisk: on a disk without a free byte somebody deletes a
// topic to get space. That is answered, and the space is there at once, though the
// files of what is deleted stay for an hour where there is space.
func TestTopicDeletionFreesAFullDisk(t *testing.T) {
	for _, reserve := range []string{"-1", "0"} {
		t.Run("log.dir.min.free.bytes="+reserve, func(t *testing.T) {
			t.Parallel()
			d := mountSmallDisk(t, 48<<20)
			f := harness.Start(t, harness.Options{Data: filepath.Join(d.dir, "data"), Set: []string{
				"log.segment.delete.delay.ms=3600000", "log.dir.min.free.bytes=" + reserve}})
			createTopic(t, f.Addr, victimTopic, 2, map[string]string{"segment.bytes": "1048576"})
			createTopic(t, f.Addr, "probe", 1, nil)
			l := startLoad(t, f.Addr, victimTopic, loadShape{valueBytes: 16000, batchBytes: 64 << 10})
			l.more(500)
			l.finish()
			d.fillTo(0)
			harness.Eventually(t, 20*time.Second, "writes are refused by KAFKA_STORAGE_ERROR", func() bool {
				d.fillTo(0)
				err := write(t, f.Addr, "probe")
				if err != nil && !errors.Is(err, kerr.KafkaStorageError) {
					t.Fatalf("a write got %v", err)
				}
				return err != nil
			})
			// With no more than the command's own timeout.
			began := time.Now()
			harness.Must(t, time.Minute, "", harness.Binary(t), "topic", "delete", victimTopic, "-b", f.Addr)
			t.Logf("deleted in %v", time.Since(began).Round(time.Millisecond))
			harness.Eventually(t, backWithin, "writes are accepted", func() bool { return write(t, f.Addr, "probe") == nil })
			t.Logf("first acknowledgement %v after the deletion began, %d KiB free", time.Since(began).Round(time.Millisecond), d.free()>>10)
			createTopic(t, f.Addr, victimTopic, 1, nil)
			if err := write(t, f.Addr, victimTopic); err != nil {
				t.Errorf("a write to a new topic of that name: %v", err)
			}
		})
	}
}

// TestClusterLeaderWhoseDiskFills lets others fill the disk of one broker of three to
// below its reserve: another in sync leads, writes go on, nothing is lost, and with
// space again the preferred leader leads.
func TestClusterLeaderWhoseDiskFills(t *testing.T) {
	t.Parallel()
	d := mountSmallDisk(t, 128<<20)
	c := harness.PrepareCluster(t, harness.ClusterOptions{Set: []string{"log.dir.min.free.bytes=33554432",
		"leader.imbalance.check.interval.seconds=1", "leader.imbalance.per.broker.percentage=0"}})
	full := c.Broker(1)
	full.Data = filepath.Join(d.dir, "data")
	c.RestartAll()
	adm := kadm.NewClient(clusterClient(t, c))
	createOn(t, c, clusterClient(t, c), "t", [][]int32{{1, 2, 3}}, map[string]string{"min.insync.replicas": "2"})
	leads := func(what string, ok func(id int) bool) {
		t.Helper()
		harness.Eventually(t, time.Minute, what, func() bool { return ok(leaderOf(t, adm, "t", 0)) })
	}
	leads("broker 1 leads", func(id int) bool { return id == 1 })
	w := startWriter(t, c, "t")

	at := time.Now()
	d.fillTo(24 << 20)
	leads("another leads", func(id int) bool { return id != 1 })
	w.more(50)
	t.Logf("the longest time without an ack: %v", w.gap(at).Round(time.Millisecond))
	allInSync(t, c, "t") // the full one too
	sums(t, []*harness.Firn{full}, map[string]int{diskFull: 1})
	if o := harness.Run(t, 2*time.Minute, "", harness.Binary(t), "cluster", "health", "-b", c.Bootstrap()); !strings.Contains(o.Stdout, "others lead what they can") {
		t.Errorf("cluster health tells:\n%s%s", o.Stdout, o.Stderr)
	}

	at = time.Now()
	d.relieve()
	leads("the preferred leader leads again", func(id int) bool { return id == 1 })
	w.more(50)
	t.Logf("%v after there was space broker 1 leads; the longest time without an ack: %v", time.Since(at).Round(time.Millisecond), w.gap(at).Round(time.Millisecond))
	whole(t, c, "t", w.stop())
	sums(t, c.Brokers, map[string]int{diskFull: 0, uncleanElections: 0, offlinePartitions: 0, underReplicated: 0})
	for _, line := range []string{"others are to lead what is led here", "this broker may lead"} {
		if n := strings.Count(full.Log(), line); n != 1 {
			t.Errorf("its log says %q %d times", line, n)
		}
	}
}
