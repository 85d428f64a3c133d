package group

import (
	"iter"
	"time"
)

// Partition names a partition of a topic.
type Partition struct {
	Topic string
	Num   int32
}

// Offset is a committed offset.
type Offset struct {
	Offset      int64
	LeaderEpoch int32 // of the last record consumed; -1 if unknown
	Metadata    string
	Committed   time.Time
	// Expires is zero but where the client set a time itself (OffsetCommit v2–4).
	Expires time.Time
	// TopicID is zero where an older broker wrote it.
	TopicID [16]byte
}

func (o Offset) expired(since, now time.Time, retention time.Duration) bool {
	if !o.Expires.IsZero() {
		return !now.Before(o.Expires)
	}
	return now.Sub(since) >= retention
}

// offsets are a group's committed offsets. The zero value is empty.
type offsets struct {
	byTopic map[string]map[int32]Offset
}

func (s *offsets) none() bool { return len(s.byTopic) == 0 }

func (s *offsets) set(p Partition, o Offset) {
	ps := s.byTopic[p.Topic]
	if ps == nil {
		if s.byTopic == nil {
			s.byTopic = map[string]map[int32]Offset{}
		}
		ps = map[int32]Offset{}
		s.byTopic[p.Topic] = ps
	}
	ps[p.Num] = o
}

func (s *offsets) delete(p Partition) {
	delete(s.byTopic[p.Topic], p.Num)
	if len(s.byTopic[p.Topic]) == 0 {
		delete(s.byTopic, p.Topic)
	}
}

// SetOffset takes a commit that is written and committed.
func (g *Group) SetOffset(p Partition, o Offset) { g.offsets.set(p, o) }

// DeleteOffset forgets an offset.
func (g *Group) DeleteOffset(p Partition) { g.offsets.delete(p) }

// Offset is what is committed for a partition.
func (g *Group) Offset(p Partition) (Offset, bool) {
	o, ok := g.offsets.byTopic[p.Topic][p.Num]
	return o, ok
}

// Offsets are all committed offsets, by topic.
func (g *Group) Offsets() iter.Seq2[string, map[int32]Offset] {
	return func(yield func(string, map[int32]Offset) bool) {
		for topic, ps := range g.offsets.byTopic {
			if !yield(topic, ps) {
				return
			}
		}
	}
}
