package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
	"firn/e2e/minio"
)

// TestRoundTrip sends real text through every tier: produced by kcat and
// franz-go, archived, evicted, and read back from 0 by kcat, franz-go and
// Kafka's Java client, equal byte for byte.
func TestRoundTrip(t *testing.T) {
	for _, store := range []string{"filestore", "s3", "minio"} {
		t.Run(store, func(t *testing.T) { roundTrip(t, store) })
	}
}

// archiveOn returns the --set pairs and the environment that put a broker's
// archive on a store; filestore is the embedded default.
func archiveOn(t *testing.T, store string) (set, env []string) {
	if store == "filestore" {
		return nil, nil
	}
	client := map[string]string{"s3": "aws", "minio": "minio"}[store]
	endpoint, key, secret := minio.Start(t)
	url := fmt.Sprintf("archive.url=s3://events/year?endpoint=%s&client=%s&create=true", endpoint, client)
	return []string{url}, []string{"AWS_ACCESS_KEY_ID=" + key, "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_REGION=us-east-1"}
}

func roundTrip(t *testing.T, store string) {
	kcat := harness.Kcat(t)
	set, env := archiveOn(t, store)
	f := harness.Start(t, harness.Options{Env: env, Set: append(set,
		"log.retention.check.interval.ms=500", "remote.log.manager.task.interval.ms=500",
		"archive.upload.max.interval.ms=86400000", "archive.upload.small.max.interval.ms=86400000", "log.segment.delete.delay.ms=0")})
	const topic = "source"
	createTopic(t, f.Addr, topic, 4, map[string]string{"segment.bytes": "8388608", "local.retention.ms": "1", "retention.ms": "-1"})

	want := newDigests()
	produceCorpus(t, kcat, f.Addr, topic, want)
	if want.bytes < 150<<20 {
		t.Fatalf("the corpus has only %d bytes", want.bytes)
	}
	waitEvicted(t, f.Addr, topic)
	t.Logf("%d MB, %d keys in the archive", want.bytes>>20, len(want.sums))

	lines := want.lines()
	t.Run("franz-go", func(t *testing.T) { sameLines(t, "franz-go", readKgo(t, f.Addr, topic).lines(), lines) })
	t.Run("kcat", func(t *testing.T) { sameLines(t, "kcat", readKcat(t, kcat, f.Addr, topic).lines(), lines) })
	t.Run("java", func(t *testing.T) {
		o := harness.JavaClass(t, 3*time.Minute, "ReadAll", f.Addr, topic)
		if o.Err != nil {
			t.Fatalf("%v\n%s", o.Err, o.Stderr)
		}
		sameLines(t, "Java's client", strings.Split(strings.TrimSuffix(o.Stdout, "\n"), "\n"), lines)
	})
	o := harness.RunEnv(t, 2*time.Minute, env, harness.Binary(t), "archive", "verify", topic, "--archive", archiveURL(f, set))
	if o.Err != nil {
		t.Errorf("firn archive verify: %v\n%s%s", o.Err, o.Stdout, o.Stderr)
	}
	f.Stop()
}

// archiveURL is the archive of a broker started with set.
func archiveURL(f *harness.Firn, set []string) string {
	for _, s := range set {
		if u, ok := strings.CutPrefix(s, "archive.url="); ok {
			return u
		}
	}
	return "file://" + filepath.Join(f.Data, "archive")
}

