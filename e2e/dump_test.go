package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
)

// TestKafkaReadsOurSegments has Kafka's own reader check every file of a log
// that two leader epochs wrote in every codec with timestamps out of order: as it
// lies on the disk, and as `firn archive extract` brings it back, which must be
// the same bytes.
func TestKafkaReadsOurSegments(t *testing.T) {
	f := harness.Start(t, harness.Options{Set: []string{"remote.log.manager.task.interval.ms=200",
		"archive.upload.max.interval.ms=86400000"}}) // segments are sealed when they are full
	createTopic(t, f.Addr, "events", 1, map[string]string{"segment.bytes": "131072", "local.retention.ms": "-2", "segment.ms": "9223372036854775807"})
	produceMixed(t, f.Addr, "events", 1)
	f.Stop()
	f.Restart()
	produceMixed(t, f.Addr, "events", 2)
	adm := kadmClient(t, f.Addr)
	harness.Eventually(t, 30*time.Second, "all but the active segment is archived", func() bool {
		remote, err := adm.ListLatestRemoteOffsets(t.Context(), "events")
		last, ok := remote.Lookup("events", 0)
		return err == nil && ok && last.Offset+1 == activeBase(t, filepath.Join(f.Data, "logs", "events-0"))
	})
	f.Stop()

	local, extracted := filepath.Join(f.Data, "logs", "events-0"), t.TempDir()
	harness.Must(t, time.Minute, "", harness.Binary(t), "archive", "extract", "events", "--to", extracted, "--archive", "file://"+filepath.Join(f.Data, "archive"))
	extracted = filepath.Join(extracted, "events-0")
	sameFiles(t, extracted, local)

	box := harness.NewToolbox(t)
	for name, dir := range map[string]string{"on disk": local, "extracted": extracted} {
		t.Run(name, func(t *testing.T) { dumpDir(t, box, dir) })
	}
}

// activeBase is the base offset of the last segment in a log's directory.
func activeBase(t *testing.T, dir string) (base int64) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no segments in %s: %v", dir, err)
	}
	if _, err := fmt.Sscanf(filepath.Base(slices.Max(logs)), "%d.log", &base); err != nil {
		t.Fatal(err)
	}
	return base
}

// produceMixed appends 5 × 60 batches of records in every codec, with timestamps
// that rise by minutes and jump by hours.
func produceMixed(t *testing.T, addr, topic string, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	at := time.Date(2026, time.Month(seed), 1, 0, 0, 0, 0, time.UTC)
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec), kgo.MaxBufferedRecords(10))
		for range 60 {
			var records []*kgo.Record
			for range 1 + rng.IntN(10) {
				var value []byte
				for range 50 + rng.IntN(100) {
					value = fmt.Appendf(value, "word%05x ", rng.IntN(1<<19))
				}
				at = at.Add(time.Minute)
				records = append(records, &kgo.Record{Value: value, Timestamp: at.Add(time.Duration(rng.Int64N(int64(6 * time.Hour))))})
			}
			if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
	}
}

// beforeFirst is what DumpLogSegments says of every segment that doesn't begin at
// offset 0, Kafka's own too.
var beforeFirst = regexp.MustCompile(`Non-consecutive offsets in .*\n  -1 is followed by \d+\n`)

// dumpDir runs DumpLogSegments over a log's files: batches and records one by
// one, indexes for sanity and against the log.
func dumpDir(t *testing.T, box *harness.Toolbox, dir string) {
	files := map[string][]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		files[ext] = append(files[ext], filepath.Join(dir, e.Name()))
	}
	logs, indexes := files[".log"], append(files[".index"], files[".timeindex"]...)
	if len(logs) < 5 || len(files[".index"]) != len(logs) || len(files[".timeindex"]) != len(logs) {
		t.Fatalf("%s has %d logs, %d indexes, %d time indexes", dir, len(logs), len(files[".index"]), len(files[".timeindex"]))
	}
	dump := func(files []string, flags ...string) string {
		t.Helper()
		o := box.Run("", "DumpLogSegments", append([]string{"--files", strings.Join(files, ",")}, flags...)...)
		if o.Err != nil {
			t.Fatalf("%v\n%.4000s%.4000s", o.Err, o.Stdout, o.Stderr)
		}
		out := o.Stdout + beforeFirst.ReplaceAllString(o.Stderr, "") // mismatches are listed on stderr
		for _, bad := range []string{"Mismatch", "mismatch", "out of order", "invalid", "Invalid", "Exception", "Non-consecutive", "not found in", "isvalid: false"} {
			if strings.Contains(out, bad) {
				t.Errorf("%v of %s: %s\n%.4000s", flags, dir, bad, out[strings.Index(out, bad):])
			}
		}
		return out
	}
	out := dump(logs, "--deep-iteration")
	for _, want := range []string{"compresscodec: none", "compresscodec: gzip", "compresscodec: snappy", "compresscodec: lz4", "compresscodec: zstd",
		"partitionLeaderEpoch: 0 ", "partitionLeaderEpoch: 1 "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the dump of %s", want, dir)
		}
	}
	if n := strings.Count(out, "\n| offset: "); n < 2000 {
		t.Errorf("%d records in the dump of %s", n, dir)
	}
	out = dump(indexes, "--index-sanity-check")
	if n := strings.Count(out, "passed sanity check."); n != len(indexes) {
		t.Errorf("%d of %d indexes of %s pass their check:\n%.4000s", n, len(indexes), dir, out)
	}
	dump(indexes, "--verify-index-only")
	out = dump(files[".index"])
	if n := strings.Count(out, "\noffset: "); n < 2*len(logs) {
		t.Errorf("%d entries in %d indexes of %s", n, len(logs), dir)
	}
	out = dump(files[".snapshot"])
	if !strings.Contains(out, "producerId: ") {
		t.Errorf("no producers in the snapshots of %s:\n%.2000s", dir, out)
	}
}
