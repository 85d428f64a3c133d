package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	miniogo "github.com/minio/minio-go/v7"
	miniocreds "github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
	"firn/e2e/minio"
	"firn/e2e/storefault"
)

// storeFaults are the faults, and what a cold read may answer besides nothing
// while they last: never OFFSET_OUT_OF_RANGE, never other bytes (T5, T7).
func storeFaults() []struct {
	fault storefault.Fault
	codes []*kerr.Error
} {
	wait := []*kerr.Error{kerr.KafkaStorageError}
	lost := []*kerr.Error{kerr.KafkaStorageError, kerr.CorruptMessage}
	return []struct {
		fault storefault.Fault
		codes []*kerr.Error
	}{
		{storefault.Down, wait}, {storefault.BlackHole, wait}, {storefault.Slow, nil}, {storefault.Unavailable, wait},
		{storefault.ShortReply, wait}, {storefault.Corrupted, lost}, {storefault.Missing, lost}, {storefault.MissingOnce, nil},
	}
}

// faultTime is how long a fault lasts, or until it was met.
const faultTime = 2 * time.Second

// TestStoreFaults breaks the store under reads of the archive, while other
// clients write and read the young part of another topic.
func TestStoreFaults(t *testing.T) {
	for _, client := range []string{"minio", "aws"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			s := startFaultyStore(t, client)
			var topics []*load // one each: what was read once is in the cache
			for i := range len(storeFaults()) + 1 {
				topics = append(topics, s.fill(fmt.Sprintf("cold-%d", i)))
			}
			for _, l := range topics {
				(&victim{t: t, Firn: s.Firn}).waitArchived(l.topic)
			}
			hot := startHot(t, s.Addr)
			for i, f := range storeFaults() {
				t.Run(strings.ReplaceAll(string(f.fault), " ", "-"), func(t *testing.T) {
					s.t = t
					s.during(topics[i], f.fault, f.codes)
				})
			}
			s.t = t
			hot.finish()
			t.Logf("slowest write to the young part %v, read %v", hot.slowest("write"), hot.slowest("read"))
			t.Run("lost", func(t *testing.T) { s.t = t; s.lose(topics[len(topics)-1]) })
		})
	}
}

// faultyStore is a broker whose MinIO is behind a proxy that fails.
type faultyStore struct {
	t *testing.T
	*harness.Firn
	proxy *storefault.Proxy
	// bucket is the store without the proxy.
	bucket *miniogo.Client
}

func startFaultyStore(t *testing.T, client string) *faultyStore {
	endpoint, key, secret := minio.Start(t)
	s := &faultyStore{t: t, proxy: startFaultProxy(t, endpoint)}
	env := []string{"AWS_ACCESS_KEY_ID=" + key, "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_REGION=us-east-1"}
	url := fmt.Sprintf("archive.url=s3://%s/year?endpoint=%s&client=%s&create=true", faultyBucket, s.proxy.URL, client)
	var err error
	s.bucket, err = miniogo.New(strings.TrimPrefix(endpoint, "http://"), &miniogo.Options{Creds: miniocreds.NewStaticV4(key, secret, "")})
	if err != nil {
		t.Fatal(err)
	}
	s.Firn = harness.Start(t, harness.Options{Data: ramDir(t), Env: env, Set: append(restless(),
		url, "archive.cache.memory.bytes=16777216", "archive.cache.disk.bytes=0",
		"remote.fetch.max.wait.ms=500")})
	return s
}

const faultyBucket = "events"

// fill makes a topic of one partition that goes into the archive and off the disk.
func (s *faultyStore) fill(topic string) *load {
	s.t.Helper()
	createTopic(s.t, s.Addr, topic, 1, map[string]string{"segment.bytes": "65536", "local.retention.ms": "1", "retention.ms": "-1"})
	l := startLoad(s.t, s.Addr, topic, loadShape{producers: 1, partitions: 1, limit: 1500, burst: 100, pause: time.Millisecond})
	l.more(1500)
	l.finish()
	return l
}

// during reads a topic from the archive through a fault and past its end.
func (s *faultyStore) during(l *load, fault storefault.Fault, allowed []*kerr.Error) {
	s.proxy.Set(fault)
	began := time.Now()
	var healing sync.WaitGroup
	defer healing.Wait()
	healing.Go(func() {
		time.Sleep(faultTime)
		for s.proxy.Hits() == 0 && time.Since(began) < 2*time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		s.t.Logf("%s: %d requests met it", fault, s.proxy.Hits())
		if s.proxy.Hits() == 0 {
			s.t.Errorf("%s: no request met it", fault)
		}
		s.proxy.Set(storefault.Healthy)
	})
	s.lookUp(l)
	met := s.readThrough(l)
	s.t.Logf("%s: read in %v; errors %v", fault, time.Since(began).Round(time.Millisecond), met)
	for code := range met {
		if !slices.ContainsFunc(allowed, func(e *kerr.Error) bool { return e.Message == code }) {
			s.t.Errorf("%s: a cold read got %s", fault, code)
		}
	}
	healing.Wait() // slow ones are done before the fault is
	end, _ := hotOffsets(s.t, s.Addr)
	harness.Eventually(s.t, 30*time.Second, "uploads catch up", func() bool {
		_, archived := hotOffsets(s.t, s.Addr)
		return archived >= end
	})
}

