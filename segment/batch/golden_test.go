package batch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func golden(t testing.TB, name string) Batch {
	t.Helper()
	p, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	b, rest, err := Next(p)
	if err != nil || len(rest) > 0 {
		t.Fatalf("%s: %v, %d bytes left", name, err, len(rest))
	}
	return b
}

// dump is a record in words; long values by their length.
func dump(r Record) string {
	field := func(p []byte) string {
		switch {
		case p == nil:
			return "null"
		case len(p) > 40:
			return fmt.Sprintf("%d bytes", len(p))
		}
		return fmt.Sprintf("%q", p)
	}
	s := fmt.Sprintf("%d @%d %s=%s", r.Offset, r.Timestamp, field(r.Key), field(r.Value))
	for k, v := range r.Headers() {
		s += fmt.Sprintf(" %s:%s", k, field(v))
	}
	return s
}

func dumpAll(t testing.TB, b Batch) []string {
	t.Helper()
	var got []string
	if err := Walk(b, Limit{}, func(r Record) error { got = append(got, dump(r)); return nil }); err != nil {
		t.Fatalf("walk: %v", err)
	}
	return got
}

func TestBatchesOfOtherClientsAreRead(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bin")
	if err != nil || len(files) < 18 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		client, kind, _ := strings.Cut(strings.TrimSuffix(name, ".bin"), "-")
		t.Run(name, func(t *testing.T) {
			b := golden(t, name)
			if err := Verify(b); err != nil {
				t.Fatal(err)
			}
			if kind == "commit" || kind == "abort" || kind == "empty" {
				return // have their own tests
			}
			if err := refusal(b); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"lz4hc": "lz4", "zstd22": "zstd"}[kind]
			if want == "" {
				want = kind
			}
			if got := b.Codec().String(); got != want {
				t.Errorf("codec: got %s, want %s", got, want)
			}
			got := dumpAll(t, b)
			for i, s := range got {
				got[i], _, _ = strings.Cut(s, " @")
				if _, fields, _ := strings.Cut(s, " @"); client == "librdkafka" {
					_, fields, _ = strings.Cut(fields, " ") // the time is kcat's own
					got[i] += " " + fields
				} else {
					got[i] += " @" + fields
				}
			}
			base := b.BaseOffset()
			wants := []string{
				fmt.Sprintf(`%d @1700000000000 "k0"="v0" h:"x" n:null`, base),
				fmt.Sprintf(`%d @1700000000005 null=40000 bytes`, base+1),
				fmt.Sprintf(`%d @1699999999990 ""=null`, base+2),
			}
			if client == "librdkafka" {
				wants = []string{`0 "k0"="v0" h:"x"`, `1 null=40000 bytes h:"x"`, `2 "k2"=null h:"x"`}
			}
			if !slices.Equal(got, wants) {
				t.Errorf("got  %q\nwant %q", got, wants)
			}
			if client != "librdkafka" && (b.MaxTimestamp() != 1700000000005 || b.BaseTimestamp() != 1700000000000) {
				t.Errorf("timestamps: base %d, max %d", b.BaseTimestamp(), b.MaxTimestamp())
			}
		})
	}
}

func TestHeaderFields(t *testing.T) {
	b := golden(t, "java-zstd.bin")
	got := fmt.Sprint(b.BaseOffset(), b.LastOffset(), b.NextOffset(), b.LeaderEpoch(), b.Magic(), b.Codec(), b.TimestampType(),
		b.IsTransactional(), b.IsControl(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence(), b.Count(),
		b.HasProducer(), b.Length() == len(b), b.CRC() == b.checksum())
	if want := "1000 1002 1003 3 2 zstd CreateTime true false 7 2 5 7 3 true true true"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	b = golden(t, "java-empty.bin")
	got = fmt.Sprint(b.BaseOffset(), b.LastOffset(), b.Count(), b.LastSequence(), dumpAll(t, b))
	if want := "100 104 0 44 []"; got != want {
		t.Errorf("empty: got %s, want %s", got, want)
	}
}

// What Java builds of these records, we build byte for byte: there is but one
// way to say them.
func TestBuilderWritesWhatJavaWrites(t *testing.T) {
	want := golden(t, "java-none.bin")
	b := NewBuilder(Spec{BaseOffset: 1000, LeaderEpoch: 3, Producer: &Producer{ID: 7, Epoch: 2, Sequence: 5}, Transactional: true})
	b.Add(1700000000000, []byte("k0"), []byte("v0"), Header{Key: "h", Value: []byte("x")}, Header{Key: "n"})
	b.Add(1700000000005, nil, bytes.Repeat([]byte("value"), 8000))
	b.Add(1699999999990, []byte{}, nil)
	if b.Count() != 3 || b.Size() != len(want) {
		t.Errorf("got %d records, %d bytes, want 3, %d", b.Count(), b.Size(), len(want))
	}
	got, err := b.Build()
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%v\ngot  %x…\nwant %x…", err, got[:100], want[:100])
	}
}

func TestMarkersAreJavas(t *testing.T) {
	for name, m := range map[string]Marker{
		"java-commit.bin": {Type: Commit, CoordinatorEpoch: 12},
		"java-abort.bin":  {Type: Abort, CoordinatorEpoch: 12},
	} {
		want := golden(t, name)
		if got, err := ParseMarker(want); got != m || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, m)
		}
		got := m.Batch(9, 1, 1700000000000)
		got.SetBaseOffset(want.BaseOffset())
		got.SetLeaderEpoch(want.LeaderEpoch())
		if !bytes.Equal(got, want) {
			t.Errorf("%s:\ngot  %x\nwant %x", name, got, want)
		}
	}
}
