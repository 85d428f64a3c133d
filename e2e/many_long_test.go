//go:build long && linux

package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
)

var longPartitions = flag.Int("long.partitions", 3000, "partitions, of three replicas, on three brokers")

// Thousands of partitions on real brokers: what they cost at idle, and how long they
// take to have leaders again when a broker is killed.
func TestLongManyPartitions(t *testing.T) {
	const per = 100
	topics := *longPartitions / per
	c := harness.StartCluster(t, harness.ClusterOptions{Set: []string{"auto.leader.rebalance.enable=false"}})
	adm := kadm.NewClient(clusterClient(t, c))
	begin := time.Now()
	two := "2"
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("many-%03d", i))
	}
	got, err := adm.CreateTopics(t.Context(), per, 3, map[string]*string{"min.insync.replicas": &two}, names...)
	if err == nil {
		err = got.Error()
	}
	if err != nil {
		t.Logf("creating: %v", err) // too slow an answer; they come all the same
	}
	inSync := func(names []string) bool {
		md, err := adm.Metadata(t.Context(), names...)
		whole := err == nil && md.Topics.Error() == nil
		md.Topics.EachPartition(func(p kadm.PartitionDetail) { whole = whole && p.Leader > 0 && len(p.ISR) == 3 })
		return whole
	}
	harness.Eventually(t, 3*time.Minute, "all in sync", func() bool { return inSync(names) })
	t.Logf("%d partitions × 3 created and in sync in %v", topics*per, time.Since(begin).Round(time.Millisecond))
	produceToAll(t, c, names, per)

	time.Sleep(10 * time.Second)
	before := usage(t, c)
	time.Sleep(20 * time.Second)
	for i, u := range usage(t, c) {
		t.Logf("broker %d at idle: %.1f %% of a core, %d MiB resident, %s goroutines", i+1,
			100*(u.cpu-before[i].cpu).Seconds()/20, u.rss>>20, u.goroutines)
	}

	for round := range 2 {
		victim := c.Broker(round%3 + 1)
		id := int32(round%3 + 1)
		others := newClient(t, c.Broker((round+1)%3+1).Addr, kgo.MetadataMinAge(20*time.Millisecond))
		watch := kadm.NewClient(others)
		begin = time.Now()
		victim.Kill()
		var acked sync.WaitGroup
		acked.Go(func() {
			took := produceToAll(t, c, names, per)
			t.Logf("SIGKILL: a record to each of %d partitions acknowledged after %v", topics*per, took.Round(time.Millisecond))
		})
		harness.Eventually(t, time.Minute, "all have leaders", func() bool {
			md, err := watch.Metadata(t.Context(), names...)
			led := err == nil
			md.Topics.EachPartition(func(p kadm.PartitionDetail) { led = led && p.Leader > 0 && p.Leader != id })
			return led
		})
		t.Logf("SIGKILL: the last of %d partitions has a leader after %v", topics*per, time.Since(begin).Round(time.Millisecond))
		acked.Wait()
		others.Close()
		begin = time.Now()
		victim.Restart()
		t.Logf("restarted: ready after %v", time.Since(begin).Round(time.Millisecond))
		harness.Eventually(t, 2*time.Minute, "all in sync", func() bool { return inSync(names) })
		t.Logf("restarted: all in sync after %v", time.Since(begin).Round(time.Millisecond))
	}
	sums(t, c.Brokers, map[string]int{uncleanElections: 0, offlinePartitions: 0})
}

// produceToAll produces a record to each partition, acknowledged by all in sync.
func produceToAll(t *testing.T, c *harness.Cluster, names []string, per int) time.Duration {
	begin := time.Now()
	client := clusterClient(t, c, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(100_000))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var failed atomic.Int64
	for _, name := range names {
		for p := range per {
			client.Produce(ctx, &kgo.Record{Topic: name, Partition: int32(p), Value: []byte("x")}, func(_ *kgo.Record, err error) {
				if err != nil && failed.Add(1) == 1 {
					t.Errorf("produce to %s-%d: %v", name, p, err)
				}
			})
		}
	}
	if err := client.Flush(ctx); err != nil {
		t.Errorf("flush: %v", err)
	}
	client.Close()
	return time.Since(begin)
}

// used is what a process takes.
type used struct {
	cpu        time.Duration
	rss        int
	goroutines string
}

func usage(t *testing.T, c *harness.Cluster) (all []used) {
	t.Helper()
	for _, b := range c.Brokers {
		var u used
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, ticks := range f[11:13] { // user and system time, in hundredths of a second
			n, err := strconv.Atoi(ticks)
			if err != nil {
				t.Fatal(err)
			}
			u.cpu += time.Duration(n) * 10 * time.Millisecond
		}
		pages, err := strconv.Atoi(f[21])
		if err != nil {
			t.Fatal(err)
		}
		u.rss = pages * os.Getpagesize()
		_, body := b.Get("/metrics")
		for line := range strings.Lines(body) {
			if n, ok := strings.CutPrefix(line, "go_goroutines "); ok {
				u.goroutines = strings.TrimSpace(n)
			}
		}
		all = append(all, u)
	}
	return all
}
