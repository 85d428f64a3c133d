package e2e

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
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
	"firn/segment/batch"
)

// clusterClient is a client of all brokers that is quick to look for leaders anew.
func clusterClient(t *testing.T, c *harness.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.Addrs()...), kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.RequestRetries(1000), // within half a minute
		kgo.DialTimeout(time.Second), kgo.ProduceRequestTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// createInSync makes a topic of three replicas, two of which every acknowledged
// record is on, and waits until all are in sync.
func createInSync(t *testing.T, c *harness.Cluster, adm *kadm.Client, topic string, partitions int32) {
	t.Helper()
	two := "2"
	got, err := adm.CreateTopic(t.Context(), partitions, 3, map[string]*string{"min.insync.replicas": &two}, topic)
	if err != nil || got.Err != nil {
		t.Fatal(err, got.Err)
	}
	allInSync(t, c, topic)
}

// createOn makes a topic with replicas on brokers, those of partition p preferably led
// by the first of replicas[p], and waits until all are in sync.
func createOn(t *testing.T, c *harness.Cluster, cl *kgo.Client, topic string, replicas [][]int32, configs map[string]string) {
	t.Helper()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	for p, ids := range replicas {
		ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		ra.Partition, ra.Replicas = int32(p), ids
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
	}
	for k, v := range configs {
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = k, &v
		rt.Configs = append(rt.Configs, rc)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatal(err, kerr.ErrorForCode(resp.Topics[0].ErrorCode))
	}
	allInSync(t, c, topic)
}

// allInSync waits until every partition of topic has a leader and all replicas in
// sync, and every broker knows.
func allInSync(t *testing.T, c *harness.Cluster, topic string) {
	t.Helper()
	c.Everywhere(t, time.Minute, "all replicas of "+topic+" are in sync", topic, func(of kmsg.MetadataResponseTopic) bool {
		return len(of.Partitions) > 0 && !slices.ContainsFunc(of.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool {
			return p.Leader <= 0 || len(p.ISR) != len(p.Replicas)
		})
	})
}

// leaderOf waits until a partition has a leader, and tells who that is.
func leaderOf(t *testing.T, adm *kadm.Client, topic string, p int32) (id int) {
	t.Helper()
	harness.Eventually(t, time.Minute, fmt.Sprintf("%s-%d has a leader", topic, p), func() bool {
		md, err := adm.Metadata(t.Context(), topic)
		if err == nil {
			id = int(md.Topics[topic].Partitions[p].Leader)
		}
		return err == nil && id > 0
	})
	return id
}

// writer writes numbers to a topic, one after the other, each acknowledged by all
// in sync, until stop; none may fail.
type writer struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	acks   []time.Time
}

func startWriter(t *testing.T, c *harness.Cluster, topic string) *writer {
	return startPadded(t, c, topic, nil)
}

// startPadded is startWriter with a key, so that segments fill.
func startPadded(t *testing.T, c *harness.Cluster, topic string, key []byte) *writer {
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{t: t, cancel: cancel, done: make(chan struct{})}
	client := clusterClient(t, c, kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	go func() {
		defer close(w.done)
		for i := 0; ctx.Err() == nil; i++ {
			err := client.ProduceSync(t.Context(), &kgo.Record{Key: key, Value: []byte(strconv.Itoa(i))}).FirstErr()
			if err != nil {
				if t.Context().Err() == nil { // else the test has failed already
					t.Errorf("record %d: %v", i, err)
				}
				return
			}
			w.mu.Lock()
			w.acks = append(w.acks, time.Now())
			w.mu.Unlock()
		}
	}()
	w.more(20)
	return w
}

// more waits until n more records are acknowledged.
func (w *writer) more(n int) {
	w.t.Helper()
	from := w.count()
	harness.Eventually(w.t, 60*time.Second, "more records are acknowledged", func() bool { return w.count() >= from+n })
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acks)
}

// stop ends the writer and returns how many records were acknowledged.
func (w *writer) stop() int {
	w.cancel()
	<-w.done
	return w.count()
}

