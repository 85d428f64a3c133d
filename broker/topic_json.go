package broker

import (
	"context"
	"errors"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"

	"firn/replication/meta"
	"firn/tiering"
)

// describer keeps the bucket's topic.json of each topic with an archive true, so
// that the bucket alone tells what a topic is (T6): after its configs or its number
// of partitions have changed, and when it is new. It goes by the picture alone, and
// looks at every topic once after a start: a change whose broker died before it had
// told the bucket is told then. The leader of partition 0 does it.
//
// One goroutine runs it; nobody else touches its fields.
type describer struct {
	b *Broker
	// seen is how a topic was drawn when it was last looked at; told what the
	// bucket says of it, as far as this process has brought it there.
	seen map[meta.TopicID]*topic
	told map[meta.TopicID]tiering.TopicInfo
	// gone are topics that were deleted while they were being told of: should
	// that have come after their purge, there is something to remove.
	gone map[meta.TopicID]string
}

const (
	// describeEvery bounds how often the picture is looked at.
	describeEvery = 100 * time.Millisecond
	// describeTimeout ends an attempt long before the grace of a deletion does.
	describeTimeout = 30 * time.Second
	describeRetry   = 500 * time.Millisecond
	describeMax     = 30 * time.Second
	// describers bounds the topics that are told at once.
	describers = 4
)

func (b *Broker) describeTopics(ctx context.Context) {
	d := &describer{b: b, seen: map[meta.TopicID]*topic{}, told: map[meta.TopicID]tiering.TopicInfo{}, gone: map[meta.TopicID]string{}}
	retry := describeRetry
	for {
		changed := b.changed.wait()
		err := d.round(ctx)
		if err == nil {
			retry = describeRetry
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			if !sleep(ctx, describeEvery) {
				return
			}
			continue
		}
		if ctx.Err() == nil {
			b.log.Warn("telling the archive what topics are; will retry", "err", err, "in", retry)
		}
		if !sleep(ctx, retry) {
			return
		}
		retry = min(2*retry, describeMax)
	}
}

// round tells of all topics that are due. An error means that some still are.
func (d *describer) round(ctx context.Context) error {
	x, self := d.b.topics.Load(), d.b.self()
	for id := range d.seen {
		if x.byID[id] == nil {
			delete(d.seen, id)
			delete(d.told, id)
		}
	}
	var due []*topic
	for id, t := range x.byID {
		if d.seen[id] == t {
			continue
		}
		if d.due(t, self) {
			due = append(due, t)
		} else {
			d.seen[id] = t
		}
	}
	told := make([]*tiering.TopicInfo, len(due))
	var g errgroup.Group
	g.SetLimit(describers)
	for i, t := range due {
		g.Go(func() (err error) {
			told[i], err = d.tell(ctx, t, self)
			return err
		})
	}
	err := g.Wait()
	now := d.b.topics.Load()
	for i, t := range due {
		if told[i] == nil {
			continue
		}
		d.seen[t.ID], d.told[t.ID] = t, *told[i]
		if now.byID[t.ID] == nil {
			d.gone[t.ID] = t.Name
		}
	}
	return errors.Join(err, d.purgeGone(ctx))
}

// due: the bucket is to be told of t, and by this broker.
func (d *describer) due(t *topic, self meta.Member) bool {
	told, known := d.told[t.ID]
	if t.internal || len(t.states) == 0 || t.states[0].Leader != self || !t.settings.RemoteStorageEnable && !known {
		return false
	}
	return !known || told.Partitions != int32(len(t.Replicas)) || !maps.Equal(told.Configs, t.overrides)
}

// tell brings to the bucket what the metadata store says of t now: the picture may
// be old. Without an error and a result it isn't this broker's to tell.
func (d *describer) tell(ctx context.Context, t *topic, self meta.Member) (*tiering.TopicInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	from, err := meta.LoadTopic(ctx, d.b.cfg.Meta, t.Name)
	switch {
	case errors.Is(err, meta.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case from.ID != t.ID || from.Deleting || len(from.States) == 0 || from.States[0].Leader != self:
		return nil, nil // a newer picture is on its way
	}
	info := tiering.TopicInfo{Name: from.Name, ID: tiering.TopicID(from.ID), Partitions: int32(len(from.Replicas)), Configs: from.Config.Values}
	if err := d.b.archive.PutTopic(ctx, info); err != nil {
		return nil, err
	}
	return &info, nil
}

// purgeGone removes what was told of topics that had been purged by then.
func (d *describer) purgeGone(ctx context.Context) error {
	if len(d.gone) == 0 {
		return nil
	}
	purges, err := meta.LoadPurges(ctx, d.b.cfg.Meta)
	if err != nil {
		return err
	}
	waiting := map[meta.TopicID]bool{}
	for _, p := range purges {
		waiting[p.ID] = true
	}
	for id, name := range d.gone {
		if waiting[id] {
			continue // the purge is to come, or looks again
		}
		if _, err := d.b.archive.Purge(ctx, name, tiering.TopicID(id)); err != nil {
			return err
		}
		delete(d.gone, id)
	}
	return nil
}
