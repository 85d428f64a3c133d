package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"firn/broker/config"
	"firn/replication/meta"
	"firn/tiering"
	"firn/tiering/cache"
)

// archiveStartWait is the default of Config.ArchiveWait.
const archiveStartWait = 10 * time.Second

// openArchive makes sure that the archive is this cluster's, and opens it. newCluster:
// the metadata store had no cluster id before this start.
func (b *Broker) openArchive(ctx context.Context, newCluster bool) error {
	known, err := meta.LoadArchiveID(ctx, b.cfg.Meta)
	if err != nil && !errors.Is(err, meta.ErrNotFound) {
		return err
	}
	example, err := b.anyPointer(ctx)
	if err != nil {
		return err
	}
	if b.cfg.Archive == nil {
		if example != nil {
			return fmt.Errorf("broker: the metadata names archived segments of %s, but no archive is configured: they could not be read. "+
				"Set archive.url to where they are", example.Partition)
		}
		if known != "" && !b.alone() {
			return fmt.Errorf("broker: the brokers of this cluster share an archive (id %s), and this one has none: what it led would not be archived. "+
				"Set archive.url as they have it", known)
		}
		return nil
	}
	start := tiering.Start{ClusterID: b.clusterID, ArchiveID: known, NewMetadata: newCluster, Archived: example, NewID: newID}
	id, takenOver, err := b.archiveOwner(ctx, start)
	if err != nil {
		return err
	}
	c := b.cfg.Settings
	b.cache, err = cache.Open(cache.Config{
		Store:   b.cfg.Archive,
		Memory:  c.Int("archive.cache.memory.bytes"),
		FS:      b.cfg.FS,
		Dir:     b.cfg.CacheDir,
		Disk:    c.Int("archive.cache.disk.bytes"),
		Log:     b.log,
		Metrics: b.cfg.Metrics,
	})
	if err != nil {
		return err
	}
	b.archive = tiering.New(tiering.Config{
		Cache:              b.cache,
		IndexBytes:         c.Int("remote.log.index.file.cache.total.size.bytes"),
		Store:              b.cfg.Archive,
		Pointers:           b.pointers(),
		Identity:           id,
		TakenOver:          takenOver,
		Log:                b.log,
		Registerer:         b.cfg.Metrics,
		Now:                b.now,
		Failpoint:          b.cfg.Failpoint,
		KeepEvery:          min(c.Millis("remote.log.manager.task.interval.ms"), c.Millis("log.retention.check.interval.ms")),
		Workers:            uploaders(c),
		Shortage:           b.shortage,
		CopyBytesPerSecond: noLimitAsZero(c.Int("remote.log.manager.copy.max.bytes.per.second")),
		DeleteGrace:        max(c.Millis("archive.delete.grace.ms"), 1), // 0 means 0 here
		SweepEvery:         c.Millis("archive.sweep.interval.ms"),
	})
	b.replicas.archive = b.archive
	return nil
}

// archiveOwner asks the archive whose it is. An archive that is damaged, away, or
// taken over by another is no reason not to start: what is on disk may be nowhere
// else.
func (b *Broker) archiveOwner(ctx context.Context, start tiering.Start) (id tiering.Identity, takenOver, err error) {
	check, cancel := context.WithTimeout(ctx, cmp.Or(b.cfg.ArchiveWait, archiveStartWait))
	defer cancel()
	ours := tiering.Identity{ClusterID: b.clusterID, ArchiveID: start.ArchiveID}
	id, err = tiering.CheckStart(check, b.cfg.Archive, start)
	switch {
	case err == nil, errors.Is(err, tiering.ErrDamaged):
		if err != nil {
			b.log.Error("the archive is not whole; serving what is", "err", err)
		}
		_, err = meta.MakeArchiveID(ctx, b.cfg.Meta, id.ArchiveID)
		return id, nil, err
	case errors.Is(err, tiering.ErrTakenOver):
		b.log.Error("the archive has another owner; serving what is here, without writing to it", "err", err)
		return ours, err, nil
	case errors.Is(err, tiering.ErrNotOurs) || start.ArchiveID == "" || ctx.Err() != nil:
		return id, nil, err
	}
	// We know whose it was; the archive asks again before it deletes anything.
	b.log.Warn("the archive can't be reached; serving what is on disk until it can", "err", err)
	return ours, nil, nil
}

