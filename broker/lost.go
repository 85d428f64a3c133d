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
// It waits until the log is put back, until nobody counts on it any more and it can
// begin anew as a follower, or until somebody accepts the loss by
// unclean.leader.election.enable=true.
type lostLogs struct {
	mu       sync.Mutex
	names    map[segment.TopicPartition]bool
	accepted bool // since the last call of takeAccepted
	// listed is over which version of its state each was listed at run time.
	listed map[meta.Lost]int32
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
	spare := t.dispensable(name.Partition, rs.node)
	if !spare && !t.settings.UncleanLeaderElection {
		rs.log.Error("the log of a partition is missing: the partition is out of service. Put its directory back and restart the broker, "+
			"or accept that what isn't archived is lost by setting unclean.leader.election.enable=true for the topic",
			"topic", name.Topic, "partition", name.Partition)
		return false
	}
	// With the directory's memory of it the empty log would pass for a damaged one.
	rs.dir.Delete(name)
	rs.lost.accept(name)
	why := "as unclean.leader.election.enable allows"
	if spare {
		why = "for others have what it held"
	}
	rs.log.Warn("the log of a partition is missing and begins anew, "+why, "topic", name.Topic, "partition", name.Partition)
	return true
}

// givenUp lists the replicas in picture x that don't hold what they were counted
// for: lost, found damaged, or, as long as they are counted on, of another history
// than their leader's or the archive's.
func (rs *replicas) givenUp(x *topicIndex) []meta.Lost {
	var out []meta.Lost
	for _, t := range x.byName {
		for p := range t.Replicas {
			if !slices.Contains(t.Replicas[p], rs.node) {
				continue
			}
			r := rs.get(t.ID, int32(p))
			l := meta.Lost{Topic: t.ID, Partition: int32(p)}
			if r == nil && rs.lost.has(segment.TopicPartition{Topic: t.Name, Partition: int32(p)}) || r != nil && r.local.Err() != nil ||
				r != nil && r.part.Discards() && t.names(int32(p), rs.node) {
				out = append(out, l)
			}
		}
	}
	return out
}

// relist brings this broker's list up to what its disks hold at run time: a log
// that has failed (S4) or was found damaged (S5) is listed before anything else is
// done about it (S7), so that somebody else leads. A partition that has no other
// replica isn't: that would help nobody.
func (b *Broker) relist(ctx context.Context, x *topicIndex) error {
	if b.alone() || b.registration() == nil {
		return nil
	}
	listed := x.offline[b.cfg.NodeID]
	var lost []meta.Lost
	for _, l := range b.replicas.givenUp(x) {
		if t := x.byID[l.Topic]; len(t.Replicas[l.Partition]) > 1 && !listed.Lists(l.Topic, l.Partition) {
			lost = append(lost, l)
			b.replicas.lost.listing(l, t.states[l.Partition].Version)
		}
	}
	if len(lost) > 0 {
		b.log.Error("logs are out of service here, and given up to the other replicas", "partitions", len(lost))
		return b.listOffline(ctx, func(o *meta.Offline) bool {
			lost = slices.DeleteFunc(lost, func(l meta.Lost) bool { return o.Lists(l.Topic, l.Partition) })
			o.Add(lost...)
			return len(lost) > 0
		})
	}
	if len(listed.Partitions) > 0 {
		return b.unlist(ctx)
	}
	return nil
}

// unlist takes off this broker's list what it has given up no longer.
func (b *Broker) unlist(ctx context.Context) error {
	x := b.topics.Load()
	still := b.replicas.givenUp(x)
	return b.listOffline(ctx, func(o *meta.Offline) bool {
		var back []meta.Lost
		for id, ps := range o.Partitions {
			for _, p := range ps {
				if l := (meta.Lost{Topic: id, Partition: p}); !slices.Contains(still, l) && b.replicas.regained(x, l) {
					back = append(back, l)
				}
			}
		}
		o.Remove(back...)
		return len(back) > 0
	})
}

// regained: a replica that was given up can be counted on again: its leader has
// taken it into the ISR since (S7); or nobody else is there who could have more.
func (rs *replicas) regained(x *topicIndex, l meta.Lost) bool {
	t := x.byID[l.Topic]
	if !t.has(l.Partition) || !slices.Contains(t.Replicas[l.Partition], rs.node) || len(t.Replicas[l.Partition]) == 1 {
		return true
	}
	s := &t.states[l.Partition]
	if slices.Contains(s.ISR, rs.self()) {
		return s.Version > rs.lost.listedAt(l)
	}
	others := func(m meta.Member) bool { return m.ID != rs.node }
	return s.Leader == meta.NoLeader &&
		(t.settings.UncleanLeaderElection || !slices.ContainsFunc(s.ISR, others) && !slices.ContainsFunc(s.Eligible, others))
}

// listing remembers over which state a partition was listed as given up.
func (l *lostLogs) listing(lost meta.Lost, version int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listed == nil {
		l.listed = map[meta.Lost]int32{}
	}
	l.listed[lost] = version
}

// listedAt is the version of that state. One that was listed before this broker
// has started stands for all: what names its present registration is newer.
func (l *lostLogs) listedAt(lost meta.Lost) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, ok := l.listed[lost]; ok {
		return v
	}
	return meta.Missing
}
