package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"firn/e2e/minio"
	"firn/segment"
	"firn/segment/batch"
	"firn/segment/vfs"
	"firn/tiering"
	"firn/tiering/objstore"
)

// madeArchive archives a few segments of a real log into store, and returns the
// directory of the log.
func madeArchive(t *testing.T, store objstore.Store) (dir string, part tiering.Partition) {
	t.Helper()
	ctx := t.Context()
	part = tiering.Partition{Topic: "events", ID: tiering.TopicID{1, 2, 3}, Num: 0}
	data := t.TempDir()
	logs, err := segment.OpenDir(segment.DirConfig{Path: data, FS: vfs.OS(), MinFreeBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { logs.Close(segment.CleanMark{}) })
	tp := segment.TopicPartition{Topic: part.Topic, Partition: part.Num}
	local, err := logs.Open(tp, part.ID, segment.Options{Archived: true, SegmentBytes: 3 << 20})
	if err != nil {
		t.Fatal(err)
	}
	id, err := tiering.CheckStart(ctx, store, tiering.Start{ClusterID: "c", NewMetadata: true, NewID: func() string { return "first" }})
	if err != nil {
		t.Fatal(err)
	}
	pointers := tiering.NewMemPointers()
	pointers.Elect(part, 3)
	archive := tiering.New(tiering.Config{Store: store, Pointers: pointers, Identity: id, Random: rand.Uint64})
	t.Cleanup(archive.Close)
	log, err := archive.Open(ctx, local, tiering.PartitionConfig{
		Partition: part, Policy: tiering.Policy{Enabled: true, RetentionMs: -1, RetentionBytes: -1, LocalRetentionMs: -1, LocalRetentionBytes: -1},
		Topic: func() tiering.TopicInfo { return tiering.TopicInfo{Name: part.Topic, ID: part.ID, Partitions: 1} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Lead(ctx, 3); err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 10_000)
	for i := range 2000 {
		rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(value)
		b := batch.NewBuilder(batch.Spec{})
		b.Add(time.Now().UnixMilli(), fmt.Appendf(nil, "key-%d", i), value)
		made, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Append(made, segment.AppendOptions{Epoch: 3, Now: time.Now().UnixMilli()}); err != nil {
			t.Fatal(err)
		}
	}
	log.SetHighWatermark(log.Offsets().End)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		more, err := log.Step(ctx, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if ptr, _ := pointers.LoadPointer(ctx, part); !more && ptr.ArchivedEnd >= 1500 {
			return filepath.Join(data, tp.String()), part
		}
		if time.Now().After(deadline) {
			t.Fatal("the archive does not come up")
		}
		if !more {
			time.Sleep(10 * time.Millisecond) // sealed files are synced in the background
		}
	}
}

// TestArchiveToolsOnMinIO moves an archive from a directory to MinIO, through
// each client, and does there what `firn archive` offers.
func TestArchiveToolsOnMinIO(t *testing.T) {
	endpoint, _, _ := minio.Start(t)
	credentials(t)
	from, err := tiering.OpenStore(t.Context(), "file://"+t.TempDir(), tiering.OpenOptions{MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	logDir, part := madeArchive(t, from)
	for _, client := range clients {
		t.Run(client, func(t *testing.T) {
			ctx := t.Context()
			to, err := tiering.OpenStore(ctx, "s3://tools/"+client+"?create=true&endpoint="+endpoint+"&client="+client, tiering.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			copied, err := tiering.Copy(ctx, from, to, tiering.CopyOptions{})
			if err != nil || len(copied.Problems) > 0 || copied.Bytes < 15<<20 {
				t.Fatalf("Copy = %+v, %v", copied, err)
			}
			b := tiering.NewBucket(to)
			v, err := b.Verify(ctx, tiering.VerifyOptions{})
			if err != nil || len(v.Problems) > 0 || v.Segments < 5 || v.Records < 1500 {
				t.Fatalf("Verify = %+v, %v", v, err)
			}
			dir := t.TempDir()
			x, err := b.Extract(ctx, tiering.ExtractOptions{Topic: part.Topic, Dir: dir})
			if err != nil || x.Segments != v.Segments {
				t.Fatalf("Extract = %+v, %v", x, err)
			}
			sameFiles(t, filepath.Join(dir, part.String()), logDir)

			plan, err := tiering.Restore(ctx, to, tiering.RestoreOptions{ArchiveID: "second", Random: rand.Uint64})
			if err != nil || len(plan.Topics) != 1 || plan.Topics[0].Partitions[0].Pointer.ArchivedEnd < 1500 || plan.Now.ArchiveID != "second" {
				t.Fatalf("Restore = %+v, %v", plan, err)
			}
			if id, err := b.Identity(ctx); err != nil || id != plan.Now {
				t.Errorf("firn.json = %+v, %v, want %+v", id, err, plan.Now)
			}
		})
	}
}

// sameFiles compares what was extracted with what the log has on disk.
func sameFiles(t *testing.T, extracted, local string) {
	t.Helper()
	names, err := os.ReadDir(extracted)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		got, err := os.ReadFile(filepath.Join(extracted, n.Name()))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(local, n.Name()))
		if os.IsNotExist(err) && strings.HasSuffix(n.Name(), ".snapshot") {
			continue // the log keeps those of its newest segments
		}
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %d bytes extracted, %d on disk, or others (%v)", n.Name(), len(got), len(want), err)
		}
	}
}
