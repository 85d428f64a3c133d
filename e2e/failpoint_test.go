package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
	"firn/tiering"
	"firn/tiering/objstore"
)

// kill is one way for a broker to die: at the nth pass of a failpoint.
type kill struct {
	point string
	nth   string // "" is 1
	// before runs, with the load, in a process without the failpoint, which is
	// killed then; the point fires in the next. nil: it fires in the first.
	before func(*victim)
	// provoke makes the broker come by the point.
	provoke func(*victim)
	// after looks at what is left in the end.
	after func(*victim)
	// configs are the topic's, over the usual ones.
	configs map[string]string
	shape   loadShape
}

// kills has every failpoint that a single broker can come by.
func kills() []kill {
	return []kill{
		{point: "segment.append", nth: "60"},
		{point: "segment.written", nth: "60"},
		{point: "segment.roll", nth: "3"},
		{point: "segment.seal", nth: "3"},
		{point: "segment.checkpoint", nth: "4"},
		{point: "segment.delete", nth: "2"},
		{point: "tiering.upload.before", nth: "3"},
		{point: "tiering.upload.after", nth: "3"},
		{point: "tiering.manifest.before", nth: "2"},
		{point: "tiering.manifest.after", nth: "2"},
		{point: "tiering.page.after", configs: map[string]string{"segment.bytes": "1024"}, shape: loadShape{partitions: 1, producers: 1, batchBytes: 1000, limit: 2*tiering.PageEntries + 40, valueBytes: 600}},
		{point: "tiering.pointer.before", nth: "2"},
		{point: "tiering.pointer.after", nth: "2"},
		{point: "tiering.local-delete.before", nth: "2"},
		{point: "tiering.local-delete.after", nth: "2"},
		{point: "tiering.remote-delete.before", provoke: (*victim).deleteArchived},
		{point: "tiering.remote-delete.objects", provoke: (*victim).deleteArchived},
		{point: "tiering.remote-delete.after", provoke: (*victim).deleteArchived},
		{point: "tiering.restart.before", before: (*victim).loseLog,
			configs: map[string]string{"unclean.leader.election.enable": "true"}}, // a lost log stays out of service otherwise
		{point: "tiering.sweep.delete", before: (*victim).leaveOrphan},
		{point: "tiering.purge.tombstone", provoke: (*victim).deleteOther, after: (*victim).otherIsGone},
		{point: "tiering.purge.delete", nth: "2", provoke: (*victim).deleteOther, after: (*victim).otherIsGone},
	}
}

// elsewhere are failpoints that a single broker doesn't come by, and the test
// that does.
var elsewhere = map[string]string{
	"segment.truncate": "segment/fault_test.go", // a follower truncates
	"vfs.sync":         "e2e/ioerror_linux_test.go",
}

// TestKillAtEveryFailpoint ends the broker by SIGKILL at each point of a
// segment's life, under load: nothing acknowledged is lost, nothing is served
// twice or out of order, and the sweep leaves no orphan.
func TestKillAtEveryFailpoint(t *testing.T) {
	for _, k := range kills() {
		t.Run(k.point, func(t *testing.T) {
			t.Parallel()
			k.run(t)
		})
	}
}

