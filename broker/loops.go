package broker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// loops are what this broker does by itself, beyond following the metadata:
//
//	retention    log.retention.check.interval.ms, and when a topic's settings change
//	checkpoints  recovery points, high watermarks and log starts, by
//	             log.flush.offset.checkpoint.interval.ms
//	repairs      of quarantined logs, every second
//	room         whether the disk is full for long, every second (fullness.go)
func (b *Broker) loops(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { b.every(ctx, "log.retention.check.interval.ms", b.retentionDue, b.retain) })
	wg.Go(func() { b.every(ctx, "log.flush.offset.checkpoint.interval.ms", nil, b.checkpoint) })
	wg.Go(func() { b.mend(ctx) })
	wg.Go(func() { b.watchDisk(ctx) })
	wg.Wait()
	return nil
}

// every does what every interval, and when now says so.
func (b *Broker) every(ctx context.Context, interval string, now <-chan struct{}, do func(context.Context)) {
	for {
		t := time.NewTimer(max(b.settings().Millis(interval), time.Millisecond))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-now:
			t.Stop()
		}
		do(ctx)
	}
}

// retain moves the log start of every partition led here past what retention.ms
// and retention.bytes no longer keep. Who doesn't lead decides nothing (T4).
func (b *Broker) retain(ctx context.Context) {
	now := b.now()
	for _, r := range b.replicas.list() {
		if ctx.Err() != nil {
			return
		}
		if err := r.retain(ctx, now); err != nil && ctx.Err() == nil {
			b.log.Warn("retention", "topic", r.name.Topic, "partition", r.name.Partition, "err", err)
		}
	}
}

// checkpoint writes how far the logs are flushed, so that a crash costs a scan
// of little.
func (b *Broker) checkpoint(context.Context) {
	if err := b.replicas.dir.Checkpoint(); err != nil {
		b.log.Error("checkpoint", "err", err)
	}
}

// retain applies retention now. A log with an archive is kept by it; this is for
// settings that have just changed.
func (r *replica) retain(ctx context.Context, now time.Time) error {
	if _, _, here := r.part.Leader(); !here {
		return nil
	}
	if r.tiered != nil {
		return errors.Join(r.tiered.Keep(ctx, now), r.tiered.Evict(ctx, now))
	}
	_, err := r.local.ApplyRetention(ctx, now)
	return err
}
