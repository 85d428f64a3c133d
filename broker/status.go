package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"firn/segment"
	"firn/tiering"
)

// joined: this broker has registered, so that what join sets up is there.
func (b *Broker) joined() bool { return b.hasJoined.Load() }

// ClusterID is the cluster's id; "" before this broker has joined it.
func (b *Broker) ClusterID() string {
	if !b.joined() {
		return ""
	}
	return b.clusterID
}

// ArchiveStatus tells where every partition stands that has an archive.
func (b *Broker) ArchiveStatus() []tiering.Status {
	if !b.joined() || b.archive == nil {
		return nil
	}
	return b.archive.Status()
}

// OutOfService is how many of the logs here can't serve until they are repaired.
func (b *Broker) OutOfService() int {
	if !b.joined() {
		return 0
	}
	return len(b.replicas.outages(b.topics.Load()))
}

// Problems says, for an operator, what doesn't work though the broker serves. It asks
// the metadata store and the archive's where their last answer is older than fresh, and
// waits for them no longer than ctx.
func (b *Broker) Problems(ctx context.Context, fresh time.Duration) []string {
	if !b.joined() {
		return nil
	}
	b.metaLook.start(fresh)
	b.archiveLook.start(fresh)
	var out []string
	if err := b.metaLook.err(ctx); err != nil {
		out = append(out, fmt.Sprintf("the metadata can't be read: %v; nobody is elected meanwhile, and leaders go on as far as their followers allow", err))
	}
	if why := b.shortOfSpace(); why != "" {
		out = append(out, why)
	}
	if failed := b.replicas.outages(b.topics.Load()); len(failed) > 0 {
		first := failed[0]
		s := fmt.Sprintf("%d logs are out of service, for instance that of %s: %v", len(failed), first.name, first.err)
		if errors.Is(first.err, segment.ErrQuarantined) {
			s += "; " + advice
		}
		out = append(out, s)
	}
	if b.archive == nil {
		return out
	}
	if err := cmp.Or(b.archiveLook.err(ctx), b.cache.Trouble()); err != nil && b.archive.Disowned() == nil {
		out = append(out, fmt.Sprintf("the archive can't be read: %v", err))
	} else if err := cmp.Or(b.archive.Disowned(), b.archive.Silent()); err != nil {
		out = append(out, fmt.Sprintf("the archive: %v", err))
	}
	stuck, why := 0, error(nil)
	for _, s := range b.archive.Status() {
		if s.LastError != nil {
			if stuck++; why == nil {
				why = s.LastError
			}
		}
	}
	if stuck > 0 {
		out = append(out, fmt.Sprintf("the archive takes nothing from %d partitions, for instance: %v", stuck, why))
	}
	return out
}
