package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/broker/group"
	"firn/replication"
)

// expire writes deletions of the offsets that are past their time, and of groups
// of which nothing is left.
func (s *shard) expire() {
	if s.enter() != nil {
		return
	}
	defer s.mu.Unlock()
	now := s.c.now()
	for _, h := range s.mu.groups {
		if h.open > 0 {
			continue // commits are on their way
		}
		expired, empty := h.Expire(now)
		var err error
		switch {
		case empty:
			_, err = s.deleteLocked(h)
		case len(expired) > 0:
			_, err = s.dropLocked(h, expired)
		default:
			continue
		}
		if err != nil {
			s.c.log.Warn("expiry of offsets", "group", h.Name(), "err", err)
			return
		}
		s.c.log.Info("offsets expired", "group", h.Name(), "partitions", len(expired), "deleted", empty)
	}
}

// forget writes deletions of the offsets of topics that are gone.
func (s *shard) forget(gone map[string][16]byte) {
	if s.enter() != nil {
		return
	}
	defer s.mu.Unlock()
	for _, h := range s.mu.groups {
		var theirs []group.Partition
		for topic, offsets := range h.Offsets() {
			id, ok := gone[topic]
			if !ok {
				continue
			}
			for p, o := range offsets {
				if o.TopicID == id || o.TopicID == [16]byte{} {
					theirs = append(theirs, group.Partition{Topic: topic, Num: p})
				}
			}
		}
		if len(theirs) == 0 {
			continue
		}
		if _, err := s.dropLocked(h, theirs); err != nil {
			s.c.log.Warn("offsets of a deleted topic stay", "group", h.Name(), "err", err)
			return
		}
	}
}

// dropLocked deletes offsets of a group.
func (s *shard) dropLocked(h *hosted, partitions []group.Partition) (replication.Appended, error) {
	records := make([]group.Record, 0, len(partitions))
	commits := make([]commit, 0, len(partitions))
	for _, p := range partitions {
		records = append(records, group.OffsetTombstone(h.Name(), p.Topic, p.Num))
		commits = append(commits, commit{partition: p})
	}
	return s.writeLocked(h, records, commits, nil)
}

// deleteLocked deletes a group with all that it has. It is gone for everybody as
// soon as that is appended: what comes after it in the log is another group.
func (s *shard) deleteLocked(h *hosted) (replication.Appended, error) {
	records := h.Tombstones()
	for i := range s.mu.unsettled {
		if u := &s.mu.unsettled[i]; u.of == h {
			for _, c := range u.commits { // not among its offsets yet, but in the log
				records = append(records, group.OffsetTombstone(h.Name(), c.partition.Topic, c.partition.Num))
			}
		}
	}
	a, err := s.appendLocked(records)
	if err != nil {
		return a, err
	}
	delete(s.mu.groups, h.Name())
	s.c.timers.drop(h)
	s.deliverLocked(h.Abandon(kerr.UnknownMemberID).Replies)
	return a, nil
}

// deleteGroup is DeleteGroups for one group.
func (c *coordinator) deleteGroup(ctx context.Context, name string) error {
	s, err := c.shard(ctx, name)
	if err != nil {
		return err
	}
	a, err := s.deleteGroup(name)
	if err != nil {
		return err
	}
	return s.committed(ctx, a)
}

func (s *shard) deleteGroup(name string) (replication.Appended, error) {
	if err := s.enter(); err != nil {
		return replication.Appended{}, err
	}
	defer s.mu.Unlock()
	h := s.mu.groups[name]
	if h == nil {
		return replication.Appended{}, kerr.GroupIDNotFound
	}
	if err := h.CheckDelete(); err != nil {
		return replication.Appended{}, err
	}
	a, err := s.deleteLocked(h)
	if err != nil {
		return a, groupError(err)
	}
	return a, nil
}
