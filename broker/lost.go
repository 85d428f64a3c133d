package broker

import (
	"context"
	"slices"
	"sync"

	"firn/replication/meta"
	"firn/segment"
)

// lostLogs are the partitions whose logs are missing from the disk, though this
// broker was counted for what they held (S7). Such a partition is listed as given
// up and isn't made anew: what was acknowledged would be gone without a word.
// It waits until the log is put back, or until somebody accepts the loss by
// unclean.leader.election.enable=true.
type lostLogs struct {
	mu       sync.Mutex
	names    map[segment.TopicPartition]bool
	accepted bool // since the last call of takeAccepted
}

// find asks the log directory.
func (l *lostLogs) find(dir *segment.Dir) error {
	missing, err := dir.Missing()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = make(map[segment.TopicPartition]bool, len(missing))
	for _, tp := range missing {
		l.names[tp] = true
	}
	return nil
}

func (l *lostLogs) has(tp segment.TopicPartition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names[tp]
}

// accept takes a partition off the list: it begins anew.
func (l *lostLogs) accept(tp segment.TopicPartition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted = l.accepted || l.names[tp]
	delete(l.names, tp)
}

func (l *lostLogs) takeAccepted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.accepted
	l.accepted = false
	return was
}

// openLost says whether a partition whose log is lost may be opened all the same.
func (rs *replicas) openLost(t *topic, name segment.TopicPartition) bool {
	if !t.settings.UncleanLeaderElection {
		rs.log.Error("the log of a partition is missing: the partition is out of service. Put its directory back and restart the broker, "+
			"or accept that what isn't archived is lost by setting unclean.leader.election.enable=true for the topic",
			"topic", name.Topic, "partition", name.Partition)
		return false
	}
	// With the directory's memory of it the empty log would pass for a damaged one.
	if err := rs.dir.Delete(name); err != nil {
		rs.log.Error("forgetting a lost log", "topic", name.Topic, "partition", name.Partition, "err", err)
		return false
	}
	rs.lost.accept(name)
	rs.log.Warn("the log of a partition is missing and begins anew, as unclean.leader.election.enable allows", "topic", name.Topic, "partition", name.Partition)
	return true
}

// givenUp lists the replicas in picture x that don't hold what they were counted
// for: lost, or found damaged.
func (rs *replicas) givenUp(x *topicIndex) []meta.Lost {
	var out []meta.Lost
	for _, t := range x.byName {
		for p := range t.Replicas {
			if !slices.Contains(t.Replicas[p], rs.node) {
				continue
			}
			r := rs.get(t.ID, int32(p))
			if r == nil && rs.lost.has(segment.TopicPartition{Topic: t.Name, Partition: int32(p)}) || r != nil && r.local.Err() != nil {
				out = append(out, meta.Lost{Topic: t.ID, Partition: int32(p)})
			}
		}
	}
	return out
}

// unlist takes off this broker's list what it has given up no longer.
func (b *Broker) unlist(ctx context.Context) error {
	o, err := meta.LoadOffline(ctx, b.cfg.Meta, b.cfg.NodeID)
	if err != nil {
		return err
	}
	still := b.replicas.givenUp(b.topics.Load())
	var back []meta.Lost
	for id, ps := range o.Partitions {
		for _, p := range ps {
			if l := (meta.Lost{Topic: id, Partition: p}); !slices.Contains(still, l) {
				back = append(back, l)
			}
		}
	}
	if len(back) == 0 {
		return nil
	}
	o.Remove(back...)
	return b.commit(ctx, meta.SetOffline(o))
}
