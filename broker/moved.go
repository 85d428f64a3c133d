package broker

import (
	"context"
	"slices"

	"firn/replication/meta"
	"firn/segment"
)

// leave ends the replicas that this broker hosts no longer, since a reassignment
// has moved them to others, and deletes their logs.
func (rs *replicas) leave(ctx context.Context, old, next *topicIndex) error {
	var keys []replicaKey
	for id, t := range next.byID {
		if old.byID[id] == t {
			continue
		}
		for p := range t.Replicas {
			if rs.get(id, int32(p)) != nil && t.movedFrom(int32(p), rs.node) {
				keys = append(keys, replicaKey{id, int32(p)})
			}
		}
	}
	var names []segment.TopicPartition
	for _, k := range keys {
		r := rs.get(k.topic, k.index)
		if err := rs.end(ctx, r); err != nil {
			return err
		}
		names = append(names, r.name)
		next.byID[k.topic].parts[k.index] = nil
		rs.log.Info("replica moved to other brokers; its log is deleted here", "topic", r.name.Topic, "partition", r.name.Partition)
	}
	rs.forget(keys, names)
	return nil
}

// forget deletes logs whose replicas have ended.
func (rs *replicas) forget(keys []replicaKey, names []segment.TopicPartition) {
	if len(names) == 0 {
		return
	}
	rs.dir.Delete(names...)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for i, k := range keys {
		delete(rs.mu.all, k)
		rs.lost.accept(names[i])
	}
}

// movedFrom: others have taken the partition over from broker node. Both the topic
// and the state say so; they were written together.
func (t *topic) movedFrom(p, node int32) bool {
	s := &t.states[p]
	return !slices.Contains(t.Replicas[p], node) && s.Leader != meta.NoLeader && s.Leader.ID != node && len(s.ISR) > 0 &&
		!slices.ContainsFunc(s.ISR, func(m meta.Member) bool { return m.ID == node })
}

// deleteMoved deletes the logs of partitions that were moved to other brokers
// while this one was away. Only a log that ends before the present epoch is known
// to be one that others have taken over: any other is kept, and logged.
func (b *Broker) deleteMoved() error {
	found, err := b.replicas.dir.Partitions()
	if err != nil {
		return err
	}
	x := b.topics.Load()
	var doomed []segment.TopicPartition
	for _, f := range found {
		t := x.byName[f.Topic]
		if t == nil || t.ID != f.TopicID || !t.has(f.Partition) || slices.Contains(t.Replicas[f.Partition], b.cfg.NodeID) {
			continue
		}
		l, err := b.replicas.dir.Open(f.TopicPartition, f.TopicID, segment.Options{})
		if err != nil {
			b.log.Warn("stray log: the partition is no longer placed here; it can't be opened and is kept", "topic", f.Topic, "partition", f.Partition, "err", err)
			continue
		}
		if epoch := t.states[f.Partition].LeaderEpoch; !t.movedFrom(f.Partition, b.cfg.NodeID) || epoch <= l.LatestEpoch() {
			b.log.Warn("stray log: the partition is no longer placed here, but nobody is known to have taken it over; it is kept",
				"topic", f.Topic, "partition", f.Partition, "epoch", epoch, "log_epoch", l.LatestEpoch())
			continue
		}
		b.log.Info("log of a partition that was moved to other brokers is deleted", "topic", f.Topic, "partition", f.Partition)
		doomed = append(doomed, f.TopicPartition)
	}
	if len(doomed) > 0 {
		b.replicas.dir.Delete(doomed...)
	}
	return nil
}
