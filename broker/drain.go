package broker

import (
	"context"
	"slices"
	"time"

	"firn/replication/meta"
)

// drain has other brokers lead what this one does, as far as others are in sync,
// before it stops serving: so nobody waits for the end of a session.
//
//	listed as draining ─▶ the controller elects others, and leaders let this
//	                      replica go from the ISR ─▶ nobody waits for it ─▶ stop
//
// It waits for controlled.shutdown.max.retries times the back-off of that name at
// most, then it stops all the same.
func (b *Broker) drain(ctx context.Context) {
	c := b.cfg.Settings
	m := b.registration()
	if m == nil || !c.Bool("controlled.shutdown.enable") || len(b.topics.Load().brokers) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, max(time.Duration(c.Int("controlled.shutdown.max.retries")), 1)*c.Millis("controlled.shutdown.retry.backoff.ms"))
	defer cancel()
	if b.draining.Swap(true) {
		return
	}
	began := time.Now()
	for tries := 0; ; tries++ {
		err := b.listOffline(ctx, func(o *meta.Offline) bool {
			was := o.Draining
			o.Draining = m.Epoch
			return was != o.Draining
		})
		if err == nil {
			break
		}
		if tries == drainTries || !sleep(ctx, drainRetry) {
			b.log.Warn("no controlled shutdown: the metadata store can't be told; the others take over when the session ends", "err", err)
			return
		}
	}
	if err := b.await(ctx, func(x *topicIndex) bool { return b.heldOnto(x) == 0 }); err != nil {
		b.log.Warn("controlled shutdown: some partitions are still led here", "partitions", b.heldOnto(b.topics.Load()), "seconds", time.Since(began).Seconds())
		return
	}
	b.log.Info("controlled shutdown: others lead what this broker did", "seconds", time.Since(began).Seconds())
}

const (
	// drainRetry is how long a draining broker waits before it tries again to say so,
	// drainTries how often it does: as long as the metadata store can't be written,
	// nobody can take over either.
	drainRetry = 200 * time.Millisecond
	drainTries = 10
)

// heldOnto counts the partitions that this broker leads though another could, and
// those whose acks wait for it though enough others are in sync.
func (b *Broker) heldOnto(x *topicIndex) (n int) {
	for _, t := range x.byName {
		for p := range t.states {
			s := &t.states[p]
			if s.Leader.ID != b.cfg.NodeID {
				if x.broker(s.Leader.ID) != nil && slices.ContainsFunc(s.ISR, func(m meta.Member) bool { return m.ID == b.cfg.NodeID }) &&
					rulesOf(t, int32(p)).Enough(len(s.ISR)-1) {
					n++
				}
				continue
			}
			for _, m := range s.ISR {
				if m.ID != s.Leader.ID && x.couldLead(t, int32(p), m) {
					n++
					break
				}
			}
		}
	}
	return n
}

// couldLead: a member of a partition's ISR is there, and wants to be.
func (x *topicIndex) couldLead(t *topic, p int32, m meta.Member) bool {
	reg, off := x.broker(m.ID), x.offline[m.ID]
	return reg != nil && !off.Drains(reg.Epoch) && !off.Lists(t.ID, p)
}

// listOffline changes what this broker lists as given up, unless change says that
// nothing is to be changed. Others may have written it since it was read only in
// another registration of ours, so that a conflict is tried again.
func (b *Broker) listOffline(ctx context.Context, change func(*meta.Offline) bool) error {
	b.listing.Lock()
	defer b.listing.Unlock()
	o, err := meta.LoadOffline(ctx, b.cfg.Meta, b.cfg.NodeID)
	if err != nil {
		return err
	}
	if !change(&o) {
		return nil
	}
	return b.commit(ctx, meta.SetOffline(o))
}
