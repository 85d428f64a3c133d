package tiering

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"firn/tiering/objstore"
)

// filesIn lists the files below dir, relative to it.
func filesIn(t *bucketTest, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.Walk(dir, func(path string, i os.FileInfo, err error) error {
		if err == nil && !i.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func (t *bucketTest) wantFile(name string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, %v; want %d bytes", name, len(got), err, len(want))
	}
}

func TestExtractWritesWhatWasSealed(t *testing.T) {
	onStores(t, func(t *bucketTest) {
		t.owner("a")
		p := t.topic("events", 2)
		s0 := t.seal(p, 0, 100, 1, 30_000)
		s1 := t.seal(p, 100, 200, 3, 10)
		s1.x.TxnIndex = bytes.Repeat([]byte{1}, txnEntry)
		t.manifest(p, 3, nil, 0, nil, []Entry{t.upload(p, s0, 0, 1), t.upload(p, s1, 100, 3)})
		p1 := p
		p1.Num = 1
		t.manifest(p1, 1, nil, 0, nil, t.archive(p1, 0, 1, 1))

		dir := t.TempDir()
		r, err := NewBucket(t.store).Extract(t.Context(), ExtractOptions{Topic: "events", Partitions: []int32{0}, Dir: dir})
		if err != nil || r.Segments != 2 || r.Partitions != 1 || r.Bytes != s0.x.Size+s1.x.Size || len(r.Problems) != 0 {
			t.Fatalf("Extract = %+v, %v", r, err)
		}
		want := []string{
			"events-0/00000000000000000000.index", "events-0/00000000000000000000.log", "events-0/00000000000000000000.timeindex",
			"events-0/00000000000000000100.index", "events-0/00000000000000000100.log", "events-0/00000000000000000100.snapshot",
			"events-0/00000000000000000100.timeindex", "events-0/00000000000000000100.txnindex",
			"events-0/00000000000000000200.snapshot", "events-0/leader-epoch-checkpoint",
		}
		if got := filesIn(t, dir); !slices.Equal(got, want) {
			t.Errorf("wrote %q\nwant %q", got, want)
		}
		for _, s := range []testSegment{s0, s1} {
			stem := filepath.Join(dir, "events-0", fmt.Sprintf("%020d", s.x.FileBase))
			t.wantFile(stem+".log", s.log)
			t.wantFile(stem+".index", s.x.OffsetIndex)
			t.wantFile(stem+".timeindex", s.x.TimeIndex)
			t.wantFile(filepath.Join(dir, "events-0", fmt.Sprintf("%020d.snapshot", s.x.End)), s.x.Producers)
		}
		t.wantFile(filepath.Join(dir, "events-0", "00000000000000000100.txnindex"), s1.x.TxnIndex)
		t.wantFile(filepath.Join(dir, "events-0", "leader-epoch-checkpoint"), []byte("0\n2\n1 0\n3 100\n"))

		// Again: what is whole is kept, what is not is written anew.
		if err := os.Truncate(filepath.Join(dir, "events-0", "00000000000000000100.log"), 50); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, "events-0", "00000000000000000100.index"), 0); err != nil {
			t.Fatal(err)
		}
		r, err = NewBucket(t.store).Extract(t.Context(), ExtractOptions{Topic: "events", Partitions: []int32{0}, Dir: dir})
		if err != nil || r.Segments != 1 || r.Kept != 1 {
			t.Errorf("again: %+v, %v", r, err)
		}
		t.wantFile(filepath.Join(dir, "events-0", "00000000000000000100.log"), s1.log)
		t.wantFile(filepath.Join(dir, "events-0", "00000000000000000100.index"), s1.x.OffsetIndex)
		if got := filesIn(t, dir); !slices.Equal(got, want) {
			t.Errorf("left %q", got)
		}
	})
}

func TestExtractChoosesWholeSegments(t *testing.T) {
	at := func(offset int64) int64 { return 1_700_000_000_000 + offset*1000 }
	for _, c := range []struct {
		Range
		want string // base offsets
	}{
		{Range{}, "0 100 200 300 400 500 600 700"},
		{Range{FromOffset: 250}, "200 300 400 500 600 700"},
		{Range{FromOffset: 200, BelowOffset: 400}, "200 300"},
		{Range{BelowOffset: 1}, "0"},
		{Range{FromTime: at(199), BelowTime: at(300)}, "100 200"},
		{Range{FromTime: at(200), BelowTime: at(301)}, "200 300"},
		{Range{FromOffset: 5000}, ""},
	} {
		bt := &bucketTest{T: t, store: objstore.NewMem()}
		bt.standard()
		dir := t.TempDir()
		if _, err := NewBucket(bt.store).Extract(t.Context(), ExtractOptions{Topic: "events", Partitions: []int32{0}, Dir: dir, Range: c.Range}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range filesIn(bt, dir) {
			if strings.HasSuffix(f, ".log") {
				var base int64
				fmt.Sscanf(f, "events-0/%d.log", &base)
				got = append(got, fmt.Sprint(base))
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v extracts %s, want %s", c.Range, s, c.want)
		}
	}
}

func TestExtractGoesOnPastDamage(t *testing.T) {
	onStores(t, func(t *bucketTest) {
		_, entries, _ := t.standard()
		p := Partition{Topic: "events", ID: TopicID{1: 6, 15: 'e'}}
		t.damage(entries[2].LogKey(p), 500)
		t.remove(entries[3].IndexKey(p))
		dir := t.TempDir()
		r, err := NewBucket(t.store).Extract(t.Context(), ExtractOptions{Topic: "events", Partitions: []int32{0}, Dir: dir})
		if err != nil || r.Segments != 6 || len(r.Problems) != 2 || r.Problems[0].From != 200 || r.Problems[1].From != 300 {
			t.Errorf("Extract = %+v, %v", r, err)
		}
		for _, f := range filesIn(t, dir) {
			if strings.HasSuffix(f, ".part") || strings.HasSuffix(f, "200.log") || strings.HasSuffix(f, "300.log") {
				t.Errorf("left %s", f)
			}
		}
		if _, err := NewBucket(t.store).Extract(t.Context(), ExtractOptions{Topic: "none", Dir: dir}); err == nil {
			t.Error("a topic that isn't there was extracted")
		}
	})
}

// Leadership moved: the next segment was rolled elsewhere (D28).
func TestExtractOfOverlappingFiles(t *testing.T) {
	bt := &bucketTest{T: t, store: objstore.NewMem()}
	bt.owner("a")
	p := bt.topic("events", 1)
	a, b, c := bt.seal(p, 0, 100, 1, 10), bt.seal(p, 0, 150, 1, 10), bt.seal(p, 120, 200, 1, 10)
	bt.manifest(p, 1, nil, 0, nil, []Entry{bt.upload(p, a, 0, 1), bt.upload(p, b, 100, 1), bt.upload(p, c, 150, 1)})
	dir := t.TempDir()
	if _, err := NewBucket(bt.store).Extract(t.Context(), ExtractOptions{Topic: "events", Dir: dir}); err != nil {
		t.Fatal(err)
	}
	bt.wantFile(filepath.Join(dir, "events-0", "00000000000000000000.log"), b.log)
	bt.wantFile(filepath.Join(dir, "events-0", "00000000000000000120.log"), c.log)
	if r, err := NewBucket(bt.store).Verify(t.Context(), VerifyOptions{}); err != nil || len(r.Problems) != 0 {
		t.Errorf("Verify = %v, %v", r.Problems, err)
	}
}
