package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"firn/segment/vfs"
)

// topicIDs of a topic, and of the one that has its name next.
var (
	firstID = [16]byte{1, 2, 3} // openLog's
	nextID  = [16]byte{7}
)

// names lists what lies in a directory.
func names(t testing.TB, fsys vfs.FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// lived is a log that has everything which a checkpoint tells of one.
func lived(t testing.TB, d *Dir, o Options) *Log {
	t.Helper()
	l := openLog(t, d, o)
	mustAppend(t, l, records(500, 100, testNow))
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(500)
	if err := errors.Join(l.SetLogStart(t.Context(), 300), d.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	return l
}

func wantUnknown(t testing.TB, fsys vfs.FS, what string) {
	t.Helper()
	for _, name := range []string{recoveryPointFile, highWatermarkFile, logStartFile} {
		if got := string(fileBytes(t, fsys, "/logs/"+name)); got != "0\n0\n" {
			t.Errorf("%s: %s is %q", what, name, got)
		}
	}
}

// A deletion is what makes space: it needs none, though the checkpoints do. What it
// frees is there at once, and the name can be taken again.
func TestDeleteOnAFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	fsys := vfs.Inject(mem, nil)
	d := openDir(t, testConfig(t, fsys))
	l := lived(t, d, Options{})
	r, err := l.Read(ReadRequest{Offset: 300, MaxBytes: 1 << 20, Until: UntilCounted})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Records.Release()
	fsys.SetQuota(0)
	d.Delete(testTP)
	if d.Get(testTP) != nil {
		t.Error("the log is open")
	}
	if b, err := bytesOf(&r.Records); err != nil || len(b) == 0 {
		t.Errorf("who was reading has %d bytes, %v", len(b), err)
	}
	d.tick()
	wantUnknown(t, mem, "with the space that it made")
	if got := dirsOf(t, mem); len(got) != 0 {
		t.Errorf("there is still %q, though the disk is full", got)
	}
	l, err = d.Open(testTP, nextID, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOffsets(t, l, 0, 0)
	mustAppend(t, l, records(2, 10, testNow))
}

// dirsOf lists the partitions' directories, whatever their names.
func dirsOf(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	return slices.DeleteFunc(names(t, fsys, "/logs"), func(n string) bool { return !strings.HasPrefix(n, "topic") })
}

// Where somebody else takes what a deletion frees, it is done later: nothing waits
// for it, but a log that would get the name, and with it the checkpoints. A crash
// meanwhile leaves a directory that tells by its topic id whose they are.
func TestDeleteWhileTheDiskStaysFull(t *testing.T) {
	mem := vfs.NewMem()
	full := false
	fsys := vfs.Inject(mem, func(op vfs.Op) error {
		if full && (op.Kind == vfs.OpCreate || op.Kind == vfs.OpWrite || op.Kind == vfs.OpMkdir) {
			return syscall.ENOSPC
		}
		return nil
	})
	d := openDir(t, testConfig(t, fsys))
	lived(t, d, Options{})
	other := TopicPartition{"other", 0}
	if _, err := d.Open(other, [16]byte{9}, Options{}); err != nil {
		t.Fatal(err)
	}
	full = true
	d.Delete(testTP)
	d.tick()
	if d.Get(testTP) != nil {
		t.Error("the log is open")
	}
	if got := names(t, mem, "/logs/topic-0"); !slices.Equal(got, []string{partitionFile}) {
		t.Errorf("the directory has %q, want the topic id alone", got)
	}
	if _, err := d.Open(testTP, nextID, Options{}); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("its name is taken with the old checkpoints on disk: %v", err)
	}

	for _, keep := range []int{0, 100} {
		crashed := openDir(t, testConfig(t, mem.CrashClone(vfs.CrashOptions{Keep: keep})))
		if missing, err := crashed.Missing(); err != nil || len(missing) != 0 {
			t.Errorf("after a crash %v is taken for lost, %v", missing, err)
		}
		if _, err := crashed.Open(testTP, nextID, Options{}); !errors.Is(err, ErrTopicID) {
			t.Errorf("after a crash the checkpoints are those of another topic: %v", err)
		}
		crashed.Delete(testTP)
		l, err := crashed.Open(testTP, nextID, Options{})
		if err != nil {
			t.Fatal(err)
		}
		wantOffsets(t, l, 0, 0)
	}

	full = false
	d.tick()
	if got := string(fileBytes(t, mem, "/logs/"+recoveryPointFile)); got != "0\n1\nother 0 0\n" {
		t.Errorf("recovery points: %q", got)
	}
	if got := names(t, mem, "/logs"); slices.Contains(got, "topic-0") {
		t.Errorf("the directory is still there: %q", got)
	}
	l, err := d.Open(testTP, nextID, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOffsets(t, l, 0, 0)
}

// TestCrashInADeletion crashes after every call of a life in which a topic is
// deleted and another gets its name, on a disk that has space, none until the
// deletion has made some, and none for a while: the old checkpoints never become
// the new log's, and nothing that was deleted is taken for lost.
func TestCrashInADeletion(t *testing.T) {
	for _, disk := range []string{"space", "full", "stays full"} {
		t.Run(disk, func(t *testing.T) {
			mem := vfs.NewMem()
			taken := false // somebody else has what is freed
			fsys := vfs.Inject(mem, func(op vfs.Op) error {
				if taken && (op.Kind == vfs.OpCreate || op.Kind == vfs.OpWrite) {
					return syscall.ENOSPC
				}
				return nil
			})
			d, err := OpenDir(quiet(fsys))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close(CleanMark{})
			lived(t, d, Options{})
			n, acked := 0, int64(0)
			rng := rand.New(rand.NewPCG(1, 2))
			mem.OnOp(func(op vfs.Op) {
				n++
				for _, keep := range []int{0, 50, 100} {
					if err := startsAnew(mem.CrashClone(vfs.CrashOptions{Keep: keep, Rand: rng}), acked); err != nil {
						t.Errorf("crash after operation %d, %v, with %d %% of the unsynced kept: %v", n, op, keep, err)
					}
				}
			})
			switch disk {
			case "full":
				fsys.SetQuota(0)
			case "stays full":
				taken = true
			}
			d.Delete(testTP)
			d.tick()
			fsys.SetQuota(-1)
			if taken {
				if _, err := d.Open(testTP, nextID, Options{}); err == nil {
					t.Fatal("opened on a full disk")
				}
				taken = false
			}
			l, err := d.Open(testTP, nextID, Options{FlushMessages: 1})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				mustAppend(t, l, records(2, 10, testNow))
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
				acked = l.Offsets().Counted
				if err := d.Checkpoint(); err != nil {
					t.Fatal(err)
				}
			}
			mem.OnOp(nil)
			if n < 20 {
				t.Errorf("only %d operations: the test does not test", n)
			}
		})
	}
}

// startsAnew opens what a crash left, as a broker does to which the metadata says
// that the first topic is deleted: of the next one everything acknowledged is there.
func startsAnew(fsys vfs.FS, acked int64) error {
	d, err := OpenDir(quiet(fsys))
	if err != nil {
		return err
	}
	defer d.Close(CleanMark{})
	if missing, err := d.Missing(); err != nil || len(missing) > 0 {
		return fmt.Errorf("%v is taken for lost, %w", missing, err)
	}
	found, err := d.Partitions()
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.TopicID == firstID {
			d.Delete(f.TopicPartition)
		}
	}
	l, err := d.Open(testTP, nextID, Options{})
	if err != nil {
		return err
	}
	o := l.Offsets()
	if l.Err() != nil || o.LogStart != 0 || o.End < acked || o.End > 6 || o.HighWatermark > o.End {
		return fmt.Errorf("the new log is %+v, %d was acknowledged: %w", o, acked, l.Err())
	}
	_, err = tryReadAll(l, 0)
	return err
}

