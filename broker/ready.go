package broker

import (
	"context"
	"fmt"
	"time"

	"firn/replication/meta"
)

// readyWait is how long a start waits for the roles of its partitions before it
// serves all the same: those that still wait for the archive (T8) answer
// NOT_LEADER_OR_FOLLOWER until they are ready. One that has tried in vain isn't
// waited for.
const readyWait = 15 * time.Second

// NotReady says, in a word or two for each part, why clients are better sent to
// another broker now; nothing if they may come here.
func (b *Broker) NotReady() map[string]string {
	why := map[string]string{}
	select {
	case <-b.ready:
	default:
		why["logs"] = "recovering, or waiting for leadership"
		return why
	}
	if b.registration() == nil {
		why["metadata"] = "registering again after the end of a session"
	}
	if b.draining.Load() {
		why["serving"] = "stopping: others take over"
	}
	if n := b.groups.loadingShards(); n > 0 {
		why["groups"] = fmt.Sprintf("%d partitions of %s are being loaded", n, offsetsTopic)
	}
	return why
}

// awaitRoles waits until every partition that this broker is to lead, leads.
func (b *Broker) awaitRoles(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	began := time.Now()
	if err := b.await(ctx, b.settled); err != nil && ctx.Err() == nil {
		b.log.Warn("not every partition is ready to be led; serving without them", "seconds", time.Since(began).Seconds())
	}
}

// settled: the picture holds this broker's registration, and each partition that
// is hosted here has a leader elected since, which is at work if it is this one,
// or has tried to be.
func (b *Broker) settled(x *topicIndex) bool {
	self := b.self()
	me := x.broker(b.cfg.NodeID)
	if me == nil || me.Epoch != self.Epoch || x.controller == meta.NoLeader.ID {
		return false
	}
	for _, t := range x.byName {
		for p := range t.parts {
			leader := t.states[p].Leader
			if leader.ID == self.ID && leader.Epoch != self.Epoch {
				return false // of our last registration: the election is to come
			}
			if leader != self || t.parts[p] == nil {
				continue
			}
			if _, _, here := t.parts[p].Leader(); !here && !b.replicas.get(t.ID, int32(p)).stuck() {
				return false
			}
		}
	}
	return true
}

func (b *Broker) allocateProducerIDs(ctx context.Context) (first, below int64, err error) {
	first, err = meta.NextProducerIDs(ctx, b.cfg.Meta, b.cfg.NodeID)
	return first, first + meta.ProducerIDBlock, err
}
