package group

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzLoader: whatever stands in the log, loading it neither fails hard nor makes
// a group that then does; and what a loaded group writes can be loaded.
func FuzzLoader(f *testing.F) {
	g := New("g", &Config{}, time.UnixMilli(3))
	g.protocolType, g.generation, g.protocol = "consumer", 5, "range"
	instance := "i"
	g.add(&member{id: "m", instance: &instance, session: time.Second, rebalance: time.Second})
	g.add(&member{id: "n", session: time.Second, rebalance: time.Second})
	for _, r := range []Record{
		g.metadataRecord(map[string][]byte{"m": {1}}), tombstone("g"),
		OffsetRecord("g", Partition{"t", 1}, Offset{Offset: 4, Committed: time.UnixMilli(9), TopicID: [16]byte{1}}),
		OffsetRecord("g", Partition{"t", 1}, Offset{Committed: time.UnixMilli(9), Expires: time.UnixMilli(10)}),
		OffsetTombstone("g", "t", 1),
	} {
		f.Add(r.Key, r.Value, r.Value == nil)
	}
	f.Add([]byte{0, 3}, []byte{}, false)
	f.Fuzz(func(t *testing.T, key, value []byte, deletion bool) {
		if deletion {
			value = nil
		}
		e, err := Decode(key, value)
		if err != nil {
			return
		}
		cfg := &Config{MaxSize: 10, MaxSession: time.Hour, Retention: time.Minute}
		l := NewLoader(cfg)
		l.Take(e)
		now := time.UnixMilli(1_000_000)
		for name, g := range l.Groups(now) {
			if name != e.Group {
				t.Fatalf("group %q of a record of %q", name, e.Group)
			}
			again := g.metadataRecord(g.assignments())
			if _, err := Decode(again.Key, again.Value); err != nil {
				t.Fatalf("what was loaded can't be written and read: %v", err)
			}
			g.Expire(now)
			g.Describe()
			g.Join(now, &kmsg.JoinGroupRequest{Version: 3, ProtocolType: "consumer", Protocols: []kmsg.JoinGroupRequestProtocol{{Name: "range"}}}, Caller{Ticket: 1, Unique: "u"})
			for range 20 {
				next, ok := g.NextDeadline()
				if !ok {
					break
				}
				if next.Before(now) {
					next = now
				}
				now = next
				for _, w := range g.Tick(now).Writes {
					g.Written(now, w, nil)
				}
			}
		}
	})
}
