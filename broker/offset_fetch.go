package broker

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/group"
)

// handleOffsetFetch answers OffsetFetch: v1–10.
//
//	v2  null asks for all topics; an error of the whole group
//	v5  leader epochs
//	v7  RequireStable: what a transaction may still change is UNSTABLE_OFFSET_COMMIT
//	v8  many groups
//	v10 topic ids instead of names
//
// An unknown group has no offsets: -1, and no error.
func handleOffsetFetch(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.OffsetFetchRequest)
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if r.version >= 8 {
		for i := range req.Groups {
			resp.Groups = append(resp.Groups, b.offsetFetch(ctx, r.version, &req.Groups[i]))
		}
		return resp
	}
	ask := kmsg.NewOffsetFetchRequestGroup()
	ask.Group = req.Group
	if req.Topics != nil || r.version < 2 {
		ask.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
	}
	for i, t := range req.Topics {
		ask.Topics[i].Topic, ask.Topics[i].Partitions = t.Topic, t.Partitions
	}
	got := b.offsetFetch(ctx, r.version, &ask)
	resp.ErrorCode = got.ErrorCode
	if got.ErrorCode != 0 && r.version < 2 { // there is no other place to say it
		got.Topics = eachOffset(ask.Topics, got.ErrorCode)
	}
	for _, t := range got.Topics {
		out := kmsg.NewOffsetFetchResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// eachOffset answers every partition with one code.
func eachOffset(topics []kmsg.OffsetFetchRequestGroupTopic, code int16) []kmsg.OffsetFetchResponseGroupTopic {
	out := make([]kmsg.OffsetFetchResponseGroupTopic, len(topics))
	for i := range topics {
		out[i].Topic, out[i].TopicID = topics[i].Topic, topics[i].TopicID
		for _, p := range topics[i].Partitions {
			none := noOffset(p)
			none.ErrorCode = code
			out[i].Partitions = append(out[i].Partitions, none)
		}
	}
	return out
}

func noOffset(p int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	return kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p, Offset: -1, LeaderEpoch: -1, Metadata: new("")}
}

func (b *Broker) offsetFetch(ctx context.Context, version int16, ask *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = ask.Group
	s, err := b.groups.shard(ctx, ask.Group)
	if err == nil {
		err = s.enter()
	}
	if err != nil {
		out.ErrorCode = errorCode(err)
		return out
	}
	defer s.mu.Unlock()
	f := offsetFetch{x: b.topics.Load(), byID: version >= 10}
	if h := s.mu.groups[ask.Group]; h != nil {
		f.group = h.Group
	}
	if ask.Topics == nil {
		out.Topics = f.all()
		return out
	}
	for i := range ask.Topics {
		out.Topics = append(out.Topics, f.topic(&ask.Topics[i]))
	}
	return out
}

// offsetFetch reads one group's offsets, under its shard's lock.
type offsetFetch struct {
	x     *topicIndex
	group *group.Group // nil: there is none
	byID  bool
}

func (f *offsetFetch) topic(ask *kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.NewOffsetFetchResponseGroupTopic()
	out.Topic, out.TopicID = ask.Topic, ask.TopicID
	name := ask.Topic
	if f.byID {
		t := f.x.byID[ask.TopicID]
		if t == nil {
			for _, p := range ask.Partitions {
				none := noOffset(p)
				none.ErrorCode = kerr.UnknownTopicID.Code
				out.Partitions = append(out.Partitions, none)
			}
			return out
		}
		name = t.Name
	}
	for _, p := range ask.Partitions {
		out.Partitions = append(out.Partitions, f.partition(name, p))
	}
	return out
}

func (f *offsetFetch) partition(topic string, p int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	out := noOffset(p)
	if f.group == nil {
		return out
	}
	if o, ok := f.group.Offset(group.Partition{Topic: topic, Num: p}); ok && f.current(topic, o) {
		out.Offset, out.LeaderEpoch, out.Metadata = o.Offset, o.LeaderEpoch, new(o.Metadata)
	}
	return out
}

// current: the offset is one of the topic that has this name now (F7).
func (f *offsetFetch) current(topic string, o group.Offset) bool {
	t := f.x.byName[topic]
	return t == nil || o.TopicID == [16]byte{} || o.TopicID == t.ID
}

// all lists every offset of the group.
func (f *offsetFetch) all() []kmsg.OffsetFetchResponseGroupTopic {
	topics := []kmsg.OffsetFetchResponseGroupTopic{}
	if f.group == nil {
		return topics
	}
	for topic, offsets := range f.group.Offsets() {
		out := kmsg.NewOffsetFetchResponseGroupTopic()
		out.Topic = topic
		if f.byID {
			t := f.x.byName[topic]
			if t == nil {
				continue // it can't be named
			}
			out.TopicID = t.ID
		}
		for p, o := range offsets {
			if f.current(topic, o) {
				out.Partitions = append(out.Partitions, f.partition(topic, p))
			}
		}
		if len(out.Partitions) > 0 {
			slices.SortFunc(out.Partitions, func(a, b kmsg.OffsetFetchResponseGroupTopicPartition) int { return int(a.Partition - b.Partition) })
			topics = append(topics, out)
		}
	}
	slices.SortFunc(topics, func(a, b kmsg.OffsetFetchResponseGroupTopic) int { return strings.Compare(a.Topic, b.Topic) })
	return topics
}
