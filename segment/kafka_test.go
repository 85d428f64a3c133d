package segment

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"firn/segment/vfs"
)

// TestSameFilesAsKafka recovers the .log files in testdata/kafka: three segments
// with timestamps out of order, an idempotent producer, transactions and epochs.
// Everything beside them there was made by Kafka 4.3.1, recovering the same logs
// (index.interval.bytes=300): ours must be the same, byte for byte.
func TestSameFilesAsKafka(t *testing.T) {
	files, err := filepath.Glob("testdata/kafka/*")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("/logs/topic-0", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, logSuffix) || strings.HasSuffix(name, partitionFile) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			setFile(t, fsys, "/logs/topic-0/"+filepath.Base(name), b)
		}
	}
	d := openDir(t, testConfig(t, fsys))
	l, err := d.Open(testTP, [16]byte{1}, Options{IndexIntervalBytes: 300})
	if err != nil {
		t.Fatal(err)
	}
	wantOffsets(t, l, 0, 108)
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(name)
		got := fileBytes(t, fsys, "/logs/topic-0/"+base)
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from Kafka's:\n%x\n%x", base, got, want)
		}
	}
}
