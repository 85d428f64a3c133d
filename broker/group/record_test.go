package group

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What Kafka 4.3 writes, byte for byte.
func TestRecordsAreKafkas(t *testing.T) {
	id := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	commit := Offset{Offset: 258, LeaderEpoch: 7, Metadata: "me", Committed: time.UnixMilli(1000), TopicID: id}
	expiring := commit
	expiring.Expires = time.UnixMilli(2000)
	anonymous := commit
	anonymous.TopicID = [16]byte{}

	g := New("g", &Config{}, time.UnixMilli(3))
	g.protocolType, g.generation, g.protocol = "consumer", 5, "range"
	instance := "i"
	g.add(&member{
		id: "m", instance: &instance, clientID: "c", host: "/h", session: 6 * time.Second, rebalance: 7 * time.Second,
		protocols: []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0xaa}}},
	})
	full := g.metadataRecord(map[string][]byte{"m": {0xbb, 0xcc}})
	empty := New("g", &Config{}, time.UnixMilli(3))
	empty.protocolType, empty.generation = "consumer", 6

	for name, c := range map[string]struct {
		r          Record
		key, value string
	}{
		"commit": {OffsetRecord("g", Partition{"t", 9}, commit),
			"0001 0001 67 0001 74 00000009",
			"0004 0000000000000102 00000007 03 6d65 00000000000003e8 01 00 10 0102030405060708090a0b0c0d0e0f10"},
		"commit of a topic without id": {OffsetRecord("g", Partition{"t", 9}, anonymous),
			"0001 0001 67 0001 74 00000009",
			"0004 0000000000000102 00000007 03 6d65 00000000000003e8 00"},
		"commit with a retention of its own": {OffsetRecord("g", Partition{"t", 9}, expiring),
			"0001 0001 67 0001 74 00000009",
			"0001 0000000000000102 0002 6d65 00000000000003e8 00000000000007d0"},
		"deleted commit": {OffsetTombstone("g", "t", 9), "0001 0001 67 0001 74 00000009", ""},
		"group": {full, "0002 0001 67",
			"0003 0008 636f6e73756d6572 00000005 0005 72616e6765 0001 6d 0000000000000003" +
				"00000001 0001 6d 0001 69 0001 63 0002 2f68 00001b58 00001770 00000001 aa 00000002 bbcc"},
		"empty group": {empty.metadataRecord(nil), "0002 0001 67",
			"0003 0008 636f6e73756d6572 00000006 ffff ffff 0000000000000003 00000000"},
		"deleted group": {tombstone("g"), "0002 0001 67", ""},
	} {
		if want := unhex(t, c.key); !bytes.Equal(c.r.Key, want) {
			t.Errorf("%s: key %x, want %x", name, c.r.Key, want)
		}
		if want := unhex(t, c.value); !bytes.Equal(c.r.Value, want) || (c.value == "") != (c.r.Value == nil) {
			t.Errorf("%s: value %x, want %x", name, c.r.Value, want)
		}
	}
}

func TestDecodeTellsWhatWasWritten(t *testing.T) {
	o := Offset{Offset: math.MaxInt64, LeaderEpoch: -1, Metadata: "ä", Committed: time.UnixMilli(1000), TopicID: [16]byte{1}}
	r := OffsetRecord("gruppe", Partition{"t", 3}, o)
	e, err := Decode(r.Key, r.Value)
	if err != nil || e.Group != "gruppe" || !e.Commit || e.Partition != (Partition{"t", 3}) || !reflect.DeepEqual(*e.Offset, o) {
		t.Errorf("commit: %+v, %v", e, err)
	}
	// A v0 value has neither epoch nor expiry.
	e, err = Decode(unhex(t, "0000 0001 67 0001 74 00000009"), unhex(t, "0000 0000000000000102 0002 6d65 00000000000003e8"))
	if err != nil || e.Offset == nil || e.Offset.Offset != 258 || e.Offset.LeaderEpoch != -1 || !e.Offset.Expires.IsZero() {
		t.Errorf("commit v0: %+v, %v", e, err)
	}
	e, err = Decode(tombstone("g").Key, nil)
	if err != nil || e.Group != "g" || e.Commit || e.Metadata != nil {
		t.Errorf("deleted group: %+v, %v", e, err)
	}
}

func TestDecodeRefusesWhatItCantRead(t *testing.T) {
	commit := OffsetRecord("g", Partition{"t", 9}, Offset{Committed: time.UnixMilli(0)})
	group := New("g", &Config{}, time.UnixMilli(0)).metadataRecord(nil)
	newer := func(v []byte) []byte { return append([]byte{0, 99}, v[2:]...) }
	for name, c := range map[string]struct{ key, value []byte }{
		"no key":                 {nil, nil},
		"a key cut off":          {commit.Key[:5], commit.Value},
		"a commit cut off":       {commit.Key, commit.Value[:9]},
		"a commit too new":       {commit.Key, newer(commit.Value)},
		"an empty commit":        {commit.Key, []byte{}},
		"a group cut off":        {group.Key, group.Value[:9]},
		"a group too new":        {group.Key, newer(group.Value)},
		"a group's key cut off":  {group.Key[:3], group.Value},
		"negative value version": {group.Key, append([]byte{0xff, 0xff}, group.Value[2:]...)},
	} {
		if e, err := Decode(c.key, c.value); err == nil || errors.Is(err, ErrForeign) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	if _, err := Decode([]byte{0, 3, 0, 0}, nil); !errors.Is(err, ErrForeign) {
		t.Errorf("a consumer group's record: %v, want ErrForeign", err)
	}
}

// Compaction may have left a deletion of something never seen, or offsets whose
// group was deleted long ago (E12).
func TestLoaderTakesWhatCompactionLeaves(t *testing.T) {
	l := NewLoader(&Config{})
	take := func(r Record) {
		e, err := Decode(r.Key, r.Value)
		if err != nil {
			t.Fatal(err)
		}
		l.Take(e)
	}
	take(tombstone("unknown"))
	take(OffsetTombstone("unknown", "t", 0))
	take(OffsetRecord("g", Partition{"t", 0}, Offset{Offset: 1, Committed: time.UnixMilli(0)}))
	take(tombstone("g"))
	take(OffsetRecord("h", Partition{"t", 0}, Offset{Offset: 1, Committed: time.UnixMilli(0)}))
	take(OffsetTombstone("h", "t", 0))
	groups := l.Groups(time.UnixMilli(5))
	if len(groups) != 1 || groups["g"] == nil {
		t.Fatalf("groups %v, want g alone", groups)
	}
	if o, ok := groups["g"].Offset(Partition{"t", 0}); !ok || o.Offset != 1 {
		t.Errorf("offset %+v, %v", o, ok)
	}
}
