package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"firn/e2e/harness"
	"firn/tiering"
)

// moves is a cluster whose leaders move while it archives.
type moves struct {
	*testing.T
	c   *harness.Cluster
	adm *kadm.Client
	dir string
	rng *rand.Rand
}

const (
	movesSegment   = 16 << 10
	movesRetention = 6 * movesSegment
)

// TestLeadersMoveWhileTheArchiveWorks: leaders are elected anew, killed and wiped
// while they upload, while retention shrinks a topic and another is deleted. In the
// end each record that was acknowledged and isn't past retention is archived once, in
// its place, and nothing else is (D1–D9, D22, D28).
func TestLeadersMoveWhileTheArchiveWorks(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	c := harness.StartCluster(t, harness.ClusterOptions{Archive: "file://" + dir, Set: append(restless(), "auto.leader.rebalance.enable=false", "replica.lag.time.max.ms=3000")})
	m := &moves{T: t, c: c, adm: kadm.NewClient(clusterClient(t, c)), dir: dir, rng: rand.New(rand.NewPCG(seed, 0))}
	topics := map[string]map[string]string{
		"kept":      {"retention.ms": "-1"},
		"shrinking": {"retention.ms": "-1", "retention.bytes": strconv.Itoa(movesRetention)},
		"deleted":   {"retention.ms": "-1"},
	}
	loads := map[string]*load{}
	for topic, configs := range topics {
		m.create(topic, configs)
		// So slow that leaders roll by time, for uploads, where followers don't.
		loads[topic] = startLoad(t, c.Broker(1).Addr, topic, loadShape{burst: 2, pause: 100 * time.Millisecond})
	}
	// Chance has a say in where replicas roll: the moves go on until it has spoken.
	for round := 0; round < 16 || round < 64 && m.elsewhere("kept") == 0; round++ {
		for topic := range loads {
			m.elect(topic, int32(m.rng.IntN(2)))
		}
		loads["kept"].more(80)
		switch {
		case round == 8:
			loads["deleted"].finish()
			delete(loads, "deleted")
			if _, err := m.adm.DeleteTopic(t.Context(), "deleted"); err != nil {
				t.Fatal(err)
			}
		case round%5 == 2:
			b := c.Broker(leaderOf(t, m.adm, "kept", int32(m.rng.IntN(2))))
			b.Kill()
			loads["kept"].more(50)
			if round%2 == 0 {
				b.Wipe() // it starts again at the archived end, and rolls elsewhere from there on
			}
			b.Restart()
			allInSync(t, c, "kept")
			allInSync(t, c, "shrinking")
		}
	}
	for topic, l := range loads {
		l.finish()
		v := &victim{t: t, dir: dir, Firn: c.Broker(1)}
		v.waitArchived(topic)
		v.noOrphansOf(topic)
		var problems []string
		harness.Eventually(t, time.Minute, topic+" is as retention leaves it, whole", func() bool {
			problems = m.sizes(topic)
			return len(problems) == 0
		}, func() string { return "\n" + strings.Join(problems, "\n") })
		if topic == "kept" {
			l.check()
		} else {
			l.compare() // once retention leaves the log's start where it is
		}
	}
	harness.Eventually(t, 30*time.Second, "nothing is left of the deleted topic", func() bool {
		n := 0
		bucket := tiering.NewBucket((&victim{t: t, dir: dir}).archive())
		all, err := bucket.Topics(t.Context())
		for _, x := range all {
			if x.Info.Name == "deleted" {
				n += len(x.Partitions)
			}
		}
		return err == nil && n == 0
	})
	sums(t, c.Brokers, map[string]int{uncleanElections: 0})
}

func (m *moves) create(topic string, configs map[string]string) {
	m.Helper()
	all := map[string]*string{}
	for k, v := range configs {
		all[k] = &v
	}
	for k, v := range map[string]string{"segment.bytes": strconv.Itoa(movesSegment), "local.retention.ms": "1", "min.insync.replicas": "2"} {
		all[k] = &v
	}
	if got, err := m.adm.CreateTopic(m.Context(), 2, 3, all, topic); err != nil || got.Err != nil {
		m.Fatal(err, got.Err)
	}
	allInSync(m.T, m.c, topic)
}

