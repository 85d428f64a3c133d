package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/wire"
	"firn/replication"
)

// sessionClient walks through a fetch session.
type sessionClient struct {
	*client
	version int16
	id      int32
	epoch   int32
}

// fetch asks for what changed, and tells what partitions the answer names, with
// the bytes of each.
func (s *sessionClient) fetch(offset int64, partitions []int32, forget ...int32) (string, int16) {
	s.t.Helper()
	r := fetchReq(s.version, "t", offset, partitions...)
	r.SessionID, r.SessionEpoch = s.id, s.epoch
	if len(partitions) == 0 {
		r.Topics = nil
	}
	if len(forget) > 0 {
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Topic, f.TopicID, f.Partitions = "t", topicIDOf("t"), forget
		r.ForgottenTopics = append(r.ForgottenTopics, f)
	}
	resp := s.call(r).(*kmsg.FetchResponse)
	if resp.ErrorCode == 0 {
		s.id, s.epoch = resp.SessionID, nextEpoch(s.epoch)
	}
	out := ""
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out += fmt.Sprintf("%d:%d ", p.Partition, len(p.RecordBatches))
		}
	}
	return out, resp.ErrorCode
}

func TestFetchSession(t *testing.T) {
	for _, v := range []int16{7, 12, 13, 18} {
		t.Run(fmt.Sprint("v", v), func(t *testing.T) {
			b := startBroker(t, Network{}, map[string][]replication.Log{"t": {newMemLog(), newMemLog(), newMemLog()}})
			p := b.dial()
			s := &sessionClient{client: b.dial(), version: v}
			step := func(what, want string, got string, code int16) {
				t.Helper()
				if got != want || code != 0 {
					t.Errorf("%s: %q, code %d; want %q", what, got, code, want)
				}
			}
			got, code := s.fetch(0, []int32{0, 1})
			step("full", "0:0 1:0 ", got, code)
			if s.id == 0 || s.epoch != 1 {
				t.Fatalf("session %d, epoch %d", s.id, s.epoch)
			}
			got, code = s.fetch(0, nil)
			step("no news", "", got, code)
			p.call(produceReq(9, 1, "t", 1, batchOf(1, 1, 100)))
			got, code = s.fetch(0, nil)
			step("records", "1:100 ", got, code)
			got, code = s.fetch(1, []int32{1})
			step("read on", "", got, code)
			got, code = s.fetch(0, []int32{2})
			step("one more", "2:0 ", got, code)
			got, code = s.fetch(0, nil, 0, 1)
			step("two fewer", "", got, code)
			p.call(produceReq(9, 1, "t", 0, batchOf(1, 1, 100)))
			p.call(produceReq(9, 1, "t", 2, batchOf(1, 1, 200)))
			got, code = s.fetch(0, nil)
			step("of those left", "2:200 ", got, code)

			// An epoch that was used, and a session that isn't there.
			again := *s
			again.epoch--
			if _, code := again.fetch(0, nil); code != kerr.InvalidFetchSessionEpoch.Code {
				t.Errorf("old epoch: code %d", code)
			}
			other := *s
			other.id++
			if _, code := other.fetch(0, nil); code != kerr.FetchSessionIDNotFound.Code {
				t.Errorf("unknown session: code %d", code)
			}
			// It goes on all the same, from another connection too.
			moved := &sessionClient{client: b.dial(), version: v, id: s.id, epoch: s.epoch}
			got, code = moved.fetch(1, []int32{2})
			step("moved", "", got, code)

			// A request that ends it: answered without a session.
			moved.epoch = finalEpoch
			got, code = moved.fetch(0, []int32{0})
			step("final", "0:100 ", got, code)
			if moved.id != 0 || len(b.b.server.sessions.mu.byID) != 0 {
				t.Errorf("session %d, %d in the cache", moved.id, len(b.b.server.sessions.mu.byID))
			}
		})
	}
}

func TestSessionMustKeepItsWayOfNamingTopics(t *testing.T) {
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {newMemLog()}})
	s := &sessionClient{client: b.dial(), version: 12}
	s.fetch(0, []int32{0})
	s.version = 13
	if _, code := s.fetch(0, nil); code != kerr.FetchSessionTopicIDError.Code {
		t.Errorf("code %d", code)
	}
}

// An error is told each time, and its end is news.
func TestSessionTellsErrorsAndTheirEnd(t *testing.T) {
	log := newMemLog()
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {log}})
	s := &sessionClient{client: b.dial(), version: 12}
	s.fetch(0, []int32{0})
	log.mu.Lock()
	log.readErr = replication.ErrNotLeader
	log.mu.Unlock()
	for range 2 {
		if got, _ := s.fetch(0, nil); got != "0:0 " {
			t.Errorf("with an error: %q", got)
		}
	}
	log.mu.Lock()
	log.readErr = nil
	log.mu.Unlock()
	if got, _ := s.fetch(0, nil); got != "0:0 " {
		t.Errorf("after the error: %q", got)
	}
	if got, _ := s.fetch(0, nil); got != "" {
		t.Errorf("later: %q", got)
	}
}

// Where one partition could fill every answer, the others get their turn.
func TestSessionTakesPartitionsInTurn(t *testing.T) {
	logs := []*memLog{filled(20, 1000), filled(20, 1000), filled(20, 1000)}
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {logs[0], logs[1], logs[2]}})
	for _, l := range logs {
		l.SetHighWatermark(20)
	}
	c := b.dial()
	id, epoch := int32(0), int32(0)
	var order []int32
	for range 6 {
		r := fetchReq(12, "t", 0, 0, 1, 2)
		r.MaxBytes = 1000
		r.SessionID, r.SessionEpoch = id, epoch
		resp := c.call(r).(*kmsg.FetchResponse)
		id, epoch = resp.SessionID, nextEpoch(epoch)
		for _, p := range resp.Topics[0].Partitions {
			if len(p.RecordBatches) > 0 {
				order = append(order, p.Partition)
			}
		}
	}
	if got := fmt.Sprint(order); got != "[0 1 2 0 1 2]" {
		t.Errorf("turns: %s", got)
	}
}

func TestSessionCacheEviction(t *testing.T) {
	now := time.Unix(1e9, 0)
	c := newSessionCache(2, func() time.Time { return now })
	request := func(n int) *wire.FetchRequest {
		r := &wire.FetchRequest{Version: 12, Topics: []wire.FetchTopic{{Name: []byte("t"), Below: n}}}
		for i := range n {
			r.Partitions = append(r.Partitions, wire.FetchPartition{Index: int32(i)})
		}
		return r
	}
	small, large := c.create(request(1), noReplica.Member), c.create(request(5), noReplica.Member)
	if small == nil || large == nil {
		t.Fatal("no session though there is room")
	}
	if c.create(request(9), noReplica.Member) != nil {
		t.Error("a young session was evicted")
	}
	now = now.Add(evictAfter + time.Second)
	large.used.Store(now.UnixMilli())
	small.used.Store(now.UnixMilli())
	if c.create(request(1), noReplica.Member) != nil {
		t.Error("a session went for one that is no larger")
	}
	if c.create(request(3), noReplica.Member) == nil || !small.gone.Load() || large.gone.Load() {
		t.Error("the smallest did not go for a larger one")
	}
	now = now.Add(evictAfter + time.Second)
	if c.create(request(1), noReplica.Member) == nil {
		t.Error("an unused session did not go")
	}
	if len(c.mu.byID) != 2 {
		t.Errorf("%d sessions", len(c.mu.byID))
	}
}
