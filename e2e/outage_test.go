package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/e2e/harness"
)

// ZooKeeper without a quorum, while brokers archive (B7). The short form of
// TestLongQuorumLoss.
func TestClusterWithoutQuorum(t *testing.T) {
	loseQuorum(t, 4*time.Second, 15*time.Second)
}

// loseQuorum takes two of three ZooKeeper servers away for so long. Meanwhile
// acks=all, hot and cold reads go on without an error; then a follower is killed,
// and nothing is acknowledged any more, with errors that clients retry; and when the
// quorum is back the cluster heals by itself, and archives on.
func loseQuorum(t *testing.T, session, outage time.Duration) {
	c := harness.StartCluster(t, harness.ClusterOptions{
		ZooKeepers: 3, SessionMillis: int(session.Milliseconds()), Archive: "dir",
		Set: []string{
			"remote.log.manager.task.interval.ms=200", "log.retention.check.interval.ms=200",
			"archive.upload.max.interval.ms=1000", "archive.upload.min.bytes=0",
			"archive.cache.disk.bytes=0", "archive.cache.memory.bytes=16777216",
		},
	})
	adm := kadm.NewClient(clusterClient(t, c))
	createInSync(t, c, adm, "t", 1)
	createInSync(t, c, adm, "by-hand", 1)
	alter(t, adm, "t", "segment.bytes", "262144", "local.retention.bytes", "524288")

	w := startPadded(t, c, "t", bytes.Repeat([]byte("padding "), 256))
	harness.Eventually(t, time.Minute, "much is in the archive alone", func() bool {
		return local(t, adm, "t") > 500
	})
	hot := startReader(t, c, "t", true)
	cold := startReader(t, c, "t", false)
	time.Sleep(time.Second)

	at := time.Now()
	for _, n := range c.ZooKeeper.Nodes[1:] {
		n.Kill()
	}
	acks, hots, colds := w.count(), hot.count(), cold.count()
	for id, b := range c.Brokers { // which then know of every pointer that was on its way
		harness.Eventually(t, time.Minute, fmt.Sprintf("broker %d misses the quorum", id+1), func() bool {
			_, body := b.Get("/readyz")
			return strings.Contains(body, noMetadata)
		})
	}
	archived := archivedEnd(t, adm, "t")
	for time.Since(at) < outage {
		w.more(1)
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%v without a quorum, session %v: %d acks, longest time without one %v; %d hot reads, %d cold in %d rounds",
		outage, session, w.count()-acks, w.gap(at).Round(time.Millisecond), hot.count()-hots, cold.count()-colds, cold.rounds())
	if gap := w.gap(at); gap > 2*outage/3 { // it would be all of it, if what is led weren't led on
		t.Errorf("%v without an ack", gap)
	}
	harness.Eventually(t, time.Minute, "reads go on", func() bool { return hot.count() >= hots+100 && cold.count() >= colds+500 },
		func() string { return fmt.Sprintf("%d hot, %d cold", hot.count()-hots, cold.count()-colds) })
	if got := archivedEnd(t, adm, "t"); got != archived {
		t.Errorf("the archived end went from %d to %d though no pointer could be moved", archived, got)
	}

	for id, b := range c.Brokers { // no load balancer is to take it away: it serves
		if code, body := b.Get("/readyz?wait=5s"); code != 200 || !strings.Contains(body, noMetadata) {
			t.Errorf("broker %d without a quorum: /readyz is %d %s", id+1, code, body)
		}
	}

	// Nobody can take a dead follower out of the ISR now.
	leader := leaderOf(t, adm, "t", 0)
	follower := c.Broker(leader%3 + 1)
	follower.Kill()
	time.Sleep(500 * time.Millisecond) // for what was on its way
	n := w.count()
	codes := refusals(t, c, adm, "by-hand", follower)
	time.Sleep(2 * time.Second)
	if got := w.count(); got > n+1 {
		t.Errorf("%d records were acknowledged though one of the ISR was gone", got-n)
	}
	t.Logf("a follower killed: %d acks after that; produce is answered with %v", w.count()-n, codes)

	at = time.Now()
	for _, n := range c.ZooKeeper.Nodes[1:] {
		n.Launch()
	}
	w.more(20)
	t.Logf("quorum back: next ack after %v", time.Since(at).Round(time.Millisecond))
	harness.Eventually(t, time.Minute, "uploads go on", func() bool { return remote(t, adm, "t") > archived+100 })
	t.Logf("quorum back: the archived end moves after %v at most, from %d to %d", time.Since(at).Round(time.Millisecond), archived, remote(t, adm, "t"))
	follower.Restart()
	allInSync(t, c, "t")
	w.more(20)
	hot.stop()
	cold.stop()
	whole(t, c, "t", w.stop())
	sums(t, c.Brokers, map[string]int{uncleanElections: 0, offlinePartitions: 0})
}

