package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"firn/replication/meta"
	"firn/segment"
)

// mending is how far the repair of a replica's quarantined log has come. The
// opening of the replica writes it, then the mender alone.
type mending struct {
	// refused: what isn't archived is damaged; loss is whether that loss had been
	// accepted then.
	refused, loss bool
	notBefore     time.Time
}

const (
	mendEvery = time.Second
	// mendRetry is how long a repair that waits for the archive waits.
	mendRetry = 5 * time.Second
	// mendTimeout bounds what one of them waits for the archive.
	mendTimeout = 20 * time.Second
)

// advice is what an operator can do about a log that can't be repaired.
const advice = "put the damaged files back and restart the broker, or accept that what isn't archived is lost from the damage on, " +
	"by setting unclean.leader.election.enable=true for the topic"

// mend puts quarantined logs back into service (S5), whoever has met the damage
// and whenever: what is archived needs no local copy. Where more is damaged than
// that, the log waits for its operator, as a lost one does.
func (b *Broker) mend(ctx context.Context) {
	again := time.NewTicker(mendEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-b.relistDue:
		}
		x := b.topics.Load()
		if err := b.relist(ctx, x); err != nil && ctx.Err() == nil {
			b.log.Warn("listing what is given up here; will retry", "err", err)
		}
		for _, r := range b.replicas.list() {
			if !errors.Is(r.local.Err(), segment.ErrQuarantined) || x.byID[r.key.topic] == nil {
				continue
			}
			t := x.byID[r.key.topic]
			if !b.replicas.mend(ctx, r, b.mayLose(x, t, r.key.index)) {
				continue
			}
			if err := b.unlist(ctx); err != nil && ctx.Err() == nil {
				b.log.Warn("a repaired log is still listed as given up; the next start takes it off the list", "err", err)
			}
			// Another election may come of it. If not, this is the state to take on.
			if int(r.key.index) < len(t.states) && t.states[r.key.index].LeaderEpoch >= 0 {
				b.replicas.resume(r, t.states[r.key.index])
			}
		}
	}
}

// mayLose: what is damaged here may be cut off. Only this broker had it, and its
// loss is accepted; or nobody counts on this replica any more, and another leads (S7).
func (b *Broker) mayLose(x *topicIndex, t *topic, p int32) bool {
	return acceptsLoss(t, p) || x.offline[b.cfg.NodeID].Lists(t.ID, p) && t.dispensable(p, b.cfg.NodeID)
}

// dispensable: another broker leads partition p, and neither its ISR nor the
// eligible name this one.
func (t *topic) dispensable(p, id int32) bool {
	s := &t.states[p]
	return s.Leader != meta.NoLeader && s.Leader.ID != id && !t.names(p, id)
}

// names: the broker is in partition p's ISR, or eligible.
func (t *topic) names(p, id int32) bool {
	is := func(m meta.Member) bool { return m.ID == id }
	return slices.ContainsFunc(t.states[p].ISR, is) || slices.ContainsFunc(t.states[p].Eligible, is)
}

// acceptsLoss: what only this broker had may be given up.
func acceptsLoss(t *topic, p int32) bool {
	return t.settings.UncleanLeaderElection && len(t.Replicas[p]) == 1
}

// mend tries to repair r's quarantined log, unless that is known to be in vain,
// and says whether it did.
func (rs *replicas) mend(ctx context.Context, r *replica, loss bool) bool {
	m := &r.mending
	if m.refused && (!loss || m.loss) || time.Now().Before(m.notBefore) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, mendTimeout)
	defer cancel()
	err := r.repair(ctx, false)
	if errors.Is(err, segment.ErrQuarantined) && loss {
		if err = rs.resign(ctx, r); err == nil {
			err = r.repair(ctx, true)
		}
	}
	switch {
	case err == nil:
		*m = mending{}
		return true
	case rs.ctx.Err() != nil, errors.Is(err, segment.ErrClosed): // it stops, or is deleted
	case hopeless(err):
		m.refused, m.loss = true, loss
		rs.log.Error("a log is damaged and out of service: "+advice, "topic", r.name.Topic, "partition", r.name.Partition, "err", err)
	default:
		m.notBefore = time.Now().Add(mendRetry)
		rs.log.Warn("a damaged log waits for its repair; will retry", "topic", r.name.Topic, "partition", r.name.Partition, "err", err)
	}
	return false
}

// repair puts the quarantined log back into service as far as nothing is lost, or
// as far as it reaches.
func (r *replica) repair(ctx context.Context, loss bool) error {
	if r.tiered != nil {
		return r.tiered.Repair(ctx, loss)
	}
	start := r.local.Offsets().LogStart
	return r.local.Repair(segment.Repair{Archived: start, LogStart: start, Loss: loss})
}

// resign has r lead no more, until it is told again: a loss takes offsets back.
func (rs *replicas) resign(ctx context.Context, r *replica) error {
	_, epoch, here := r.part.Leader()
	if !here {
		return nil
	}
	return r.part.Become(ctx, meta.PartitionState{Leader: meta.NoLeader, LeaderEpoch: epoch}, rs.self())
}

// resume has r take on s, unless something newer is under way.
func (rs *replicas) resume(r *replica, s meta.PartitionState) {
	r.mu.Lock()
	waiting := r.mu.want != nil
	r.mu.Unlock()
	if !waiting {
		rs.become(r, s, func() {})
	}
}