// gap is the longest time without an ack that ended after since.
func (w *writer) gap(since time.Time) (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 1; i < len(w.acks); i++ {
		if w.acks[i].After(since) {
			longest = max(longest, w.acks[i].Sub(w.acks[i-1]))
		}
	}
	return longest
}

// whole reads a topic of one partition and wants the numbers from 0 to n-1, in
// order, each once.
func whole(t *testing.T, c *harness.Cluster, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client := clusterClient(t, c, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for next := 0; next < n; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("at %d of %d: %v", next, n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if string(r.Value) != strconv.Itoa(next) {
				t.Fatalf("offset %d holds %s, want %d", r.Offset, r.Value, next)
			}
			next++
		})
	}
}

func TestClusterServesTopicsOfAllBrokers(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterOptions{})
	adm := kadm.NewClient(clusterClient(t, c))
	createInSync(t, c, adm, "t", 6)
	preferred := map[int32]int{} // to lead, as they do as long as nobody loses a session
	md, err := adm.Metadata(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	md.Topics.EachPartition(func(p kadm.PartitionDetail) { preferred[p.Replicas[0]]++ })
	if preferred[1] != 2 || preferred[2] != 2 || preferred[3] != 2 {
		t.Errorf("leaders: %v", preferred)
	}
	kcat := harness.Kcat(t)
	in := exec.Command(kcat, "-P", "-b", c.Bootstrap(), "-t", "t", "-X", "acks=all")
	var lines []string
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf("line %d", i))
	}
	in.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := in.CombinedOutput(); err != nil {
		t.Fatalf("kcat: %v\n%s", err, out)
	}
	out, err := exec.Command(kcat, "-C", "-b", c.Bootstrap(), "-t", "t", "-o", "beginning", "-e", "-q").Output()
	if got := strings.Count(string(out), "\n"); err != nil || got != len(lines) {
		t.Errorf("kcat read %d lines, %v", got, err)
	}
}

// A leader that dies is replaced when its session has ended; one that is asked to
// stop, before it does.
func TestClusterFailover(t *testing.T) {
	const session, tick = 6 * time.Second, 500 * time.Millisecond
	c := harness.StartCluster(t, harness.ClusterOptions{SessionMillis: int(session.Milliseconds())})
	adm := kadm.NewClient(clusterClient(t, c))
	createInSync(t, c, adm, "t", 1)
	w := startWriter(t, c, "t")

	killed := c.Broker(leaderOf(t, adm, "t", 0))
	at := time.Now()
	killed.Kill()
	w.more(20)
	gap := w.gap(at)
	t.Logf("SIGKILL of the leader: %v without an ack (session %v, tick %v)", gap.Round(time.Millisecond), session, tick)
	if gap > session+tick+10*time.Second { // an election, and clients that look for its outcome
		t.Errorf("SIGKILL of the leader: %v without an ack", gap)
	}
	// What the others' metrics say of it, now and when it is back.
	up := slices.DeleteFunc(slices.Clone(c.Brokers), func(b *harness.Firn) bool { return b == killed })
	sums(t, up, map[string]int{underReplicated: 1, underMinISR: 0, offlinePartitions: 0, activeController: 1, uncleanElections: 0})
	killed.Restart()
	allInSync(t, c, "t")
	sums(t, c.Brokers, map[string]int{underReplicated: 0, underMinISR: 0, offlinePartitions: 0, activeController: 1, uncleanElections: 0})

	stopped := c.Broker(leaderOf(t, adm, "t", 0))
	at = time.Now()
	stopped.Stop()
	took := time.Since(at)
	w.more(20)
	gap = w.gap(at)
	t.Logf("SIGTERM of the leader: %v without an ack, the process took %v to end", gap.Round(time.Millisecond), took.Round(time.Millisecond))
	if gap > session { // some milliseconds, as a rule
		t.Errorf("SIGTERM of the leader: %v without an ack", gap)
	}
	stopped.Restart()
	allInSync(t, c, "t")
	whole(t, c, "t", w.stop())
}