func noLimitAsZero(n int64) int64 {
	if n == 1<<63-1 {
		return 0
	}
	return n
}

// uploaders is how many segments go up at once: Kafka's default of 10 suits
// Kafka's machines, so that only what somebody has set counts.
func uploaders(c *config.Broker) int {
	const key = "remote.log.manager.copier.thread.pool.size"
	if !c.IsSet(key) {
		return 0
	}
	return int(c.Int(key))
}

// shortage is how many bytes the disk is short of its reserve, or, once others lead
// for it, of the room that it takes to lead again; and of a little more, so that it
// doesn't fall below it again at once.
func (b *Broker) shortage() int64 {
	s := b.replicas.dir.Space()
	switch {
	case b.topics.Load().isFull(b.cfg.NodeID):
		return max(s.Room()-s.Free+s.Reserve/4, 0)
	case s.Low:
		return s.Reserve - s.Free + s.Reserve/4
	}
	return 0
}

// anyPointer finds a partition that has something archived, and its pointer.
func (b *Broker) anyPointer(ctx context.Context) (*archived, error) {
	for _, t := range b.image.meta.Topics {
		for p := range t.Replicas {
			part := tiering.Partition{Topic: t.Name, ID: tiering.TopicID(t.ID), Num: int32(p)}
			ptr, err := b.pointers().LoadPointer(ctx, part)
			if err != nil {
				return nil, err
			}
			if ptr.Exists() && ptr.ManifestKey != "" {
				return &archived{Partition: part, Pointer: ptr}, nil
			}
		}
	}
	return nil, nil
}

// topicInfo is what topic.json says of a topic: all that a restore needs besides
// its manifests (T6).
func (b *Broker) topicInfo(id tiering.TopicID) tiering.TopicInfo {
	t := b.topics.Load().byID[meta.TopicID(id)]
	if t == nil {
		return tiering.TopicInfo{ID: id}
	}
	return tiering.TopicInfo{Name: t.Name, ID: id, Partitions: int32(len(t.Replicas)), Configs: t.overrides}
}

// archived is a partition of which something is.
type archived = struct {
	Partition tiering.Partition
	Pointer   tiering.Pointer
}

// policyOf is what a topic's settings say of its archive.
func policyOf(t config.Topic, c *config.Broker) tiering.Policy {
	p := tiering.Policy{
		Enabled:             t.RemoteStorageEnable,
		CopyDisabled:        t.RemoteLogCopyDisable,
		DeleteOnDisable:     t.RemoteLogDeleteOnDisable,
		RetentionMs:         t.RetentionMs,
		RetentionBytes:      t.RetentionBytes,
		LocalRetentionMs:    t.LocalRetentionMs,
		LocalRetentionBytes: t.LocalRetentionBytes,
		CopyLagMs:           t.RemoteCopyLagMs,
		CopyLagBytes:        t.RemoteCopyLagBytes,
		RollAfter:           c.Millis("archive.upload.max.interval.ms"),
		RollSmallAfter:      c.Millis("archive.upload.small.max.interval.ms"),
		RollBytes:           max(c.Int("archive.upload.min.bytes"), 1), // 0 means the default there
	}
	if !t.CleanupDelete { // nothing goes by age or size
		p.RetentionMs, p.RetentionBytes = -1, -1
	}
	return p
}

// pointers are those of this cluster's archive.
func (b *Broker) pointers() Pointers { return Pointers{Store: b.cfg.Meta, Self: b.registration} }
