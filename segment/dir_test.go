package segment

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"firn/segment/vfs"
)

func TestDirIsLocked(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	if _, err := OpenDir(testConfig(t, fsys)); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("second OpenDir: %v", err)
	}
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	openDir(t, testConfig(t, fsys))
}

func TestCleanMarkIsConsumed(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	want := CleanMark{BrokerEpoch: 12, StorageID: "s", Nonce: "n"}
	if err := d.Close(want); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, testConfig(t, fsys))
	if m, clean := d.Clean(); !clean || m != want {
		t.Fatalf("%+v, %v", m, clean)
	}
	d = openDir(t, testConfig(t, fsys.CrashClone(vfs.CrashOptions{})))
	if _, clean := d.Clean(); clean {
		t.Fatal("a mark is good twice")
	}
}

func TestMetaProperties(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	if m := d.Meta(); m.BrokerID != -1 || m.DirectoryID == "" {
		t.Fatalf("%+v", m)
	}
	want := Meta{BrokerID: 3, ClusterID: "abc"}
	if err := d.SetMeta(want); err != nil {
		t.Fatal(err)
	}
	want.DirectoryID = d.Meta().DirectoryID
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	if got := openDir(t, testConfig(t, fsys)).Meta(); got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
	// As Kafka writes it.
	for text, want := range map[string]Meta{
		"#\n#Mon Nov 30 09:00:00 UTC 2026\nbroker.id=7\nversion=0\ncluster.id=x_Y\n":   {BrokerID: 7, ClusterID: "x_Y"},
		"#\nnode.id=1\nversion=1\ncluster.id=x\ndirectory.id=gC1yzdvHTfC5L2lHlzXyvw\n": {Version: 1, BrokerID: 1, ClusterID: "x", DirectoryID: "gC1yzdvHTfC5L2lHlzXyvw"},
	} {
		if got, err := parseMeta([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"version=2\n", "version=x\n", "broker.id=-3\n"} {
		if _, err := parseMeta([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestPartitionsAndStrays(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	ids := map[TopicPartition][16]byte{{"a", 0}: {1}, {"a", 1}: {1}, {"b-7.x", 3}: {2}}
	for tp, id := range ids {
		if _, err := d.Open(tp, id, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := fsys.MkdirAll("/logs/not_a_partition", 0o755); err != nil {
		t.Fatal(err)
	}
	found, err := d.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	got := map[TopicPartition][16]byte{}
	for _, f := range found {
		got[f.TopicPartition] = f.TopicID
	}
	if !maps.Equal(got, ids) {
		t.Fatalf("%v, want %v", got, ids)
	}
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, testConfig(t, fsys))
	if _, err := d.Open(TopicPartition{"a", 0}, [16]byte{9}, Options{}); !errors.Is(err, ErrTopicID) {
		t.Errorf("another topic's directory: %v", err)
	}
	if _, err := d.Create(TopicPartition{"a", 1}, [16]byte{1}, Options{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create of what is there: %v", err)
	}
	for _, bad := range []string{"", "..", "a/b", "a b", strings.Repeat("x", 250)} {
		if _, err := d.Open(TopicPartition{bad, 0}, [16]byte{}, Options{}); err == nil {
			t.Errorf("topic %q is taken", bad)
		}
	}
}

func TestDeletePartition(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	l := openLog(t, d, Options{FileDeleteDelayMs: 10})
	mustAppend(t, l, records(2, 10, testNow))
	r, err := l.Read(ReadRequest{MaxBytes: 1000, Until: UntilCounted})
	if err != nil {
		t.Fatal(err)
	}
	d.Delete(testTP)
	if _, err := l.Append(records(1, 1, testNow), AppendOptions{Now: testNow}); !errors.Is(err, ErrClosed) {
		t.Errorf("append after Delete: %v", err)
	}
	if _, err := l.Read(ReadRequest{MaxBytes: 1000}); !errors.Is(err, ErrClosed) {
		t.Errorf("read after Delete: %v", err)
	}
	if b, err := bytesOf(&r.Records); err != nil || len(b) == 0 {
		t.Errorf("what was read before: %v", err)
	}
	names := func() (names []string) {
		entries, err := fsys.ReadDir("/logs")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		return names
	}
	if got := names(); len(got) != 1 || !strings.HasPrefix(got[0], "topic-0.") || !strings.HasSuffix(got[0], "-delete") {
		t.Fatalf("%q", got)
	}
	// A new one of the same name is another log.
	l, err = d.Open(testTP, [16]byte{7}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOffsets(t, l, 0, 0)
	d.removeDue(time.UnixMilli(testNow + 10))
	if got := names(); !slices.Equal(got, []string{"topic-0"}) {
		t.Fatalf("%q", got)
	}
}

func TestMissingLogIsTold(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	mustAppend(t, openLog(t, d, Options{}), records(1, 1, testNow))
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Rename("/logs/topic-0", "/elsewhere"); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, testConfig(t, fsys))
	if got, err := d.Missing(); err != nil || !slices.Equal(got, []TopicPartition{testTP}) {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestCheckpointFiles(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	l := openLog(t, d, Options{})
	mustAppend(t, l, records(5, 1, testNow))
	l.SetHighWatermark(3)
	if err := errors.Join(l.Flush(), l.SetLogStart(t.Context(), 2), d.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		recoveryPointFile:          "0\n1\ntopic 0 5\n",
		highWatermarkFile:          "0\n1\ntopic 0 3\n",
		logStartFile:               "0\n1\ntopic 0 2\n",
		"topic-0/" + partitionFile: "version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA\n",
	} {
		if got := string(fileBytes(t, fsys, "/logs/"+name)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Checkpoints come from a timer, from deletions and from changes of the log start.
func TestCheckpointsAtTheSameTime(t *testing.T) {
	d := openDir(t, testConfig(t, vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if op.Changes() {
			runtime.Gosched() // others have a go between any two calls
		}
		return nil
	})))
	mustAppend(t, openLog(t, d, Options{}), records(5, 1, testNow))
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			var err error
			for range 20 {
				err = errors.Join(err, d.Checkpoint())
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestTopicIDThatAPowerLossTook: an empty file names no other topic, so the
// metadata's id is written again; of any other damage an operator must decide.
func TestTopicIDThatAPowerLossTook(t *testing.T) {
	testID := [16]byte{1, 2, 3}
	for _, tt := range []struct {
		name, content string
		id            [16]byte
		ok            bool
	}{
		{"empty", "", testID, true},
		{"zeros", "\x00\x00\x00\x00", testID, true},
		{"empty, and no id is known", "", [16]byte{}, false},
		{"garbage", "version: 0\ntopic", testID, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fsys := vfs.NewMem()
			d := openDir(t, testConfig(t, fsys))
			mustAppend(t, openLog(t, d, Options{}), records(5, 1, testNow))
			if err := d.Close(CleanMark{}); err != nil {
				t.Fatal(err)
			}
			const file = "/logs/topic-0/" + partitionFile
			if err := replaceFile(fsys, file, []byte(tt.content), true); err != nil {
				t.Fatal(err)
			}
			d = openDir(t, testConfig(t, fsys))
			l, err := d.Open(testTP, tt.id, Options{})
			if tt.ok {
				if err != nil || l.Offsets().End != 5 {
					t.Fatalf("%v", err)
				}
				if got, want := string(fileBytes(t, fsys, file)), "version: 0\ntopic_id: "+formatID(testID)+"\n"; got != want {
					t.Errorf("%q, want %q", got, want)
				}
				return
			}
			if !errors.Is(err, errTopicIDFile) {
				t.Fatalf("%v, want %v", err, errTopicIDFile)
			}
			if tt.id == testID && !strings.Contains(err.Error(), "delete that file") {
				t.Errorf("no advice: %v", err)
			}
		})
	}
}

// TestPartitionsNotOpenedKeepTheirCheckpoints: a broker may open some only.
func TestPartitionsNotOpenedKeepTheirCheckpoints(t *testing.T) {
	fsys := vfs.NewMem()
	d := openDir(t, testConfig(t, fsys))
	mustAppend(t, openLog(t, d, Options{}), records(5, 1, testNow))
	if err := d.Close(CleanMark{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d = openDir(t, testConfig(t, fsys))
		if err := errors.Join(d.Checkpoint(), d.Close(CleanMark{})); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(fileBytes(t, fsys, "/logs/"+recoveryPointFile)); got != "0\n1\ntopic 0 5\n" {
		t.Fatalf("%q", got)
	}
}

func TestFlushMs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		c := quiet(fsys)
		c.Now = time.Now
		d, err := OpenDir(c)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close(CleanMark{})
		l := openLog(t, d, Options{FlushMs: 500})
		mustAppend(t, l, records(1, 1, testNow))
		if o := l.Offsets(); o.Counted != 1 {
			t.Fatalf("flush.ms makes an append wait: %+v", o)
		}
		durable := func() bool {
			b := fileBytes(t, fsys.CrashClone(vfs.CrashOptions{}), firstLog)
			return len(b) > 0
		}
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		if durable() {
			t.Fatal("flushed too early")
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if !durable() {
			t.Fatal("not flushed")
		}
	})
}

func FuzzCheckpoints(f *testing.F) {
	f.Add([]byte("0\n2\na 0 5\nb 1 7\n"))
	f.Add([]byte("0\n2\n1 0\n3 17\n"))
	f.Add([]byte("0\n9999999999\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if offsets, err := parseOffsetCheckpoint(b); err == nil {
			out := appendOffsetCheckpoint(nil, offsets)
			again, err := parseOffsetCheckpoint(out)
			if err != nil || !maps.Equal(again, offsets) {
				t.Fatalf("%q: %v, %v", out, again, err)
			}
		}
		if chain, err := parseEpochCheckpoint(b); err == nil {
			again, err := parseEpochCheckpoint(appendEpochCheckpoint(nil, chain))
			if err != nil || !slices.Equal(again, chain) {
				t.Fatalf("%v: %v, %v", chain, again, err)
			}
		}
		parseMeta(b)
		parseCleanMark(b)
	})
}

func FuzzIndexes(f *testing.F) {
	x := newIndex(100)
	for i := range 5 {
		x.add(int64(100+10*i), int64(1000+i), int64(i)*500, 500, 100)
	}
	f.Add(x.appendOffsets(nil), x.appendTimes(nil), []byte{})
	f.Add(make([]byte, 64), make([]byte, 48), appendAborted(nil, []abortedEntry{{1, 2, 3, 4}}))
	f.Fuzz(func(t *testing.T, offsets, times, txns []byte) {
		x := newIndex(100)
		if x.loadOffsets(offsets, 1<<20) == nil {
			y := newIndex(100)
			if out := x.appendOffsets(nil); y.loadOffsets(out, 1<<20) != nil || !bytes.Equal(out, y.appendOffsets(nil)) {
				t.Fatal("an offset index changes when it is read and written")
			}
			for _, o := range []int64{0, 99, 100, 101, 1 << 20, never} {
				if pos, next := x.floor(o); pos < 0 || pos >= next {
					t.Fatalf("floor(%d) = %d, %d", o, pos, next)
				}
			}
		}
		if x.loadTimes(times) == nil {
			x.offsetBefore(1000)
			x.appendTimes(nil)
		}
		if entries, err := parseAborted(txns); err == nil && !bytes.Equal(appendAborted(nil, entries), txns) {
			t.Fatal("a transaction index changes when it is read and written")
		}
	})
}