const (
	underReplicated   = "kafka_server_replicamanager_underreplicatedpartitions"
	underMinISR       = "kafka_server_replicamanager_underminisrpartitioncount"
	diskFull          = "firn_broker_disk_full"
	offlinePartitions = "kafka_controller_kafkacontroller_offlinepartitionscount"
	activeController  = "kafka_controller_kafkacontroller_activecontrollercount"
	uncleanElections  = "kafka_controller_controllerstats_uncleanleaderelections_total"
)

// sums waits until metrics, summed over brokers, have the values that are wanted.
func sums(t *testing.T, brokers []*harness.Firn, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	harness.Eventually(t, 10*time.Second, fmt.Sprintf("metrics are %v", want), func() bool {
		clear(got)
		for _, b := range brokers {
			_, body := b.Get("/metrics")
			for line := range strings.Lines(body) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				if _, wanted := want[name]; wanted {
					n, err := strconv.ParseFloat(value, 64)
					if err != nil {
						t.Fatal(line)
					}
					got[name] += int(n)
				}
			}
		}
		return maps.Equal(got, want)
	}, func() string { return fmt.Sprint(got) })
}

func TestClusterRollingRestart(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterOptions{})
	adm := kadm.NewClient(clusterClient(t, c))
	createInSync(t, c, adm, "t", 1)
	w := startWriter(t, c, "t")
	ctx, cancel := context.WithCancel(t.Context())
	read, failed := 0, error(nil)
	reader := clusterClient(t, c, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			fetches := reader.PollFetches(ctx)
			if err := fetches.Err0(); err != nil && ctx.Err() == nil && failed == nil {
				failed = err
			}
			fetches.EachRecord(func(r *kgo.Record) {
				if string(r.Value) != strconv.Itoa(read) && failed == nil {
					failed = fmt.Errorf("read %s, want %d", r.Value, read)
				}
				read++
			})
		}
	})
	at := time.Now()
	for id := 1; id <= 3; id++ {
		b := c.Broker(id)
		b.Stop()
		w.more(10)
		b.Restart()
		allInSync(t, c, "t")
		w.more(10)
	}
	t.Logf("rolling restart in %v: longest time without an ack %v", time.Since(at).Round(time.Millisecond), w.gap(at).Round(time.Millisecond))
	n := w.stop()
	whole(t, c, "t", n)
	cancel()
	reading.Wait()
	if failed != nil {
		t.Error(failed)
	}
}

// A20: SIGKILL leaves the page cache, so that nobody's entry is lost and the
// cluster serves again by itself.
func TestClusterKilledAsAWhole(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterOptions{})
	adm := kadm.NewClient(clusterClient(t, c))
	createInSync(t, c, adm, "t", 1)
	w := startWriter(t, c, "t")
	for range 2 {
		w.more(100)
		c.KillAll()
		at := time.Now()
		c.RestartAll()
		w.more(20)
		t.Logf("all three killed and started: next ack after %v", w.gap(at).Round(time.Millisecond))
	}
	allInSync(t, c, "t")
	whole(t, c, "t", w.stop())
	sums(t, c.Brokers, map[string]int{uncleanElections: 0})
}

