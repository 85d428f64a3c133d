package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"firn/replication/meta"
	"firn/segment"
	"firn/tiering"
)

// purgeEvery is how often the tombstones of deleted topics are looked at, unless
// one is known to be due earlier. A deletion seen here is looked at at once: until
// its tombstone is in the bucket, a restore would bring the topic back.
const purgeEvery = 30 * time.Second

// awayEvery is how often it is looked whether those who were away have deleted theirs.
const awayEvery = 3 * time.Second

// runArchive has the archive work, tells it what topics are, and finishes their
// deletion.
func (b *Broker) runArchive(ctx context.Context) error {
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() {
		select {
		case <-b.ready: // before that it is not known whom it falls to
		case <-ctx.Done():
		}
		for {
			again := time.NewTimer(b.purge(ctx))
			select {
			case <-ctx.Done():
				again.Stop()
				return
			case <-again.C:
			case <-b.purgeDue:
				again.Stop()
			}
		}
	})
	if b.archive == nil {
		return nil
	}
	background.Go(func() { b.describeTopics(ctx) })
	if err := b.archive.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// purge removes what is archived of deleted topics. The tombstone in the metadata
// store, written with the deletion, goes last: until then any start goes on here.
// It returns when to look again.
func (b *Broker) purge(ctx context.Context) (again time.Duration) {
	purges, err := meta.LoadPurges(ctx, b.cfg.Meta)
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("reading the tombstones of deleted topics; will retry", "err", err)
		}
		return purgeEvery
	}
	again = purgeEvery
	for _, p := range purges {
		if p, err = b.logsGone(ctx, p); err != nil && ctx.Err() == nil {
			b.log.Warn("telling that a deleted topic's logs are gone; will retry", "topic", p.Name, "err", err)
		}
		if !b.purges(p) {
			continue
		}
		wait, err := b.purgeTopic(ctx, p)
		if err != nil && ctx.Err() == nil {
			b.log.Warn("removing a deleted topic from the archive; will retry", "topic", p.Name, "err", err)
		}
		if wait > 0 {
			again = min(again, wait)
		}
	}
	return again
}

// purges: it falls to this broker, by hash of those that are registered.
func (b *Broker) purges(p meta.Purge) bool {
	brokers := b.topics.Load().brokers
	if len(brokers) == 0 {
		return false
	}
	return brokers[int(p.ID[0])%len(brokers)].ID == b.cfg.NodeID
}

// purgeTopic removes what is archived of one topic, or says how long a reader may
// still be at it.
func (b *Broker) purgeTopic(ctx context.Context, p meta.Purge) (wait time.Duration, err error) {
	if b.archive != nil {
		if err := b.archive.Bury(ctx, p.Name, tiering.TopicID(p.ID)); err != nil {
			return 0, err
		}
	}
	grace := b.settings().Millis("archive.delete.grace.ms")
	if wait := time.UnixMilli(p.At).Add(grace).Sub(b.now()); wait > 0 {
		return wait, nil
	}
	if b.archive != nil {
		if _, err := b.archive.Purge(ctx, p.Name, tiering.TopicID(p.ID)); err != nil {
			return 0, err
		}
	}
	if waiting, err := b.waitsForLogs(ctx, p); waiting || err != nil {
		return awayEvery, err
	}
	return 0, b.commit(ctx, meta.Purged(p))
}

// logsGone says in the tombstone that this broker has none of the topic's logs any
// more, if it waits for that: brokers that are away keep it standing until they
// are back, have found it, and have deleted theirs.
func (b *Broker) logsGone(ctx context.Context, p meta.Purge) (meta.Purge, error) {
	if !slices.Contains(p.Waiting, b.cfg.NodeID) {
		return p, nil
	}
	found, err := b.replicas.dir.Partitions()
	if err != nil {
		return p, err
	}
	if slices.ContainsFunc(found, func(f segment.Found) bool { return f.TopicID == p.ID }) {
		return p, nil
	}
	if err := b.commit(ctx, meta.LogsGone(p, b.cfg.NodeID)); err != nil {
		if errors.Is(err, meta.ErrVersion) || errors.Is(err, meta.ErrNotFound) {
			err = nil // another broker said so; the next look says ours
		}
		return p, err
	}
	p.Waiting = slices.DeleteFunc(slices.Clone(p.Waiting), func(id int32) bool { return id == b.cfg.NodeID })
	p.Version++
	return p, nil
}

// waitsForLogs: a broker that had logs of the topic has yet to delete them. One
// that was unregistered never will.
func (b *Broker) waitsForLogs(ctx context.Context, p meta.Purge) (bool, error) {
	for _, id := range p.Waiting {
		r, err := meta.LoadRegistration(ctx, b.cfg.Meta, id)
		if errors.Is(err, meta.ErrNotFound) {
			continue
		}
		if err != nil || !r.Retired {
			return true, err
		}
	}
	return false, nil
}
