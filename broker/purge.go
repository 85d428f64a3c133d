package broker

import (
	"context"
	"sync"
	"time"

	"firn/replication/meta"
	"firn/tiering"
)

// purgeEvery is how often the tombstones of deleted topics are looked at.
const purgeEvery = 30 * time.Second

// runArchive has the archive work, and finishes the deletion of topics.
func (b *Broker) runArchive(ctx context.Context) error {
	var purging sync.WaitGroup
	defer purging.Wait()
	purging.Go(func() {
		for {
			b.purge(ctx)
			if !sleep(ctx, purgeEvery) {
				return
			}
		}
	})
	if b.archive == nil {
		return nil
	}
	if err := b.archive.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// purge removes what is archived of deleted topics. The tombstone in the metadata
// store, written with the deletion, goes last: until then any start goes on here.
func (b *Broker) purge(ctx context.Context) {
	purges, err := meta.LoadPurges(ctx, b.cfg.Meta)
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("reading the tombstones of deleted topics; will retry", "err", err)
		}
		return
	}
	for _, p := range purges {
		if !b.purges(p) {
			continue
		}
		if err := b.purgeTopic(ctx, p); err != nil && ctx.Err() == nil {
			b.log.Warn("removing a deleted topic from the archive; will retry", "topic", p.Name, "err", err)
		}
	}
}

// purges: it falls to this broker, by hash of those that are registered.
func (b *Broker) purges(p meta.Purge) bool {
	brokers := b.topics.Load().brokers
	if len(brokers) == 0 {
		return false
	}
	return brokers[int(p.ID[0])%len(brokers)].ID == b.cfg.NodeID
}

func (b *Broker) purgeTopic(ctx context.Context, p meta.Purge) error {
	if b.archive != nil {
		if err := b.archive.Bury(ctx, p.Name, tiering.TopicID(p.ID)); err != nil {
			return err
		}
	}
	grace := b.settings().Millis("archive.delete.grace.ms")
	if b.now().Before(time.UnixMilli(p.At).Add(grace)) {
		return nil // a reader may still be at it
	}
	if b.archive != nil {
		if _, err := b.archive.Purge(ctx, p.Name, tiering.TopicID(p.ID)); err != nil {
			return err
		}
	}
	return b.commit(ctx, meta.Purged(p))
}