// A log that isn't ours to delete is kept under another name, without checkpoints
// for who gets the one that it had.
func TestSetAside(t *testing.T) {
	mem := vfs.NewMem()
	d := openDir(t, testConfig(t, mem))
	lived(t, d, Options{})
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, testConfig(t, mem))
	aside, err := d.SetAside(testTP)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Stat(aside + "/" + baseName(0) + logSuffix); err != nil {
		t.Error(err)
	}
	wantUnknown(t, mem, "after it was set aside")
	l, err := d.Open(testTP, nextID, Options{})
	if err != nil || l.Err() != nil {
		t.Fatal(err, l.Err())
	}
	wantOffsets(t, l, 0, 0)
}

// Below the reserve what is deleted goes at once: for it a user deletes. Above it,
// after its delay.
func TestBelowTheReserveWhatIsDeletedGoesAtOnce(t *testing.T) {
	mem := vfs.NewMem()
	fsys := vfs.Inject(mem, nil)
	c := testConfig(t, fsys)
	c.MinFreeBytes = 100_000
	d := openDir(t, c)
	l := openLog(t, d, Options{SegmentBytes: 10_000})
	for range 5 {
		mustAppend(t, l, records(10, 800, testNow))
	}
	l.SetHighWatermark(50)
	drop := func(start int64) {
		t.Helper()
		if err := errors.Join(l.SetLogStart(t.Context(), start), l.Flush()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.DeleteTo(start); err != nil {
			t.Fatal(err)
		}
	}
	deleted := func() (n int) {
		for _, name := range append(names(t, mem, "/logs"), names(t, mem, "/logs/topic-0")...) {
			if strings.HasSuffix(name, deletedSuffix) || strings.HasSuffix(name, deletedDir) {
				n++
			}
		}
		return n
	}
	drop(10)
	d.tick()
	if deleted() == 0 {
		t.Error("what is deleted has gone before its delay was over")
	}
	fsys.SetQuota(80_000)
	d.tick() // finds the disk low, and what was deleted before
	if !d.Space().Low || deleted() != 0 {
		t.Errorf("%+v, %d deleted files are still there", d.Space(), deleted())
	}
	drop(40)
	d.tick()
	if deleted() != 0 {
		t.Error("what is deleted below the reserve is still there")
	}
	if d.Space().Low {
		t.Error("that there is space again is not noticed with it")
	}
}

// Of a disk without a reserve, a write that finds it full tells.
func TestOnAFullDiskWhatIsDeletedGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		fsys := vfs.Inject(mem, nil)
		c := testConfig(t, fsys)
		c.Now = time.Now
		d := openDir(t, c)
		l := openLog(t, d, Options{})
		mustAppend(t, l, records(50, 800, testNow))
		other, err := d.Open(TopicPartition{"other", 0}, [16]byte{9}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		fsys.SetQuota(4000) // enough for checkpoints
		if _, err := other.Append(records(10, 800, testNow), AppendOptions{Now: testNow}); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("append to a full disk: %v", err)
		}
		d.Delete(testTP)
		time.Sleep(2 * chorePeriod)
		synctest.Wait()
		if got := dirsOf(t, mem); len(got) != 0 {
			t.Errorf("there is still %q", got)
		}
		mustAppend(t, other, records(10, 800, testNow))
		if err := d.Close(CleanMark{}); err != nil {
			t.Fatal(err)
		}
	})
}

// A deletion that a stop finds unfinished is finished by the stop, or by the next
// process that is told to delete.
func TestCloseFinishesDeletions(t *testing.T) {
	mem := vfs.NewMem()
	broken := true
	fsys := vfs.Inject(mem, func(op vfs.Op) error {
		if broken && op.Kind == vfs.OpRename && op.Name == "/logs/topic-0" {
			return syscall.EIO
		}
		return nil
	})
	d := openDir(t, testConfig(t, fsys))
	lived(t, d, Options{})
	d.Delete(testTP)
	if _, err := d.Open(testTP, nextID, Options{}); !errors.Is(err, syscall.EIO) {
		t.Errorf("opened in the midst of a deletion: %v", err)
	}
	broken = false
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Stat("/logs/topic-0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
}
