package broker

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/replication/meta"
)

// reassignment is a wish for the replicas of one partition, and what became of it.
type reassignment struct {
	partition int32
	replicas  []int32 // nil: take back what is under way
	err       error
}

// reassign writes the wishes for one topic into its node, from where the
// controller takes them; one that can't be is answered in its err. What is taken
// back is awaited.
func (b *Broker) reassign(ctx context.Context, name string, wishes []reassignment, otherFactor bool) {
	fail := func(err error) {
		for i := range wishes {
			if wishes[i].err == nil {
				wishes[i].err = err
			}
		}
	}
	for {
		t, err := b.loadTopic(ctx, name)
		if err != nil {
			fail(err)
			return
		}
		next, cancelled := t, []int32(nil)
		for i := range wishes {
			w := &wishes[i]
			if w.err != nil {
				continue
			}
			if w.err = b.checkReassignment(t, w, otherFactor); w.err != nil {
				continue
			}
			if w.replicas == nil {
				next, cancelled = next.Cancel(w.partition), append(cancelled, w.partition)
			} else if t.Moving(w.partition) || !slices.Equal(w.replicas, t.Replicas[w.partition]) {
				next = next.Reassign(w.partition, w.replicas)
			}
		}
		err = b.commit(ctx, meta.SetTopic(next))
		refused := (*meta.Conflict)(nil)
		switch {
		case errors.As(err, &refused) && refused.Op.Path == meta.TopicPath(name):
			continue // somebody else's change came first: look again
		case refused != nil && refused.Op.Path == meta.TopicIDPath(t.ID):
			err = kerr.UnknownTopicOrPartition
		}
		if err != nil {
			fail(err)
			return
		}
		b.awaitReassigned(ctx, t, cancelled, wishes)
		return
	}
}

// loadTopic reads a topic's node as it stands now.
func (b *Broker) loadTopic(ctx context.Context, name string) (meta.Topic, error) {
	if words := checkTopicName(name); words != "" {
		return meta.Topic{}, kerr.UnknownTopicOrPartition
	}
	n, err := b.cfg.Meta.Get(ctx, meta.TopicPath(name))
	if errors.Is(err, meta.ErrNotFound) {
		return meta.Topic{}, kerr.UnknownTopicOrPartition
	}
	if err != nil {
		return meta.Topic{}, err
	}
	t, err := meta.DecodeTopic(name, n)
	if err == nil && t.Deleting {
		err = kerr.UnknownTopicOrPartition
	}
	return t, err
}

// checkReassignment judges a wish. A replica may stay on a broker that is away,
// but none is put on one.
func (b *Broker) checkReassignment(t meta.Topic, w *reassignment, otherFactor bool) error {
	if w.partition < 0 || int(w.partition) >= len(t.Replicas) {
		return kerr.UnknownTopicOrPartition
	}
	if w.replicas == nil {
		if !t.Moving(w.partition) {
			return kerr.NoReassignmentInProgress
		}
		return nil
	}
	if len(w.replicas) == 0 {
		return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	x := b.topics.Load()
	for i, id := range w.replicas {
		if slices.Contains(w.replicas[:i], id) {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", id)
		}
		if x.broker(id) == nil && !slices.Contains(t.Replicas[w.partition], id) {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", id)
		}
	}
	if now := len(t.Target(w.partition)); !otherFactor && len(w.replicas) != now {
		return refuse(kerr.InvalidReplicationFactor, "The replication factor is changed from %d to %d", now, len(w.replicas))
	}
	return nil
}

// awaitReassigned waits until this broker sees what was wished, so that a client
// that lists reassignments here next finds it, and until what was taken back is.
func (b *Broker) awaitReassigned(ctx context.Context, was meta.Topic, cancelled []int32, wishes []reassignment) {
	err := b.await(ctx, func(x *topicIndex) bool {
		t := x.byID[was.ID]
		if t == nil {
			return x.byName[was.Name] != nil || !x.deleting[was.Name]
		}
		return t.Version > was.Version && !slices.ContainsFunc(cancelled, t.Moving)
	})
	if err == nil || kafkaError(err) != kerr.RequestTimedOut {
		return // written; whether we see it is not the client's concern
	}
	for i := range wishes {
		if w := &wishes[i]; w.err == nil && w.replicas == nil {
			w.err = refuse(kerr.RequestTimedOut, "The reassignment is being taken back, which goes on: the replicas that stay are not in sync yet, or no controller is active.")
		}
	}
}
