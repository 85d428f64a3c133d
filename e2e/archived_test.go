package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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

	"firn/broker/console"
	"firn/e2e/harness"
)

// Replicas of what is archived, in a fiftieth of its size or in full: 64 MiB
// segments, 10 GB archived and 200 MB not. The full size takes 15 GB below TMPDIR
// and some minutes, and isn't part of CI:
//
//	go test ./e2e -run TestReplicasOfWhatIsArchived -archived.full -v -timeout 30m
var archivedFull = flag.Bool("archived.full", false, "TestReplicasOfWhatIsArchived in full size")

// archivedSize is how much is written.
type archivedSize struct {
	segment, value    int
	archived, pending int64
}

const (
	archivedTopic      = "archived"
	archivedPartitions = 4
	replicationBytesIn = "kafka_server_brokertopicmetrics_replicationbytesin_total"
)

// archived is a topic, most of it in the archive only, whose records tell where
// they belong.
type archived struct {
	*testing.T
	archivedSize
	c   *harness.Cluster
	cl  *kgo.Client
	adm *kadm.Client
	end [archivedPartitions]int64
}

// TestReplicasOfWhatIsArchived: a replica that lost its disk and one on a new broker
// copy what isn't archived, whatever else their leader still has on its disk, and
// lead as well as any.
func TestReplicasOfWhatIsArchived(t *testing.T) {
	size := archivedSize{segment: 64 << 20 / 50, value: 2 << 10, archived: 10e9 / 50, pending: 200e6 / 50}
	if *archivedFull {
		size = archivedSize{segment: 64 << 20, value: 16 << 10, archived: 10e9, pending: 200e6}
	}
	c := harness.StartCluster(t, harness.ClusterOptions{Brokers: 4, Archive: "dir", Set: []string{
		"log.retention.check.interval.ms=500", "remote.log.manager.task.interval.ms=500", "log.segment.delete.delay.ms=0",
		"archive.upload.max.interval.ms=3600000", "auto.leader.rebalance.enable=false",
	}})
	cl := clusterClient(t, c)
	a := &archived{T: t, archivedSize: size, c: c, cl: cl, adm: kadm.NewClient(cl)}
	a.create(archivedTopic, []int32{1, 2, 3}, map[string]string{
		"segment.bytes": strconv.Itoa(size.segment), "local.retention.bytes": strconv.Itoa(4 * size.segment), "min.insync.replicas": "2",
	})
	began := time.Now()
	a.write(size.archived + size.pending/2)
	a.topUp()
	t.Logf("%d MB written in %v", a.bytes()/1e6, time.Since(began).Round(time.Second))
	for _, part := range []struct {
		name string
		test func(*archived)
	}{{"a wiped broker", (*archived).wiped}, {"a fourth broker", (*archived).fourth}, {"an emptied broker", (*archived).emptied}} {
		if !t.Run(part.name, func(t *testing.T) {
			sub := *a
			sub.T = t
			defer func() { a.end = sub.end }()
			part.test(&sub)
		}) {
			return
		}
	}
}

// create makes a topic whose partitions all have these replicas, in this order.
func (a *archived) create(topic string, replicas []int32, configs map[string]string) {
	a.Helper()
	createOn(a.T, a.c, a.cl, topic, slices.Repeat([][]int32{replicas}, archivedPartitions), configs)
}

// value is the value at an offset.
func (a *archived) value(partition int32, offset int64) []byte {
	v := fmt.Appendf(make([]byte, 0, a.archivedSize.value), "%d/%d/", partition, offset)
	return append(v, bytes.Repeat([]byte{byte(offset)}, a.archivedSize.value-len(v))...)
}

// write writes so many bytes, evenly, acknowledged by all in sync.
func (a *archived) write(total int64) {
	a.Helper()
	var each [archivedPartitions]int64
	for p := range each {
		each[p] = total / archivedPartitions
	}
	a.writeEach(each)
}

