package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/group"
	"firn/replication"
)

// handleOffsetCommit answers OffsetCommit: v2–10.
//
//	v2–4 a retention time of the commit's own
//	v6   leader epochs
//	v7   static members
//	v9   GROUP_ID_NOT_FOUND for a generation of an unknown group (before: ILLEGAL_GENERATION)
//	v10  topic ids instead of names
func handleOffsetCommit(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.OffsetCommitRequest)
	c := offsetCommit{resp: req.ResponseKind().(*kmsg.OffsetCommitResponse)}
	c.resolve(b.topics.Load(), req, b.now(), b.groups.config.MaxMetadata)
	if len(c.commits) == 0 {
		return c.resp
	}
	if err := b.groups.commit(ctx, req, c.commits); err != nil {
		c.fail(errorCode(err))
	}
	return c.resp
}

// offsetCommit is a request whose partitions are resolved: those that can't be
// committed have their code in the answer, the others wait for the group's.
type offsetCommit struct {
	resp    *kmsg.OffsetCommitResponse
	commits []commit
	open    []*int16 // codes of commits
}

// resolve makes the answer, and commits of all partitions that there are.
func (c *offsetCommit) resolve(x *topicIndex, req *kmsg.OffsetCommitRequest, now time.Time, maxMetadata int) {
	c.resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &c.resp.Topics[i]
		out.Default()
		out.Topic, out.TopicID = in.Topic, in.TopicID
		t, unknown := x.byName[in.Topic], kerr.UnknownTopicOrPartition
		if req.Version >= 10 {
			t, unknown = x.byID[in.TopicID], kerr.UnknownTopicID
		}
		out.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(in.Partitions))
		for j := range in.Partitions {
			ask, answer := &in.Partitions[j], &out.Partitions[j]
			answer.Default()
			answer.Partition = ask.Partition
			switch {
			case t == nil:
				answer.ErrorCode = unknown.Code
			case !t.has(ask.Partition):
				answer.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case ask.Metadata != nil && len(*ask.Metadata) > maxMetadata:
				answer.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			default:
				c.commits = append(c.commits, commitOf(t, ask, req, now))
				c.open = append(c.open, &answer.ErrorCode)
			}
		}
	}
}

func commitOf(t *topic, ask *kmsg.OffsetCommitRequestTopicPartition, req *kmsg.OffsetCommitRequest, now time.Time) commit {
	o := &group.Offset{Offset: ask.Offset, LeaderEpoch: -1, Committed: now, TopicID: t.ID}
	if req.Version >= 6 {
		o.LeaderEpoch = ask.LeaderEpoch
	}
	if ask.Metadata != nil {
		o.Metadata = *ask.Metadata
	}
	if req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		o.Expires = now.Add(time.Duration(req.RetentionTimeMillis) * time.Millisecond)
	}
	return commit{group.Partition{Topic: t.Name, Num: ask.Partition}, o}
}

func (c *offsetCommit) fail(code int16) {
	for _, p := range c.open {
		*p = code
	}
}

// commit answers when the offsets are committed (F2).
func (c *coordinator) commit(ctx context.Context, req *kmsg.OffsetCommitRequest, commits []commit) error {
	s, err := c.shard(ctx, req.Group)
	if err != nil {
		return err
	}
	a, err := s.commit(req, commits)
	if err != nil {
		return err
	}
	return s.committed(ctx, a)
}

func (s *shard) commit(req *kmsg.OffsetCommitRequest, commits []commit) (replication.Appended, error) {
	if err := s.enter(); err != nil {
		return replication.Appended{}, err
	}
	defer s.mu.Unlock()
	h := s.mu.groups[req.Group]
	if h == nil {
		if req.Generation >= 0 {
			if req.Version >= 9 {
				return replication.Appended{}, kerr.GroupIDNotFound
			}
			return replication.Appended{}, kerr.IllegalGeneration
		}
		h = s.groupLocked(req.Group) // offsets without members
	}
	defer s.tidyLocked(h)
	if err := h.CheckCommit(s.c.now(), req); err != nil {
		return replication.Appended{}, err
	}
	records := make([]group.Record, 0, len(commits))
	for _, c := range commits {
		records = append(records, group.OffsetRecord(req.Group, c.partition, *c.offset))
	}
	a, err := s.writeLocked(h, records, commits, nil)
	return a, asError(groupError(err))
}