// lookUp asks for offsets: what needs no store is answered as ever, a time that
// lies in the archive rightly or by KAFKA_STORAGE_ERROR, if in time.
func (s *faultyStore) lookUp(l *load) {
	s.t.Helper()
	a := newAdmin(s.t, s.Addr)
	defer a.Close()
	starts, err1 := a.ListStartOffsets(s.t.Context(), l.topic)
	ends, err2 := a.ListEndOffsets(s.t.Context(), l.topic)
	start, _ := starts.Lookup(l.topic, 0)
	end, _ := ends.Lookup(l.topic, 0)
	if err := errors.Join(err1, err2, start.Err, end.Err); err != nil || start.Offset != 0 || end.Offset != l.acks.Load() {
		s.t.Errorf("from %d to %d, %v; want 0 and %d", start.Offset, end.Offset, err, l.acks.Load())
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), faultTime/2)
	defer cancel()
	r, err := a.ListOffsetsAfterMilli(ctx, 1, l.topic)
	first, _ := r.Lookup(l.topic, 0)
	switch err = errors.Join(err, first.Err); {
	case err == nil && first.Offset == 0, errors.Is(err, kerr.KafkaStorageError), ctx.Err() != nil:
	default:
		s.t.Errorf("first record after time 1: offset %d, %v", first.Offset, err)
	}
}

// readThrough reads all of l's records, whatever errors come in between, and
// returns how often each came.
func (s *faultyStore) readThrough(l *load) map[string]int {
	s.t.Helper()
	rd := newClient(s.t, s.Addr, kgo.KeepRetryableFetchErrors(), kgo.FetchMaxWait(300*time.Millisecond),
		kgo.FetchMaxPartitionBytes(200_000),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {0: kgo.NewOffset().At(0)}}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer rd.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), 4*time.Minute)
	defer cancel()
	met := map[string]int{}
	for next := int64(0); next < l.acks.Load(); {
		fs := rd.PollFetches(ctx)
		if ctx.Err() != nil {
			s.t.Fatalf("the read stands still at %d; errors %v", next, met)
		}
		fs.EachError(func(_ string, _ int32, err error) {
			code := err.Error()
			if e := (*kerr.Error)(nil); errors.As(err, &e) {
				code = e.Message
			}
			met[code]++
			time.Sleep(20 * time.Millisecond)
		})
		fs.EachRecord(func(r *kgo.Record) {
			got := strings.TrimRight(string(r.Value), "x")
			if want := l.mu.acked[place{0, r.Offset}]; r.Offset != next || got != want {
				s.t.Fatalf("offset %d holds %q, want %d with %q", r.Offset, got, next, want)
			}
			next++
		})
	}
	return met
}

// lose deletes an object for good: reads up to it go on, there they get
// CORRUPT_MESSAGE, a counter and a line of the log tell (T7).
func (s *faultyStore) lose(l *load) {
	var keys []string
	for o := range s.bucket.ListObjects(s.t.Context(), faultyBucket, miniogo.ListObjectsOptions{Prefix: "year/" + l.topic + "~", Recursive: true}) {
		if strings.HasSuffix(o.Key, ".log") {
			keys = append(keys, o.Key)
		}
	}
	if len(keys) < 5 {
		s.t.Fatalf("only %v", keys)
	}
	slices.Sort(keys)
	key := keys[len(keys)/2]
	name := key[strings.LastIndexByte(key, '/')+1:]
	offset, err := strconv.ParseInt(strings.TrimLeft(name[:20], "0"), 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.bucket.RemoveObject(s.t.Context(), faultyBucket, key, miniogo.RemoveObjectOptions{}); err != nil {
		s.t.Fatal(err)
	}
	before := metric(s.t, s.Firn, "firn_tiering_lost_reads_total")

	rd := newClient(s.t, s.Addr, kgo.KeepRetryableFetchErrors(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {0: kgo.NewOffset().At(0)}}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer rd.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	var next int64
	var met error
	for met == nil {
		fs := rd.PollFetches(ctx)
		if ctx.Err() != nil {
			s.t.Fatalf("no error after offset %d", next)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if got, want := strings.TrimRight(string(r.Value), "x"), l.mu.acked[place{0, r.Offset}]; r.Offset != next || got != want {
				s.t.Fatalf("offset %d holds %q, want %d with %q", r.Offset, got, next, want)
			}
			next++
		})
		fs.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, kerr.KafkaStorageError) { // it is looked for once more first
				met = err
			}
		})
	}
	if next != offset || !errors.Is(met, kerr.CorruptMessage) {
		s.t.Errorf("at offset %d: %v, want CORRUPT_MESSAGE at %d", next, met, offset)
	}
	if n := metric(s.t, s.Firn, "firn_tiering_lost_reads_total"); n <= before {
		s.t.Errorf("firn_tiering_lost_reads_total went from %v to %v", before, n)
	}
	harness.Eventually(s.t, time.Minute, fmt.Sprintf("the log tells of %s and offset %d", name, offset), func() bool {
		return strings.Contains(s.Log(), name) && strings.Contains(s.Log(), fmt.Sprintf("offset=%d", offset))
	})
}

// metric is a value that the broker shows, 0 if it doesn't.
func metric(t testing.TB, f *harness.Firn, name string) float64 {
	t.Helper()
	_, body := f.Get("/metrics")
	for line := range strings.Lines(body) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			x, err := strconv.ParseFloat(v, 64)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
	}
	return 0
}