// elect has another replica preferred and elected, if that can be done now.
func (m *moves) elect(topic string, p int32) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), 10*time.Second)
	defer cancel()
	md, err := m.adm.Metadata(ctx, topic)
	if err != nil || len(md.Topics[topic].Partitions) <= int(p) {
		m.Logf("%s-%d: %v", topic, p, err)
		return
	}
	ids := md.Topics[topic].Partitions[p].Replicas
	k := 1 + m.rng.IntN(len(ids)-1)
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, p, append(append([]int32{}, ids[k:]...), ids[:k]...))
	if resp, err := m.adm.AlterPartitionAssignments(ctx, req); err != nil || resp.Error() != nil {
		m.Logf("%s-%d: %v %v", topic, p, err, resp.Error())
		return
	}
	if _, err := m.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{topic: {p: {}}}); err != nil {
		m.Logf("%s-%d: %v", topic, p, err)
	}
}

// sizes compares what the archive holds with what the log says it has, and with what
// retention leaves, which may take another round of it.
func (m *moves) sizes(topic string) (problems []string) {
	m.Helper()
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	starts, err1 := m.adm.ListStartOffsets(m.Context(), topic)
	ends, err2 := m.adm.ListEndOffsets(m.Context(), topic)
	if err1 != nil || err2 != nil {
		return []string{fmt.Sprint(err1, err2)}
	}
	store := (&victim{t: m.T, dir: m.dir}).archive()
	bucket := tiering.NewBucket(store)
	topics, err := bucket.Topics(m.Context())
	if err != nil {
		return append(problems, err.Error())
	}
	for _, x := range topics {
		if x.Info.Name != topic {
			continue
		}
		for _, n := range x.Partitions {
			part := x.Part(n)
			bp, err := bucket.Partition(m.Context(), part)
			if err != nil {
				return append(problems, err.Error())
			}
			start, _ := starts.Lookup(topic, n)
			end, _ := ends.Lookup(topic, n)
			next, bytes, records := int64(-1), int64(0), int64(0)
			for e, err := range bucket.Entries(m.Context(), bp) {
				if err != nil {
					return append(problems, err.Error())
				}
				if e.End <= start.Offset {
					continue
				}
				if next >= 0 && e.Base != next {
					wrong("%s: a segment serves from %d, the one before ends at %d", part, e.Base, next)
				}
				if next < 0 && e.Base > start.Offset {
					wrong("%s: the archive begins at %d, the log at %d", part, e.Base, start.Offset)
				}
				next, bytes, records = e.End, bytes+e.Size, records+e.Records
			}
			if next != end.Offset {
				wrong("%s: the archive ends at %d, the log at %d", part, next, end.Offset)
			}
			m.Logf("%s: offsets %d to %d, %d archived bytes in leader epochs up to %d", part, start.Offset, end.Offset, bytes, bp.Pointer.LastEpoch)
			if topic == "shrinking" && (bytes < movesRetention || bytes > movesRetention+2*movesSegment || start.Offset == 0) {
				wrong("%s: retention leaves %d bytes from %d on", part, bytes, start.Offset)
			}
			if topic == "kept" && (start.Offset != 0 || records < end.Offset) {
				wrong("%s: %d records, offsets %d to %d", part, records, start.Offset, end.Offset)
			}
		}
	}
	if topic == "kept" && m.elsewhere(topic) == 0 {
		wrong("all replicas rolled at the same offsets")
	}
	return problems
}

// elsewhere counts the archived segments that begin before what they serve: who
// uploaded them had rolled at other offsets than the leader before.
func (m *moves) elsewhere(topic string) (n int) {
	m.Helper()
	bucket := tiering.NewBucket((&victim{t: m.T, dir: m.dir}).archive())
	topics, err := bucket.Topics(m.Context())
	for _, x := range topics {
		if x.Info.Name != topic {
			continue
		}
		for _, p := range x.Partitions {
			part, err := bucket.Partition(m.Context(), x.Part(p))
			if err != nil {
				m.Logf("%s: %v", x.Part(p), err) // a leader at work may have put a newer one in its place
				continue
			}
			for e, err := range bucket.Entries(m.Context(), part) {
				if err == nil && e.FileBase < e.Base {
					n++
				}
			}
		}
	}
	if err != nil {
		m.Log(err)
	}
	return n
}
