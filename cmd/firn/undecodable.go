package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/segment/batch"
)

// The client library says nothing of a batch that is garbled inside: it decodes
// what comes before, and then passes over the rest if another batch came with it,
// or fetches the batch again, for ever.

// lookAround looks at the partitions that have stood still for a while.
func (r *replay) lookAround(ctx context.Context, cl *kgo.Client, parts map[int32]*stretch, now time.Time) error {
	for p, s := range parts {
		if now.Sub(s.moved) < noticeEvery {
			continue
		}
		s.moved = now
		if err := r.lookAt(ctx, cl, p, s); err != nil {
			return err
		}
	}
	return nil
}

// lookAt is why nobody can read what s comes to next, if the batch there is why;
// nil if it can be decoded, or if nothing can be said now. What can be decoded
// behind it is noted, so that a topic with many gaps, as compaction leaves them,
// is read twice at most.
func (r *replay) lookAt(ctx context.Context, cl *kgo.Client, partition int32, s *stretch) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	leader, _, err := cl.PartitionLeader(r.topic, partition)
	if err != nil || leader < 0 {
		return nil
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, s.next, 1<<20 // a batch comes whole, be it larger
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = r.topic, r.id, append(t.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes, req.MaxBytes, req.SessionEpoch = 1, 1<<20, -1 // and no wait: it was fetched before
	req.Topics = append(req.Topics, t)
	resp, err := cl.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return nil
	}
	ts := resp.(*kmsg.FetchResponse).Topics
	if len(ts) != 1 || len(ts[0].Partitions) != 1 || ts[0].Partitions[0].ErrorCode != 0 {
		return nil
	}
	first, next, err := decodable(ts[0].Partitions[0].RecordBatches, s.next)
	if err != nil {
		return fmt.Errorf("%s: partition %d, offset %d: nobody can decode the batch with offsets %d to %d (%w); `firn consume %s:%d --from %d` goes on behind it",
			r.topic, partition, s.next, first, next-1, err, r.topic, partition, next)
	}
	s.decodable = next
	return nil
}

// decodable tells up to where the batches in b, which begin at or before offset
// at, can be decoded; or which offsets the first has, if that one can't be.
func decodable(b []byte, at int64) (first, next int64, err error) {
	first, next = at, at
	for {
		bt, rest, err := batch.Next(b)
		if errors.Is(err, batch.ErrShort) {
			return first, next, nil // the last was cut off, or there is none
		}
		from, below := next, next+1
		if err == nil {
			from, below = bt.BaseOffset(), bt.NextOffset()
			if err = batch.Verify(bt); err == nil {
				err = batch.Walk(bt, batch.Limit{}, func(batch.Record) error { return nil })
			}
		}
		switch {
		case err == nil || errors.Is(err, batch.ErrTooLarge):
		case next > at:
			return first, next, nil // that one's turn is yet to come
		default:
			return from, below, err
		}
		b, next = rest, below
	}
}

// failed is what to say of an error that ended the reading of a partition.
func (r *replay) failed(ctx context.Context, cl *kgo.Client, p int32, s *stretch, err error) error {
	if s == nil {
		return fmt.Errorf("read %s: %w", r.topic, err)
	}
	if bad := r.lookAt(ctx, cl, p, s); bad != nil {
		return bad
	}
	hint := ""
	if isCode(err, "CORRUPT_MESSAGE") {
		hint = "; the broker's log says what is lost, `--from` with a later offset goes on behind it"
	}
	return fmt.Errorf("read %s: partition %d, offset %d: %w%s", r.topic, p, s.next, err, hint)
}