// newClient is a client of the broker at addr, for the caller to close.
func newClient(t testing.TB, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// newAdmin is the same, for what kadm asks.
func newAdmin(t testing.TB, addr string) *kadm.Client {
	t.Helper()
	return kadm.NewClient(newClient(t, addr))
}

func createTopic(t testing.TB, addr, topic string, partitions int32, configs map[string]string) {
	t.Helper()
	cl := newAdmin(t, addr)
	defer cl.Close()
	cs := map[string]*string{}
	for k, v := range configs {
		cs[k] = &v
	}
	r, err := cl.CreateTopic(t.Context(), partitions, 1, cs, topic)
	if err != nil || r.Err != nil {
		t.Fatalf("create %s: %v %v %s", topic, err, r.Err, r.ErrMessage)
	}
}

// produceCorpus sends one round of the corpus by kcat and one by franz-go.
func produceCorpus(t testing.TB, kcat, addr, topic string, want *digests) {
	t.Helper()
	cmd := exec.Command(kcat, "-P", "-b", addr, "-t", topic, "-K", `\x01`, "-D", `\x02`, "-X", "acks=all", "-X", "linger.ms=5")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(in, 1<<20)
	cl := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(5*time.Millisecond))
	defer cl.Close()
	failed := make(chan error, 1)
	corpus(t, 2, func(p piece) bool {
		want.add(p.key, p.value)
		if strings.HasPrefix(p.key, "0/") {
			fmt.Fprintf(w, "%s%c%s%c", p.key, keySep, p.value, recordSep)
			return true
		}
		cl.Produce(t.Context(), &kgo.Record{Key: []byte(p.key), Value: p.value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
		return true
	})
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		t.Fatalf("franz-go: %v", err)
	default:
	}
	if err := w.Flush(); err != nil {
		t.Fatalf("kcat: %v\n%s", err, errs.String())
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("kcat: %v\n%s", err, errs.String())
	}
}

// waitEvicted waits until all but the active segment of every partition is
// archived and gone from the disk.
func waitEvicted(t testing.TB, addr, topic string) {
	t.Helper()
	a := newAdmin(t, addr)
	defer a.Close()
	var last string
	harness.Eventually(t, 2*time.Minute, "the archive holds all but the active segments, and only it", func() bool {
		local, err1 := a.ListLocalLogStartOffsets(t.Context(), topic)
		remote, err2 := a.ListLatestRemoteOffsets(t.Context(), topic)
		end, err3 := a.ListEndOffsets(t.Context(), topic)
		if err1 != nil || err2 != nil || err3 != nil {
			return false
		}
		ok := true
		var now strings.Builder
		end.Each(func(o kadm.ListedOffset) {
			l, _ := local.Lookup(topic, o.Partition)
			r, _ := remote.Lookup(topic, o.Partition)
			fmt.Fprintf(&now, " p%d: archived %d, local from %d, end %d;", o.Partition, r.Offset+1, l.Offset, o.Offset)
			// An active segment of 8 MiB holds fewer than 8 000 pieces.
			ok = ok && l.Offset == r.Offset+1 && o.Offset-l.Offset < 8000 && l.Offset > 0
		})
		last = now.String()
		return ok
	}, func() string { return last })
}

// readKgo reads a topic from 0 to its end with franz-go.
func readKgo(t testing.TB, addr, topic string) *digests {
	t.Helper()
	cl := newAdmin(t, addr)
	defer cl.Close()
	ends, err := cl.ListEndOffsets(t.Context(), topic)
	if err != nil || ends.Error() != nil {
		t.Fatal(err, ends.Error())
	}
	left := map[int32]int64{}
	offsets := map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
			offsets[o.Partition] = kgo.NewOffset().At(0)
		}
	})
	rd := newClient(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.FetchMaxPartitionBytes(4<<20), kgo.KeepRetryableFetchErrors(), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer rd.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	got := newDigests()
	next := map[int32]int64{}
	for len(left) > 0 {
		fs := rd.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("franz-go stands still; still to read: %v, at %v", left, next)
		}
		if errs := fs.Errors(); len(errs) > 0 {
			t.Fatalf("franz-go: %v", errs[0].Err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset != next[r.Partition] {
				t.Fatalf("partition %d: offset %d after %d", r.Partition, r.Offset, next[r.Partition]-1)
			}
			next[r.Partition]++
			got.add(string(r.Key), r.Value)
			if next[r.Partition] >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return got
}

// readKcat reads a topic from 0 to its end with kcat.
func readKcat(t testing.TB, kcat, addr, topic string) *digests {
	t.Helper()
	cmd := exec.Command(kcat, "-C", "-b", addr, "-t", topic, "-o", "beginning", "-e", "-q", "-u",
		"-f", `{"p":%p,"k":%K,"v":%S}\n%k%s`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	got := newDigests()
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		head, err := r.ReadBytes('\n')
		if err == io.EOF && len(head) == 0 {
			break
		}
		var h struct{ P, K, V int }
		if err != nil || json.Unmarshal(head, &h) != nil {
			t.Fatalf("kcat printed %q: %v", head, err)
		}
		b := make([]byte, h.K+h.V)
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatalf("kcat: %v", err)
		}
		got.add(string(b[:h.K]), b[h.K:])
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("kcat: %v\n%s", err, errs.String())
	}
	return got
}
