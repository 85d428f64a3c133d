package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"firn/replication"
	"firn/replication/isr"
	"firn/replication/meta"
	"firn/segment"
	"firn/tiering"
	"firn/tiering/cache"
)

// open opens everything that is on the disk, as broker.join does.
func (p *process) open(ctx context.Context) (err error) {
	if p.dir, err = segment.OpenDir(segment.DirConfig{Path: dataDir, FS: p.fs, MinFreeBytes: p.w.plan.reserve, Now: p.m.now, Log: p.log.logger()}); err != nil {
		return err
	}
	if err := p.retry(ctx, "reads everything", func() (err error) {
		p.img, p.last, err = meta.Begin(ctx, p.zk)
		return err
	}); err != nil {
		return err
	}
	if p.epochs, err = readEpochs(p.fs); err != nil {
		return err
	}
	store := &storeClient{p.w.bucket, p}
	if p.cache, err = cache.Open(cache.Config{Store: store, Memory: 8 << 20, Jitter: noJitter}); err != nil {
		return err
	}
	var ids atomic.Uint64
	p.archive = tiering.New(tiering.Config{
		Store: store, Pointers: p.pointers(), Identity: p.w.identity, Cache: p.cache, Now: p.m.now, Log: p.log.logger(),
		// Ids need only differ.
		Random:      func() uint64 { return uint64(p.m.id)<<56 | uint64(p.m.starts)<<40 | ids.Add(1) },
		DeleteGrace: p.w.plan.grace, SweepEvery: p.w.plan.sweepEvery,
	})
	p.lease = replication.NewLease()
	missing, err := p.dir.Missing()
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		p.log.note("missing logs: %v", missing)
	}
	t := p.img.Topics[topic]
	for i := range t.Replicas {
		r, err := p.openReplica(ctx, t, int32(i))
		if err != nil {
			return err
		}
		p.parts = append(p.parts, r)
	}
	p.opened.Store(true)
	for _, r := range p.parts {
		p.run(r.roles)
		p.run(func() { p.upload(r) })
		p.run(func() { p.keep(r) })
		p.run(func() { p.evict(r) })
	}
	for _, m := range p.w.machines {
		if m.id != p.m.id {
			p.fetchers[m.id] = newFetcher(p, m)
		}
	}
	p.run(p.propose)
	p.run(p.checkpoint)
	p.run(p.watchDisk)
	return nil
}

func noJitter(d time.Duration) time.Duration { return d / 2 }

func (p *process) openReplica(ctx context.Context, t *meta.TopicImage, index int32) (*replica, error) {
	r := &replica{p: p, tp: tiering.Partition{Topic: t.Name, ID: tiering.TopicID(t.ID), Num: index}, kick: make(chan struct{}, 1), seen: meta.Missing}
	name := segment.TopicPartition{Topic: t.Name, Partition: index}
	var err error
	r.local, err = p.dir.Open(name, t.ID, segment.Options{
		Archived: true, SegmentBytes: p.m.segmentBytes, IndexIntervalBytes: 256, FileDeleteDelayMs: 1000, FlushMessages: p.w.plan.flushMessages,
	})
	if err != nil {
		return nil, err
	}
	err = p.retry(ctx, fmt.Sprintf("opens %v", name), func() (err error) {
		r.tiered, err = p.archive.Open(ctx, r.local, tiering.PartitionConfig{
			Partition: r.tp, Policy: p.w.plan.policy, FS: p.fs, Dir: filepath.Join(dataDir, name.String()),
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	r.part = replication.New(replication.Config{
		Topic: t.Name, TopicID: t.ID, Index: index, Log: r.tiered, Lease: p.lease,
		Rules: isr.Rules{MinInsync: minInsync, Replicas: len(t.Replicas[index])},
	})
	return r, nil
}

// join registers, and reads everything in the session that holds the registration.
func (p *process) join(ctx context.Context) error {
	in := meta.Incarnation{
		Broker:        meta.Broker{ID: p.m.id, StorageID: p.dir.Meta().DirectoryID},
		BootID:        fmt.Sprintf("%v boot %d", p.m, p.m.boot),
		LastEpoch:     p.epochs.Last,
		IntendedEpoch: p.epochs.Intended,
		Intend: func(epoch int64) error {
			p.epochs.Intended = epoch
			return writeEpochs(p.fs, p.epochs)
		},
	}
	if mark, clean := p.dir.Clean(); clean && !p.ready.Load() {
		in.CleanNonce = mark.Nonce
	}
	for _, r := range p.parts {
		if r.out() {
			in.Lost = append(in.Lost, r.lost())
		}
	}
	reg, err := meta.Register(ctx, p.zk, in)
	if err != nil {
		return err
	}
	p.epochs.Last = reg.Epoch
	if err := writeEpochs(p.fs, p.epochs); err != nil {
		return err
	}
	if p.dir.Meta().BrokerID < 0 {
		if err := p.dir.SetMeta(segment.Meta{BrokerID: p.m.id, ClusterID: "sim", DirectoryID: p.dir.Meta().DirectoryID}); err != nil {
			return err
		}
	}
	p.reg.Store(&reg)
	p.ready.Store(true)
	p.log.note("registered in broker epoch %d, valid from %d", reg.Epoch, reg.ValidFrom)
	return nil
}