// B7: with ZooKeeper gone, what is led is led on. acks=all and reads go on without
// an error as long as all in sync are there; then nothing is acknowledged that could
// be lost; and when ZooKeeper is back the cluster heals by itself.
func TestClusterWithoutZooKeeper(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterOptions{SessionMillis: 3000})
	adm := kadm.NewClient(clusterClient(t, c))
	createInSync(t, c, adm, "t", 1)
	w := startWriter(t, c, "t")

	at := time.Now()
	c.ZooKeeper.Nodes[0].Kill()
	// Long enough that sessions and leases are over, and clients have been given up,
	// which takes three sessions.
	for time.Since(at) < 12*time.Second {
		w.more(1)
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("12 s without ZooKeeper: longest time without an ack %v", w.gap(at).Round(time.Millisecond))
	if gap := w.gap(at); gap > 8*time.Second { // as long as the outage, if what is led weren't led on
		t.Errorf("%v without an ack", gap)
	}
	whole(t, c, "t", w.count())

	leader := leaderOf(t, adm, "t", 0)
	follower := c.Broker(leader%3 + 1)
	follower.Kill()
	time.Sleep(500 * time.Millisecond) // for what was on its way
	n := w.count()
	time.Sleep(2 * time.Second)
	if got := w.count(); got > n+1 {
		t.Errorf("%d records were acknowledged though one of the ISR was gone", got-n)
	}

	at = time.Now()
	c.ZooKeeper.Nodes[0].Start()
	w.more(20)
	t.Logf("ZooKeeper back: next ack after %v", time.Since(at).Round(time.Millisecond))
	follower.Restart()
	allInSync(t, c, "t")
	w.more(20)
	whole(t, c, "t", w.stop())
}