// noMetadata is what a broker says of itself without a quorum.
const noMetadata = "the metadata can't be read"

// refusals produces to each broker that runs, as clients that don't retry do, and
// returns the names of the errors; each must be one that clients retry.
func refusals(t *testing.T, c *harness.Cluster, adm *kadm.Client, topic string, dead *harness.Firn) (names []string) {
	t.Helper()
	md, err := adm.Metadata(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range c.Brokers {
		if b == dead {
			continue
		}
		client := newClient(t, b.Addr, kgo.RequestRetries(0))
		request := produceOne(topic, md.Topics[topic].ID, -1).(*kmsg.ProduceRequest)
		request.TimeoutMillis = 1000
		code := codeOf(t, client, request)
		client.Close()
		if e := kerr.TypedErrorForCode(code); e == nil || !e.Retriable {
			t.Errorf("produce at broker %s: code %d, want one to retry", b.Addr, code)
		} else {
			names = append(names, e.Message)
		}
	}
	return names
}

func alter(t *testing.T, adm *kadm.Client, topic string, pairs ...string) {
	t.Helper()
	var configs []kadm.AlterConfig
	for p := range slices.Chunk(pairs, 2) {
		configs = append(configs, kadm.AlterConfig{Op: kadm.SetConfig, Name: p[0], Value: &p[1]})
	}
	if got, err := adm.AlterTopicConfigs(t.Context(), configs, topic); err != nil || got[0].Err != nil {
		t.Fatal(err, got)
	}
}

// local is where the leader's disk begins, remote the end of what is archived.
func local(t *testing.T, adm *kadm.Client, topic string) int64 {
	t.Helper()
	got, err := adm.ListLocalLogStartOffsets(t.Context(), topic)
	return listed(t, got, err, topic)
}

func remote(t *testing.T, adm *kadm.Client, topic string) int64 {
	t.Helper()
	got, err := adm.ListLatestRemoteOffsets(t.Context(), topic)
	return listed(t, got, err, topic)
}

// archivedEnd is remote, once the leader answers.
func archivedEnd(t *testing.T, adm *kadm.Client, topic string) (end int64) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the archived end is told", func() bool { end = remote(t, adm, topic); return end >= 0 })
	return end
}

func listed(t *testing.T, got kadm.ListedOffsets, err error, topic string) int64 {
	t.Helper()
	o, _ := got.Lookup(topic, 0)
	if err != nil || o.Err != nil {
		t.Logf("offsets of %s: %v, %v", topic, err, o.Err)
		return -1
	}
	return o.Offset
}

// reader reads the numbers of a topic of one partition, in order, without an error:
// from the start to where the archive ends, again and again, or everything as it comes.
type reader struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	n, r   int
}

func startReader(t *testing.T, c *harness.Cluster, topic string, tail bool) *reader {
	ctx, cancel := context.WithCancel(t.Context())
	x := &reader{cancel: cancel}
	x.done.Go(func() {
		for ctx.Err() == nil {
			x.round(ctx, t, c, topic, tail)
		}
	})
	return x
}

// coldRound is how many records, all archived, one round of a cold reader takes.
const coldRound = 400

func (x *reader) round(ctx context.Context, t *testing.T, c *harness.Cluster, topic string, tail bool) {
	at, next := kgo.NewOffset().At(0), 0
	if tail {
		at, next = kgo.NewOffset().AtEnd(), -1
	}
	client := clusterClient(t, c, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: at}}))
	defer client.Close()
	for ctx.Err() == nil && (tail || next < coldRound) {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				t.Errorf("reading %s at %d: %v", topic, next, err)
			}
		})
		n := 0
		fetches.EachRecord(func(r *kgo.Record) {
			if next < 0 {
				next = int(r.Offset)
			}
			if string(r.Value) != strconv.Itoa(next) || r.Offset != int64(next) {
				t.Errorf("offset %d holds %s, want %d", r.Offset, r.Value, next)
			}
			next++
			n++
		})
		x.mu.Lock()
		x.n += n
		x.mu.Unlock()
	}
	x.mu.Lock()
	x.r++
	x.mu.Unlock()
}

func (x *reader) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.n
}

func (x *reader) rounds() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.r
}

func (x *reader) stop() {
	x.cancel()
	x.done.Wait()
}
