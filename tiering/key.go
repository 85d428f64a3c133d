package tiering

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// TopicID identifies a topic for good: a topic created again under its name is another.
type TopicID [16]byte

// String is Kafka's form: base64 for URLs, without padding.
func (t TopicID) String() string { return base64.RawURLEncoding.EncodeToString(t[:]) }

// MarshalText and UnmarshalText make it that form in JSON.
func (t TopicID) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

func (t *TopicID) UnmarshalText(b []byte) (err error) {
	*t, err = parseTopicID(string(b))
	return err
}

// parseTopicID is the inverse of String.
func parseTopicID(s string) (TopicID, error) {
	var t TopicID
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != len(t) {
		return TopicID{}, fmt.Errorf("tiering: %q is not a topic id", s)
	}
	return TopicID(b), nil
}

// Partition names an archived partition.
type Partition struct {
	Topic string
	ID    TopicID
	Num   int32
}

func (p Partition) String() string { return p.Topic + "-" + strconv.Itoa(int(p.Num)) }

// Dir is the prefix of every key of the partition, with its slash.
func (p Partition) Dir() string {
	return topicDir(p.Topic, p.ID) + strconv.Itoa(int(p.Num)) + "/"
}

// topicDir is the prefix of every key of a topic, with its slash. A topic's name
// has no tilde, so the id can't be mistaken for a part of it.
func topicDir(topic string, id TopicID) string { return topic + "~" + id.String() + "/" }

// Kind is the kind of an object.
type Kind uint8

const (
	KindIdentity Kind = iota + 1 // firn.json
	KindTopic                    // <topic>~<id>/topic.json
	KindDeleted                  // <topic>~<id>/deleted.json
	KindLog                      // …/<partition>/<base20>-<epoch>-<id>.log
	KindIndex                    // …/<partition>/<base20>-<epoch>-<id>.idx
	KindManifest                 // …/<partition>/manifest/<epoch10>-<seq20>-<id>
	KindPage                     // …/<partition>/page/<base20>-<last20>-<epoch>-<id>
)

// Key is the name of an object, taken apart. Which fields are used goes by Kind.
type Key struct {
	Kind      Kind
	Partition Partition // Topic and ID alone for KindTopic and KindDeleted
	Base      int64     // KindLog, KindIndex: the file's first offset; KindPage: the first offset served
	Last      int64     // KindPage: the last offset served
	Epoch     int32     // the leader epoch of whoever wrote it
	Seq       int64     // KindManifest
	ID        uint64    // random: no two attempts share a key (T2)
}

const identityKey = "firn.json"

// String is the object's key.
func (k Key) String() string {
	switch k.Kind {
	case KindIdentity:
		return identityKey
	case KindTopic:
		return topicDir(k.Partition.Topic, k.Partition.ID) + "topic.json"
	case KindDeleted:
		return topicDir(k.Partition.Topic, k.Partition.ID) + "deleted.json"
	case KindLog:
		return fmt.Sprintf("%s%020d-%d-%016x.log", k.Partition.Dir(), k.Base, k.Epoch, k.ID)
	case KindIndex:
		return fmt.Sprintf("%s%020d-%d-%016x.idx", k.Partition.Dir(), k.Base, k.Epoch, k.ID)
	case KindManifest:
		return fmt.Sprintf("%smanifest/%010d-%020d-%016x", k.Partition.Dir(), k.Epoch, k.Seq, k.ID)
	case KindPage:
		return fmt.Sprintf("%spage/%020d-%020d-%d-%016x", k.Partition.Dir(), k.Base, k.Last, k.Epoch, k.ID)
	}
	panic(fmt.Sprintf("tiering: key of kind %d", k.Kind))
}

// ParseKey takes a key apart; false if it isn't one of ours, to the byte.
// What doesn't parse is never touched.
func ParseKey(s string) (Key, bool) {
	k, ok := parseKey(s)
	return k, ok && k.String() == s
}

func parseKey(s string) (k Key, ok bool) {
	if s == identityKey {
		return Key{Kind: KindIdentity}, true
	}
	dir, rest, _ := strings.Cut(s, "/")
	topic, id, _ := strings.Cut(dir, "~")
	tid, err := parseTopicID(id)
	if err != nil || !validTopic(topic) {
		return Key{}, false
	}
	k.Partition = Partition{Topic: topic, ID: tid}
	switch rest {
	case "topic.json":
		k.Kind = KindTopic
		return k, true
	case "deleted.json":
		k.Kind = KindDeleted
		return k, true
	}
	num, rest, _ := strings.Cut(rest, "/")
	f := fields{ok: true}
	k.Partition.Num = int32(f.number(num, 31))
	folder, name, nested := strings.Cut(rest, "/")
	switch {
	case !nested:
		stem, ext := rest[:max(0, len(rest)-4)], rest[max(0, len(rest)-4):]
		switch ext {
		case ".log":
			k.Kind = KindLog
		case ".idx":
			k.Kind = KindIndex
		default:
			return Key{}, false
		}
		p := f.split(stem, 3)
		k.Base, k.Epoch, k.ID = int64(f.number(p[0], 63)), int32(f.number(p[1], 31)), f.hex(p[2])
	case folder == "manifest":
		p := f.split(name, 3)
		k.Kind = KindManifest
		k.Epoch, k.Seq, k.ID = int32(f.number(p[0], 31)), int64(f.number(p[1], 63)), f.hex(p[2])
	case folder == "page":
		p := f.split(name, 4)
		k.Kind = KindPage
		k.Base, k.Last = int64(f.number(p[0], 63)), int64(f.number(p[1], 63))
		k.Epoch, k.ID = int32(f.number(p[2], 31)), f.hex(p[3])
	default:
		return Key{}, false
	}
	return k, f.ok
}

// fields reads the parts of a name; the first failure sticks.
type fields struct{ ok bool }

func (f *fields) split(s string, n int) []string {
	p := strings.Split(s, "-")
	if len(p) != n {
		f.ok = false
		return make([]string, n)
	}
	return p
}

func (f *fields) number(s string, bits int) uint64 {
	v, err := strconv.ParseUint(s, 10, bits)
	f.ok = f.ok && err == nil
	return v
}

func (f *fields) hex(s string) uint64 {
	v, err := strconv.ParseUint(s, 16, 64)
	f.ok = f.ok && err == nil
	return v
}

// validTopic is Kafka's rule for a topic's name.
func validTopic(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 249 {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// compare orders partitions by name, number and id.
func (p Partition) compare(q Partition) int {
	if c := strings.Compare(p.Topic, q.Topic); c != 0 {
		return c
	}
	if c := cmp.Compare(p.Num, q.Num); c != 0 {
		return c
	}
	return bytes.Compare(p.ID[:], q.ID[:])
}
