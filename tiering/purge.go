package tiering

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"firn/tiering/objstore"
)

// Bury writes a deleted topic's tombstone into the bucket, so that a restore
// skips the topic. Purge goes on from there.
func (a *Archive) Bury(ctx context.Context, topic string, id TopicID) error {
	if err := a.Owner(ctx); err != nil {
		return err
	}
	if err := a.failpoint("tiering.purge.tombstone"); err != nil {
		return err
	}
	return putTombstone(ctx, a.store, Tombstone{Name: topic, ID: id, Time: a.cfg.Now().UnixMilli()})
}

// Purge removes all that is archived of a deleted topic: data, then pages,
// manifests, topic.json, and the tombstone in the bucket as the last, so that
// whatever ends it, it can be begun again. The caller calls it when the grace
// since the deletion is over, on one broker; it keeps a tombstone of its own in the
// metadata store until Purge has returned nil, for the fence: no pointer of the
// topic can be moved any more. Keys that aren't ours stay.
func (a *Archive) Purge(ctx context.Context, topic string, id TopicID) (removed int, err error) {
	if err := a.Bury(ctx, topic, id); err != nil {
		return 0, fmt.Errorf("tiering: purge %s: %w", topic, err)
	}
	for _, kinds := range [][]Kind{{KindLog, KindIndex}, {KindPage}, {KindManifest}, {KindTopic}, {KindDeleted}} {
		n, err := a.purgeKinds(ctx, topic, id, kinds)
		removed += n
		if err != nil {
			return removed, fmt.Errorf("tiering: purge %s: %w", topic, err)
		}
	}
	a.log.Info("deleted topic removed from the archive", "topic", topic, "objects", removed)
	return removed, nil
}

// purgeBatch bounds how many keys are listed before they are deleted.
const purgeBatch = 1000

var errEnough = errors.New("tiering: enough keys")

// purgeKinds removes a topic's objects of these kinds. What a listing shows late
// is found by listing until one shows nothing.
func (a *Archive) purgeKinds(ctx context.Context, topic string, id TopicID, kinds []Kind) (removed int, err error) {
	for {
		var keys []string
		err := a.store.List(ctx, topicDir(topic, id), func(o objstore.Object) error {
			if k, ok := ParseKey(o.Key); ok && k.Partition.ID == id && k.Partition.Topic == topic && slices.Contains(kinds, k.Kind) {
				keys = append(keys, o.Key)
			}
			if len(keys) == purgeBatch {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return removed, err
		}
		if len(keys) == 0 {
			return removed, nil
		}
		for _, key := range keys {
			if err := a.failpoint("tiering.purge.delete"); err != nil {
				return removed, err
			}
			if err := a.store.Delete(ctx, key); err != nil {
				return removed, err
			}
			removed++
		}
	}
}
