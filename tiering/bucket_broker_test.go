package tiering

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"firn/segment/vfs"
	"firn/tiering/objstore"
)

// describe writes the topic.json that the broker's topic would have.
func (w *world) describe() {
	w.t.Helper()
	err := putTopic(w.t.Context(), w.bucket, TopicInfo{Name: testPart.Topic, ID: testPart.ID, Partitions: testPart.Num + 1})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestRestoreAfterACrashAnywhere kills a broker at each operation of its store,
// takes its disk and its metadata away, and makes a new broker of the bucket:
// it has every record that the pointer had named, once, goes on from there, and
// what was left over stays until it is released.
func TestRestoreAfterACrashAnywhere(t *testing.T) {
	for n := 0; ; n++ {
		w := newWorld(t)
		w.describe()
		b := w.start(newDisk(), w.defaults())
		b.lead(7)
		var ops atomic.Int64
		b.store.Set(func(objstore.Op) objstore.Fault {
			if b.dead.Load() {
				return objstore.Fault{Before: errCrashed}
			}
			if ops.Add(1) == int64(n+1) {
				b.dead.Store(true)
				return objstore.Fault{Before: errCrashed}
			}
			return objstore.Fault{}
		})
		b.life()
		done := ops.Load() <= int64(n)
		b.crash()
		lost, _ := w.pointers.LoadPointer(t.Context(), testPart)

		plan, err := Restore(t.Context(), w.bucket, RestoreOptions{ArchiveID: "restored", Random: w.ids.Uint64})
		if err != nil {
			t.Fatalf("operation %d: %v", n, err)
		}
		ptr := plan.Topics[0].Partitions[testPart.Num].Pointer
		if lost.Exists() && (ptr.ArchivedEnd < lost.ArchivedEnd || ptr.LogStart > lost.LogStart && ptr.LogStart > 0 && lost.ArchivedEnd > ptr.ArchivedEnd) {
			t.Fatalf("operation %d: restored %+v, lost was %+v", n, ptr, lost)
		}
		if ptr.LastEpoch > 7 || plan.Epoch <= 7 || plan.Epoch < epochGap {
			t.Fatalf("operation %d: epoch %d, pointer %+v", n, plan.Epoch, ptr)
		}
		kept := w.bucket.Keys()

		w.pointers, w.identity = NewMemPointers(), plan.Now
		w.pointers.Elect(testPart, plan.Epoch)
		if ptr.ManifestKey != "" {
			if _, err := w.pointers.SwapPointer(t.Context(), testPart, plan.Epoch, ptr); err != nil {
				t.Fatal(err)
			}
		}
		w.model = w.model[:ptr.ArchivedEnd]
		w.checkArchived(int(ptr.ArchivedEnd))
		again := w.start(newDisk(), w.defaults())
		again.lead(plan.Epoch + 1)
		again.append(80)
		again.mustUpload()
		again.verify()
		if _, err := again.log.Sweep(t.Context(), w.now()); err != nil {
			t.Fatal(err)
		}
		for _, key := range kept {
			if !slices.Contains(w.bucket.Keys(), key) {
				t.Fatalf("operation %d: the sweep took %s, which the restore was to keep", n, key)
			}
		}
		if r, err := NewBucket(w.bucket).Verify(t.Context(), VerifyOptions{}); err != nil || len(r.Problems) > 0 {
			t.Fatalf("operation %d: %v, %v", n, r.Problems, err)
		}
		if err := ReleaseKept(t.Context(), w.bucket); err != nil {
			t.Fatal(err)
		}
		again.sweepClean()
		again.stop()
		if done {
			t.Logf("%d operations", n)
			if n < 40 {
				t.Errorf("only %d operations", n)
			}
			break
		}
	}
}

// TestExtractEqualsWhatTheLogSealed compares extracted files with the local ones.
func TestExtractEqualsWhatTheLogSealed(t *testing.T) {
	w := newWorld(t)
	w.describe()
	d := newDisk()
	b := w.start(d, w.defaults())
	b.lead(1)
	b.append(200)
	b.mustUpload()
	dir := t.TempDir()
	r, err := NewBucket(w.bucket).Extract(t.Context(), ExtractOptions{Topic: testPart.Topic, Dir: dir})
	if err != nil || r.Segments < 5 {
		t.Fatalf("Extract = %+v, %v", r, err)
	}
	compared := 0
	for _, f := range filesIn(&bucketTest{T: t}, dir) {
		name := filepath.Base(f)
		local, err := readVFS(d.fs, "/data/"+f)
		if err != nil {
			if strings.HasSuffix(name, ".snapshot") {
				continue // the log keeps those of its newest segments
			}
			t.Fatalf("%s: %v", f, err)
		}
		extracted, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		if string(extracted) != string(local) {
			t.Errorf("%s: %d bytes extracted, %d sealed, or others", f, len(extracted), len(local))
		}
		compared++
	}
	if compared < 3*r.Segments+1 {
		t.Errorf("only %d files compared for %d segments", compared, r.Segments)
	}
}

func readVFS(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if n > 0 {
		_, err = f.ReadAt(b, 0)
	}
	return b, err
}