func (a *archived) writeEach(bytes [archivedPartitions]int64) {
	a.Helper()
	var wg sync.WaitGroup
	var failed error
	var mu sync.Mutex
	batch := min(1<<20, a.segment/8)
	for p := range int32(archivedPartitions) {
		cl := clusterClient(a.T, a.c, kgo.DefaultProduceTopic(archivedTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
			kgo.ProducerBatchMaxBytes(int32(batch)), kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(4*batch/a.archivedSize.value),
			kgo.ProduceRequestTimeout(30*time.Second), kgo.RequestTimeoutOverhead(30*time.Second))
		wg.Go(func() {
			defer cl.Close()
			for range bytes[p] / int64(a.archivedSize.value) {
				offset := a.end[p]
				a.end[p]++
				cl.Produce(context.Background(), &kgo.Record{Partition: p, Value: a.value(p, offset)}, func(r *kgo.Record, err error) {
					if err == nil && r.Offset != offset {
						err = fmt.Errorf("partition %d: offset %d instead of %d", p, r.Offset, offset)
					}
					if err != nil {
						mu.Lock()
						failed = err
						mu.Unlock()
					}
				})
			}
			if err := cl.Flush(a.Context()); err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if failed != nil {
		a.Fatal(failed)
	}
}

func (a *archived) bytes() (n int64) {
	for _, end := range a.end {
		n += end * int64(a.archivedSize.value)
	}
	return n
}

// led is how far the archive of each partition is, as its leader tells.
func (a *archived) led() (parts [archivedPartitions]console.ArchivePartition, ok bool) {
	a.Helper()
	md, err := a.adm.Metadata(a.Context(), archivedTopic)
	if err != nil {
		return parts, false
	}
	n := 0
	md.Topics.EachPartition(func(p kadm.PartitionDetail) {
		if p.Leader < 1 {
			return
		}
		_, body := a.c.Broker(int(p.Leader)).Get("/api/v1/archive/partitions")
		var list []console.ArchivePartition
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			a.Fatal(err, body)
		}
		for _, v := range list {
			if v.Topic == archivedTopic && v.Partition == p.Partition {
				parts[p.Partition] = v
				n++
			}
		}
	})
	return parts, n == archivedPartitions
}

// pending is how many bytes aren't archived.
func (a *archived) pending() (n int64) {
	a.Helper()
	parts, ok := a.led()
	if !ok {
		a.Fatal("a partition has no leader")
	}
	for _, p := range parts {
		n += p.PendingBytes
	}
	return n
}

// settle waits until whatever is sealed is archived, and as much of it off the disks
// as may be.
func (a *archived) settle() {
	a.Helper()
	harness.Eventually(a.T, 5*time.Minute, "what is sealed is archived", func() bool {
		parts, ok := a.led()
		for p, v := range parts {
			ok = ok && v.End == a.end[p] && v.PendingBytes <= int64(a.segment) && v.LocalBytes <= 6*int64(a.segment)
		}
		return ok
	}, func() string { parts, _ := a.led(); return fmt.Sprintf("%+v", parts) })
}

// topUp writes until about as much isn't archived as is wanted, evenly.
func (a *archived) topUp() {
	a.Helper()
	each := a.archivedSize.pending / archivedPartitions
	for range 5 {
		a.settle()
		parts, _ := a.led()
		var more [archivedPartitions]int64
		near := true
		for p, v := range parts {
			switch {
			case v.PendingBytes > each*21/20: // the next segment, then
				more[p] = int64(a.segment) - v.PendingBytes + each/5
			case v.PendingBytes < each*9/10:
				more[p] = each - v.PendingBytes
			default:
				continue
			}
			near = false
		}
		if near {
			return
		}
		a.writeEach(more)
	}
	a.Fatalf("not near %d: %d bytes aren't archived", a.archivedSize.pending, a.pending())
}

// inSync waits until the partitions have exactly these replicas, all in sync.
func (a *archived) inSync(want ...int32) {
	a.Helper()
	harness.Eventually(a.T, 5*time.Minute, fmt.Sprintf("%v are in sync", want), func() bool {
		md, err := a.adm.Metadata(a.Context(), archivedTopic)
		ok := err == nil && len(md.Topics[archivedTopic].Partitions) == archivedPartitions
		if ok {
			md.Topics.EachPartition(func(p kadm.PartitionDetail) {
				isr := slices.Sorted(slices.Values(p.ISR))
				ok = ok && slices.Equal(isr, want) && len(p.Replicas) == len(want) && p.Leader > 0
			})
		}
		return ok
	})
}

// leadEverything has a broker, the preferred one, elected everywhere.
func (a *archived) leadEverything(id int) {
	a.Helper()
	harness.Eventually(a.T, 30*time.Second, fmt.Sprintf("broker %d leads", id), func() bool {
		_, err := a.adm.ElectLeaders(a.Context(), kadm.ElectPreferredReplica, kadm.TopicsSet{archivedTopic: {0: {}, 1: {}, 2: {}, 3: {}}})
		if err != nil {
			return false
		}
		for p := range int32(archivedPartitions) {
			if leaderOf(a.T, a.adm, archivedTopic, p) != id {
				return false
			}
		}
		return true
	})
}

// copied checks what a broker has copied since its process began.
func (a *archived) copied(b *harness.Firn, pending int64, took time.Duration) {
	a.Helper()
	n := int64(metric(a.T, b, replicationBytesIn))
	a.Logf("in sync after %v: %d bytes copied, of %d MB; %d weren't archived, a segment is %d", took.Round(10*time.Millisecond), n, a.bytes()/1e6, pending, a.segment)
	if n >= pending+int64(a.segment) || n < pending/2 {
		a.Errorf("%d bytes copied; %d were not archived", n, pending)
	}
	if *archivedFull && n >= 300e6 {
		a.Errorf("%d bytes copied", n)
	}
}

// whole reads everything from the beginning.
func (a *archived) whole() {
	a.Helper()
	began := time.Now()
	from := map[int32]kgo.Offset{}
	for p := range int32(archivedPartitions) {
		from[p] = kgo.NewOffset().At(0)
	}
	cl := clusterClient(a.T, a.c, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{archivedTopic: from}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer cl.Close()
	var next [archivedPartitions]int64
	for next != a.end {
		ctx, cancel := context.WithTimeout(a.Context(), time.Minute)
		fetches := cl.PollFetches(ctx)
		cancel()
		if err := fetches.Err(); err != nil {
			a.Fatalf("at %v of %v: %v", next, a.end, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != next[r.Partition] || !bytes.Equal(r.Value, a.value(r.Partition, r.Offset)) {
				a.Fatalf("partition %d: offset %d holds %.20q; %d is due", r.Partition, r.Offset, r.Value, next[r.Partition])
			}
			next[r.Partition]++
		})
	}
	a.Logf("%d MB read in %v", a.bytes()/1e6, time.Since(began).Round(time.Millisecond))
}

func (a *archived) wiped() {
	b := a.c.Broker(1)
	b.Kill()
	b.Wipe()
	pending := a.pendingLedBy(2, 3)
	began := time.Now()
	b.Restart()
	a.inSync(1, 2, 3)
	a.copied(b, pending, time.Since(began))
	a.leadEverything(1)
	a.write(int64(a.segment) * archivedPartitions / 2)
	a.c.Broker(2).Kill()
	a.write(int64(a.segment))
	a.whole()
	a.c.Broker(2).Restart()
	a.inSync(1, 2, 3)
}

// pendingLedBy is pending once leaders are among these.
func (a *archived) pendingLedBy(ids ...int) int64 {
	a.Helper()
	harness.Eventually(a.T, 30*time.Second, "others lead", func() bool {
		for p := range int32(archivedPartitions) {
			if !slices.Contains(ids, leaderOf(a.T, a.adm, archivedTopic, p)) {
				return false
			}
		}
		return true
	})
	a.settle()
	return a.pending()
}

func (a *archived) fourth() {
	a.topUp()
	pending := a.pending()
	b := a.c.Broker(4)
	before := int64(metric(a.T, b, replicationBytesIn))
	if before > 1<<20 {
		a.Fatalf("broker 4 has copied %d bytes before it had anything", before)
	}
	var req kadm.AlterPartitionAssignmentsReq
	for p := range int32(archivedPartitions) {
		req.Assign(archivedTopic, p, []int32{4, 1, 2})
	}
	began := time.Now()
	resp, err := a.adm.AlterPartitionAssignments(a.Context(), req)
	if err != nil || resp.Error() != nil {
		a.Fatal(err, resp.Error())
	}
	a.inSync(1, 2, 4)
	a.copied(b, pending, time.Since(began))
	a.leadEverything(4)
	a.write(int64(a.segment) * archivedPartitions / 2)
	a.whole()
}

// emptied: everything moves off a broker, which then leaves the cluster.
func (a *archived) emptied() {
	a.create("others", []int32{3, 2}, nil)
	o := harness.Run(a.T, 2*time.Minute, "", harness.Binary(a.T), "cluster", "reassign", "--drain", "3", "--wait", "-b", a.c.Bootstrap())
	if o.Err != nil {
		a.Fatalf("drain: %v\n%s%s", o.Err, o.Stdout, o.Stderr)
	}
	b := a.c.Broker(3)
	harness.Eventually(a.T, 30*time.Second, "nothing is left on its disk", func() bool {
		left, err := filepath.Glob(filepath.Join(b.Data, "logs", "*-*"))
		return err == nil && !slices.ContainsFunc(left, func(dir string) bool {
			st, err := os.Stat(dir)
			return err == nil && st.IsDir() && (strings.Contains(dir, archivedTopic) || strings.Contains(dir, "others"))
		})
	})
	unregister := func() int16 {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = 3
		resp, err := req.RequestWith(a.Context(), a.cl)
		if err != nil {
			a.Fatal(err)
		}
		return resp.ErrorCode
	}
	if code := unregister(); code != kerr.InvalidRequest.Code {
		a.Errorf("unregistered while it runs: code %d", code)
	}
	b.Stop()
	if code := unregister(); code != 0 {
		a.Errorf("unregister: code %d", code)
	}
	if code := unregister(); code != kerr.BrokerIDNotRegistered.Code {
		a.Errorf("unregister again: code %d", code)
	}
	a.inSync(1, 2, 4)
	a.whole()
}
