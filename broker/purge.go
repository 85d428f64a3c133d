package broker

import (
	"context"
	"time"

	"firn/replication/meta"
	"firn/tiering"
)

const (
	// purgeEvery is how often the tombstones of deleted topics are looked at.
	purgeEvery = 30 * time.Second
	// spaceEvery is how often the disk's reserve is.
	spaceEvery = time.Second
)

// runArchive has the archive work, finish the deletion of topics, and make room
// when the disk is at its reserve.
func (b *Broker) runArchive(ctx context.Context) error {
	tick := func(every time.Duration, do func(context.Context)) func() error {
		return func() error {
			for {
				do(ctx)
				if !sleep(ctx, every) {
					return nil
				}
			}
		}
	}
	parts := []func() error{tick(purgeEvery, b.purge)}
	if b.archive != nil {
		room := roomMaker{b: b}
		parts = append(parts, tick(spaceEvery, room.check), func() error {
			if err := b.archive.Run(ctx); ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
	done := make(chan error, len(parts))
	for _, part := range parts {
		go func() { done <- part() }()
	}
	var first error
	for range parts {
		if err := <-done; err != nil && first == nil {
			first = err
		}
	}
	return first
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

// roomMaker drops archived local segments while the disk is at its reserve.
type roomMaker struct {
	b *Broker
	// after is when to look again: what was dropped leaves the disk only after
	// file.delete.delay.ms.
	after time.Time
}

func (r *roomMaker) check(ctx context.Context) {
	space := r.b.replicas.dir.Space()
	now := r.b.now()
	if !space.Low || now.Before(r.after) {
		return
	}
	freed, err := r.b.archive.FreeLocal(ctx, space.Reserve-space.Free+space.Reserve/4)
	if err != nil {
		if ctx.Err() == nil {
			r.b.log.Warn("making room on the disk", "err", err)
		}
		return
	}
	if freed > 0 {
		r.after = now.Add(r.b.settings().Millis("log.segment.delete.delay.ms") + 2*time.Second)
		r.b.log.Info("disk at its reserve: archived segments dropped", "bytes", freed)
	}
}
