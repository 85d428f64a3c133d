package main

import (
	"context"
	"errors"
	"fmt"

	"firn/replication/meta"
	"firn/tiering"
	"firn/zkmeta/solo"
)

// writeFile writes what the plan says to a new metadata file.
func writeFile(ctx context.Context, path string, plan *tiering.RestorePlan, node int32) (err error) {
	store, err := solo.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := meta.Init(ctx, store); err != nil {
		return err
	}
	if _, err := meta.MakeClusterID(ctx, store, plan.Now.ClusterID); err != nil {
		return err
	}
	if _, err := meta.MakeArchiveID(ctx, store, plan.Now.ArchiveID); err != nil {
		return err
	}
	w := planWriter{
		store: store, plan: plan,
		place: func(partitions int) [][]int32 {
			all := make([][]int32, partitions)
			for p := range all {
				all[p] = []int32{node}
			}
			return all
		},
		fence: func(w meta.Write) meta.Write { return w },
	}
	return w.write(ctx)
}

// planWriter writes what a plan says to a metadata store.
type planWriter struct {
	store meta.Store
	plan  *tiering.RestorePlan
	// place chooses the replicas of each of so many partitions.
	place func(partitions int) [][]int32
	// fence adds to a write what it must rest on.
	fence func(meta.Write) meta.Write
}

func (w planWriter) write(ctx context.Context) error {
	if err := w.fence(meta.ReserveProducerIDs(w.plan.ProducerID)).Commit(ctx, w.store); err != nil {
		return err
	}
	for _, t := range w.plan.Topics {
		if err := w.topic(ctx, t); err != nil {
			return fmt.Errorf("topic %s: %w", t.Info.Name, err)
		}
	}
	return nil
}

// firstEpoch is the broker epoch of a broker's first registration.
const firstEpoch = 1

// topic writes a topic. The state of every partition is "leader none" above every
// epoch of the old cluster, with all replicas in sync as of their first
// registration: a broker with an empty disk holds what they are counted for, which
// is in the archive, and whoever is elected begins its log at the archived end (T8).
func (w planWriter) topic(ctx context.Context, t tiering.RestoreTopic) error {
	topic := meta.Topic{Name: t.Info.Name, ID: meta.TopicID(t.Info.ID), Replicas: w.place(len(t.Partitions))}
	if err := w.fence(meta.CreateTopic(topic, t.Info.Configs)).Commit(ctx, w.store); err != nil {
		return err
	}
	var writes []meta.Write
	for i, p := range t.Partitions {
		var isr []meta.Member
		for _, id := range topic.Replicas[i] {
			isr = append(isr, meta.Member{ID: id, Epoch: firstEpoch})
		}
		write, err := meta.ChangeState(meta.StateChange{Topic: topic.Name, ID: topic.ID, Partition: int32(i), State: meta.PartitionState{
			Leader: meta.NoLeader, LeaderEpoch: w.plan.Epoch, ISR: isr, Version: meta.Missing,
		}})
		if err != nil {
			return err
		}
		if p.Pointer.ManifestKey != "" {
			write.Ops = append(write.Ops, meta.Op{Kind: meta.Create, Path: meta.PointerPath(topic.ID, int32(i)), Value: meta.EncodePointer(metaPointer(p.Pointer))})
		}
		writes = append(writes, w.fence(write))
	}
	return errors.Join(meta.CommitAll(ctx, w.store, writes)...)
}

func metaPointer(p tiering.Pointer) meta.Pointer {
	return meta.Pointer{
		ManifestKey: p.ManifestKey, ManifestSize: p.ManifestSize, ManifestCRC: p.ManifestCRC,
		Sequence: p.Sequence, LastEpoch: p.LastEpoch, LogStart: p.LogStart, ArchivedEnd: p.ArchivedEnd,
	}
}
