package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kinds of coordinators.
const (
	coordinatesGroups       = 0
	coordinatesTransactions = 1
)

// handleFindCoordinator answers FindCoordinator: v0–6.
//
//	v1 coordinator types; transactions, which we don't have yet, get the one code
//	   that librdkafka takes as final
//	v4 many keys, each with an answer of its own
func handleFindCoordinator(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if r.version < 4 {
		found := b.findCoordinator(ctx, r, req.CoordinatorType, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = found.ErrorCode, found.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = found.NodeID, found.Host, found.Port
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, b.findCoordinator(ctx, r, req.CoordinatorType, key))
	}
	return resp
}

func (b *Broker) findCoordinator(ctx context.Context, r *request, kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	found := kmsg.NewFindCoordinatorResponseCoordinator()
	found.Key, found.NodeID, found.Port = key, -1, -1
	id, err := b.coordinatorOf(ctx, kind, key)
	if err == nil {
		if e := endpoint(b.topics.Load().broker(id), r.listener); e != nil {
			found.NodeID, found.Host, found.Port = id, e.Host, e.Port
			return found
		}
		err = kerr.CoordinatorNotAvailable
	}
	found.ErrorCode, found.ErrorMessage = errorCode(err), errorMessage(err)
	return found
}

// coordinatorOf is the broker that coordinates a group.
func (b *Broker) coordinatorOf(ctx context.Context, kind int8, key string) (int32, error) {
	switch kind {
	case coordinatesGroups:
	case coordinatesTransactions:
		return -1, kerr.TransactionalIDAuthorizationFailed
	default:
		return -1, kerr.InvalidRequest
	}
	t, err := b.ensureOffsetsTopic(ctx)
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("topic of the groups isn't there yet", "topic", offsetsTopic, "err", err)
		}
		return -1, kerr.CoordinatorNotAvailable
	}
	leader := t.leader(coordinatorPartition(key, len(t.Replicas)))
	if leader.ID < 0 {
		return -1, kerr.CoordinatorNotAvailable
	}
	return leader.ID, nil
}
