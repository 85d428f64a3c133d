package e2e

import (
	"strings"
	"testing"
	"time"

	"firn/e2e/harness"
	"firn/e2e/minio"
)

// TestConsumeWaitsForTheStore: while the store is away, `firn consume` waits and
// says so; it never takes an error for the end of the topic, and goes on when the
// store is back.
func TestConsumeWaitsForTheStore(t *testing.T) {
	s := minio.New(t)
	f := harness.Start(t, harness.Options{
		Env: []string{"AWS_ACCESS_KEY_ID=" + minio.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.Secret, "AWS_REGION=us-east-1"},
		Set: []string{"archive.url=s3://events?endpoint=" + s.Endpoint + "&create=true", "archive.cache.disk.bytes=0",
			"archive.upload.max.interval.ms=1000", "archive.upload.min.bytes=1", "remote.log.manager.task.interval.ms=300",
			"log.segment.delete.delay.ms=0"},
	})
	createTopic(t, f.Addr, "k", 1, map[string]string{"segment.bytes": "1048576", "local.retention.ms": "1"})
	bin := harness.Binary(t)
	harness.Must(t, time.Minute, strings.Repeat("a line of some length, so that segments fill\n", 100_000), bin, "produce", "k", "-b", f.Addr)
	waitArchived(t, f, "k", 50_000)
	f.Stop() // nothing of the archive is left in memory
	f.Restart()
	s.Kill()
	consume := terminal{t, t.TempDir(), nil}.command(bin + " consume k -b " + f.Addr + " > out; wc -l out")
	says := func(words string) {
		t.Helper()
		harness.Eventually(t, time.Minute, "consume says "+words, func() bool { return strings.Contains(consume.String(), words) }, consume.String)
	}
	says("waiting for k-0")
	if strings.Contains(consume.String(), " out") {
		t.Fatalf("consume ended as if it had read everything: %s", consume)
	}
	s.Restart()
	says("100000 out")
}