// TestEveryFailpointIsHit compares the sources' failpoints with those that tests hit.
func TestEveryFailpointIsHit(t *testing.T) {
	var hit []string
	for _, k := range kills() {
		hit = append(hit, k.point)
	}
	for name, file := range elsewhere {
		src, err := os.ReadFile(filepath.Join(harness.Root(), file))
		if err != nil || !strings.Contains(string(src), `"`+name+`"`) {
			t.Errorf("%s is said to be hit by %s: %v", name, file, err)
		}
		hit = append(hit, name)
	}
	call := regexp.MustCompile(`[fF]ailpoint\("([^"]+)"\)`)
	var found []string
	err := filepath.WalkDir(harness.Root(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range call.FindAllSubmatch(src, -1) {
			found = append(found, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		if !slices.Contains(hit, name) {
			t.Errorf("no test hits failpoint %s", name)
		}
	}
	for _, name := range hit {
		if !slices.Contains(found, name) {
			t.Errorf("failpoint %s isn't in the sources", name)
		}
	}
}

const victimTopic = "events"

// victim is the broker that is killed.
type victim struct {
	t *testing.T
	*harness.Firn
	load *load
	dir  string // the archive's; "" is the default
}

// restless makes a broker do everything all the time.
func restless() []string {
	return []string{
		"log.retention.check.interval.ms=200", "remote.log.manager.task.interval.ms=200", "archive.delete.grace.ms=200",
		"archive.sweep.interval.ms=1000", "log.flush.offset.checkpoint.interval.ms=300", "log.segment.delete.delay.ms=0",
		"archive.upload.max.interval.ms=1000", "archive.upload.min.bytes=0",
	}
}

func (k kill) run(t *testing.T) {
	nth := k.nth
	if nth == "" {
		nth = "1"
	}
	spec := k.point + "=kill@" + nth
	o := harness.Options{Data: ramDir(t), Set: restless()}
	if k.before == nil {
		o.Failpoints = spec
	}
	v := &victim{t: t, Firn: harness.Start(t, o)}
	configs := map[string]string{"segment.bytes": "65536", "local.retention.ms": "1", "retention.ms": "-1"}
	maps.Copy(configs, k.configs)
	createTopic(t, v.Addr, victimTopic, int32(k.shape.withDefaults().partitions), configs)
	v.load = startLoad(t, v.Addr, victimTopic, k.shape)
	if k.before != nil {
		v.load.more(500)
		k.before(v)
		v.Kill()
		v.SetFailpoints(spec)
		v.Start()
	}
	if k.provoke != nil {
		k.provoke(v)
	}
	v.WaitExit(time.Minute)
	if !strings.Contains(v.Log(), "failpoint "+k.point+" fired") {
		t.Fatalf("%s did not fire\n%s", k.point, v.Log())
	}
	v.SetFailpoints("")
	v.Restart()
	if k.shape.limit == 0 {
		v.load.more(300)
	}
	v.load.finish()
	v.load.check() // while segments still move
	v.waitArchived(victimTopic)
	v.noOrphans()
	if k.after != nil {
		k.after(v)
	}
	v.load.check()
}

// deleteArchived moves the log start over archived segments, whose objects go
// after the grace.
func (v *victim) deleteArchived() {
	a := newAdmin(v.t, v.Addr)
	defer a.Close()
	var end int64
	harness.Eventually(v.t, time.Minute, "three segments are archived", func() bool {
		r, err := a.ListLatestRemoteOffsets(v.t.Context(), victimTopic)
		o, _ := r.Lookup(victimTopic, 0)
		end = o.Offset
		return err == nil && end > 350
	})
	v.ask(fmt.Sprint("delete records below ", end-20), func(a *kadm.Client) error {
		_, err := a.DeleteRecords(v.t.Context(), kadm.Offsets{victimTopic: {0: {Topic: victimTopic, At: end - 20}}})
		return err
	})
}

// ask asks once, since the broker may be killed before it answers.
func (v *victim) ask(what string, f func(*kadm.Client) error) {
	v.t.Helper()
	cl := newClient(v.t, v.Addr, kgo.RequestRetries(0))
	defer cl.Close()
	v.t.Logf("%s: %v", what, f(kadm.NewClient(cl)))
}

// loseLog archives everything and takes the local log away.
func (v *victim) loseLog() {
	v.load.finish()
	v.waitArchived(victimTopic)
	v.Kill()
	if err := os.RemoveAll(filepath.Join(v.Data, "logs", victimTopic+"-0")); err != nil {
		v.t.Fatal(err)
	}
	v.load = v.load.goOn(v.Addr, "again ", nil)
}

// archive is the broker's archive, seen without the broker.
func (v *victim) archive() objstore.Store {
	v.t.Helper()
	dir := v.dir
	if dir == "" {
		dir = filepath.Join(v.Data, "archive")
	}
	s, err := tiering.OpenStore(v.t.Context(), "file://"+dir, tiering.OpenOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	return s
}

// noOrphans waits until the sweep has left what the archive needs, and verifies that.
func (v *victim) noOrphans() { v.t.Helper(); v.noOrphansOf(victimTopic) }

func (v *victim) noOrphansOf(topic string) {
	v.t.Helper()
	store := v.archive()
	var rep tiering.VerifyReport
	harness.Eventually(v.t, 30*time.Second, "the sweep leaves no orphan", func() bool {
		var err error
		rep, err = tiering.NewBucket(store).Verify(v.t.Context(), tiering.VerifyOptions{Topic: topic})
		return err == nil && rep.Orphans == 0 && rep.Forks == 0
	})
	if len(rep.Problems) > 0 || rep.Segments == 0 {
		v.t.Fatalf("the archive: %+v", rep)
	}
	v.t.Logf("archive: %d segments, %d records", rep.Segments, rep.Records)
}

// waitArchived waits until all of a topic is in the archive and nothing of it on disk.
func (v *victim) waitArchived(topic string) {
	v.t.Helper()
	a := newAdmin(v.t, v.Addr)
	defer a.Close()
	var state strings.Builder
	defer func() {
		if v.t.Failed() {
			v.t.Log(state.String())
		}
	}()
	harness.Eventually(v.t, time.Minute, "all of "+topic+" is in the archive, and only there", func() bool {
		local, err1 := a.ListLocalLogStartOffsets(v.t.Context(), topic)
		remote, err2 := a.ListLatestRemoteOffsets(v.t.Context(), topic)
		ends, err3 := a.ListEndOffsets(v.t.Context(), topic)
		ok := err1 == nil && err2 == nil && err3 == nil
		state.Reset()
		ends.Each(func(end kadm.ListedOffset) {
			l, _ := local.Lookup(topic, end.Partition)
			r, _ := remote.Lookup(topic, end.Partition)
			fmt.Fprintf(&state, "partition %d: archived below %d, on disk from %d, end %d\n", end.Partition, r.Offset+1, l.Offset, end.Offset)
			ok = ok && end.Err == nil && l.Offset == end.Offset && r.Offset == end.Offset-1
		})
		return ok
	})
}

// leaveOrphan puts an object into the archive that an earlier leader's attempt
// could have left.
func (v *victim) leaveOrphan() {
	part := tiering.Partition{Topic: victimTopic, ID: v.topicID(victimTopic)}
	key := tiering.Key{Kind: tiering.KindLog, Partition: part, Base: 7, ID: 99}.String()
	if err := v.archive().Put(v.t.Context(), key, strings.NewReader("orphan"), 6); err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) topicID(topic string) tiering.TopicID {
	v.t.Helper()
	cl := newAdmin(v.t, v.Addr)
	defer cl.Close()
	topics, err := cl.ListTopics(v.t.Context(), topic)
	if err != nil || topics.Error() != nil {
		v.t.Fatal(err, topics.Error())
	}
	return tiering.TopicID(topics[topic].ID)
}

const otherTopic = "other"

// deleteOther deletes another topic of which something is archived.
func (v *victim) deleteOther() {
	createTopic(v.t, v.Addr, otherTopic, 2, map[string]string{"segment.bytes": "65536", "local.retention.ms": "1"})
	l := startLoad(v.t, v.Addr, otherTopic, loadShape{})
	l.more(1000)
	l.finish()
	v.waitArchived(otherTopic)
	v.ask("delete "+otherTopic, func(a *kadm.Client) error {
		r, err := a.DeleteTopics(v.t.Context(), otherTopic)
		return errors.Join(err, r.Error())
	})
}

func (v *victim) otherIsGone() {
	harness.Eventually(v.t, 20*time.Second, "nothing of a deleted topic is in the archive", func() bool { return len(v.otherObjects()) == 0 })
}

// otherObjects are the objects of the deleted topic.
func (v *victim) otherObjects() (keys []string) {
	v.t.Helper()
	err := v.archive().List(v.t.Context(), otherTopic+"~", func(o objstore.Object) error {
		keys = append(keys, o.Key)
		return nil
	})
	if err != nil {
		v.t.Fatal(err)
	}
	return keys
}