// A11: what a stopped leader finds in its sockets when it goes on is for another to
// answer: it acknowledges nothing and tells nothing that a new leader may know better.
func TestClusterLeaderThatWasStopped(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterOptions{})
	adm := kadm.NewClient(clusterClient(t, c))
	createInSync(t, c, adm, "t", 1)
	w := startWriter(t, c, "t")
	w.more(20)
	id := leaderOf(t, adm, "t", 0)
	old := c.Broker(id)
	end := func() int64 {
		ends, err := adm.ListEndOffsets(t.Context(), "t")
		if err != nil || ends.Error() != nil {
			t.Fatal(err, ends.Error())
		}
		o, _ := ends.Lookup("t", 0)
		return o.Offset
	}
	before := end()
	md, err := adm.Metadata(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	tid := md.Topics["t"].ID

	// A connection of each kind of request to that very broker, used once.
	requests := map[string]func() kmsg.Request{
		"produce":      func() kmsg.Request { return produceOne("t", tid, 1) },
		"fetch":        func() kmsg.Request { return fetchAt("t", tid, before) },
		"list offsets": func() kmsg.Request { return listEnd("t") },
	}
	pinned := map[string]*kgo.Client{}
	for what, request := range requests {
		client := newClient(t, old.Addr, kgo.RequestRetries(0))
		t.Cleanup(client.Close)
		pinned[what] = client
		if code := codeOf(t, client, request()); code != 0 {
			t.Fatalf("%s: code %d", what, code)
		}
	}
	others := newClient(t, c.Broker(id%3+1).Addr, kgo.MetadataMinAge(20*time.Millisecond))
	t.Cleanup(others.Close)
	old.Pause()
	at := time.Now()
	harness.Eventually(t, 20*time.Second, "another leads", func() bool { return leaderOf(t, kadm.NewClient(others), "t", 0) != id })
	w.more(20)
	t.Logf("SIGSTOP of the leader: %v without an ack", w.gap(at).Round(time.Millisecond))
	answers := map[string]chan int16{}
	for what, request := range requests {
		answers[what] = make(chan int16, 1)
		go func() { answers[what] <- codeOf(t, pinned[what], request()) }()
	}
	time.Sleep(200 * time.Millisecond) // the requests are in its sockets
	old.Resume()
	resumed := time.Now()
	for what, answer := range answers {
		select {
		case code := <-answer:
			if code != kerr.NotLeaderForPartition.Code && code != kerr.FencedLeaderEpoch.Code {
				t.Errorf("%s by the old leader: code %d", what, code)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s by the old leader: no answer", what)
		}
	}
	t.Logf("answers after %v", time.Since(resumed).Round(time.Millisecond))
	allInSync(t, c, "t")
	t.Logf("in sync again %v after it went on", time.Since(resumed).Round(time.Millisecond))
	n := w.stop()
	if got := end(); got != int64(n)+1 { // and the one that was produced by hand before
		t.Errorf("the log ends at %d, want %d", got, n+1)
	}
}

// codeOf is the code of a partition in the answer to a request sent to a client's
// seed broker; −2 if there is none.
func codeOf(t *testing.T, client *kgo.Client, request kmsg.Request) int16 {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	resp, err := client.SeedBrokers()[0].Request(ctx, request)
	if err != nil {
		return -2
	}
	switch resp := resp.(type) {
	case *kmsg.ProduceResponse:
		return resp.Topics[0].Partitions[0].ErrorCode
	case *kmsg.FetchResponse:
		return resp.Topics[0].Partitions[0].ErrorCode
	case *kmsg.ListOffsetsResponse:
		return resp.Topics[0].Partitions[0].ErrorCode
	}
	return -2
}

func produceOne(topic string, id kadm.TopicID, acks int16) kmsg.Request {
	b := batch.NewBuilder(batch.Spec{})
	b.Add(time.Now().UnixMilli(), nil, []byte("by hand"))
	records, err := b.Build()
	if err != nil {
		panic(err)
	}
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = 9, acks, 5000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rt.Topic, rt.TopicID, rp.Records = topic, id, records
	rt.Partitions = append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	return r
}

func fetchAt(topic string, id kadm.TopicID, offset int64) kmsg.Request {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.SessionEpoch = 12, 100, 1, 1<<20, -1
	rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	rt.Topic, rt.TopicID, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = topic, id, offset, 1<<20, -1
	rt.Partitions = append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	return r
}

func listEnd(topic string) kmsg.Request {
	r := kmsg.NewPtrListOffsetsRequest()
	r.Version = 7
	rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	rt.Topic, rp.Timestamp, rp.CurrentLeaderEpoch = topic, -1, -1
	rt.Partitions = append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	return r
}

// What a group has committed is known to whoever coordinates it next.
func TestClusterGroupOutlivesItsCoordinator(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterOptions{})
	adm := kadm.NewClient(clusterClient(t, c))
	createInSync(t, c, adm, "t", 1)
	w := startWriter(t, c, "t")
	next := 0 // what the group reads next
	member := func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		m := clusterClient(t, c, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for below := next + n; next < below; {
			fetches := m.PollRecords(ctx, below-next)
			if err := fetches.Err0(); err != nil {
				t.Fatalf("at %d: %v", next, err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				if string(r.Value) != strconv.Itoa(next) {
					t.Fatalf("the group got %s, want %d", r.Value, next)
				}
				next++
			})
		}
		if err := m.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatalf("commit: %v", err)
		}
		m.Close()
	}
	w.more(100)
	member(50)
	allInSync(t, c, "__consumer_offsets")
	for range 2 {
		found := adm.FindGroupCoordinators(t.Context(), "g")
		if err := found.Error(); err != nil {
			t.Fatal(err)
		}
		b := c.Broker(int(found["g"].NodeID))
		b.Kill()
		at := time.Now()
		w.more(50)
		member(50)
		t.Logf("the group goes on %v after its coordinator was killed", time.Since(at).Round(time.Millisecond))
		b.Restart()
		allInSync(t, c, "__consumer_offsets")
	}
	w.stop()
}

// B1, C15: a broker whose disk is new waits for the end of its former session, holds
// nothing that it was counted for, and copies it all before it may lead.
func TestClusterBrokerThatWasWiped(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterOptions{})
	adm := kadm.NewClient(clusterClient(t, c))
	createInSync(t, c, adm, "t", 1)
	w := startWriter(t, c, "t")
	for range 2 { // whoever leads is wiped, so that the first who was leads again, or could
		w.more(50)
		b := c.Broker(leaderOf(t, adm, "t", 0))
		b.Kill()
		b.Wipe()
		b.Restart()
		allInSync(t, c, "t")
	}
	n := w.stop()
	whole(t, c, "t", n)
	sums(t, c.Brokers, map[string]int{uncleanElections: 0, underReplicated: 0})
}
