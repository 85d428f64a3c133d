package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication/meta"
)

// unregisterWait bounds how long an unregistration waits until it is seen here.
const unregisterWait = 5 * time.Second

// handleUnregisterBroker answers UnregisterBroker: v0. A broker is unregistered
// when it has stopped and nothing is placed on it any more.
func handleUnregisterBroker(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.UnregisterBrokerRequest)
	resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	err := b.unregister(ctx, req.BrokerID)
	resp.ErrorCode, resp.ErrorMessage = errorCode(err), errorMessage(err)
	return resp
}

func (b *Broker) unregister(ctx context.Context, id int32) error {
	ctx, cancel := context.WithTimeout(ctx, unregisterWait)
	defer cancel()
	r, err := meta.LoadRegistration(ctx, b.cfg.Meta, id)
	if errors.Is(err, meta.ErrNotFound) || err == nil && r.Retired {
		return refuse(kerr.BrokerIDNotRegistered, "Broker ID %d is not currently registered", id)
	}
	if err != nil {
		return err
	}
	if _, err := meta.LoadBroker(ctx, b.cfg.Meta, id); err == nil {
		return refuse(kerr.InvalidRequest, "Broker %d is running: stop it first (one that was killed counts as running until its session ends).", id)
	} else if !errors.Is(err, meta.ErrNotFound) {
		return err
	}
	if n, example := b.topics.Load().placedOn(id); n > 0 {
		return refuse(kerr.InvalidRequest, "Broker %d still has replicas of %d partition(s), %s-%d among them: reassign them to other brokers first.",
			id, n, example.Topic, example.Partition)
	}
	o, err := meta.LoadOffline(ctx, b.cfg.Meta, id)
	if err != nil {
		return err
	}
	name := brokerEntity(id)
	c, err := meta.LoadConfig(ctx, b.cfg.Meta, meta.BrokerConfig, name)
	if err != nil {
		return err
	}
	if err := b.commit(ctx, meta.Retire(r, o, c)); err != nil {
		if refused := (*meta.Conflict)(nil); errors.As(err, &refused) {
			return refuse(kerr.InvalidRequest, "Broker %d has changed meanwhile: is it starting?", id)
		}
		return err
	}
	b.log.Info("broker unregistered", "broker", id)
	_ = b.await(ctx, func(x *topicIndex) bool { return x.registrations[id].Retired })
	return nil
}

// placedOn counts the partitions with a replica on a broker.
func (x *topicIndex) placedOn(id int32) (n int, example meta.TopicPartition) {
	for _, t := range x.byName {
		for p, replicas := range t.Replicas {
			if slices.Contains(replicas, id) {
				n++
				example = meta.TopicPartition{Topic: t.Name, Partition: int32(p)}
			}
		}
	}
	return n, example
}
