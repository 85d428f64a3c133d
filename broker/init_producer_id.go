package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleInitProducerID answers InitProducerId: v0–5, for idempotent producers.
// Each gets a new id, whatever id it says it had: as in Kafka, only a
// transactional id has a memory.
func handleInitProducerID(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	id, err := b.initProducerID(ctx, r.version, req)
	if err != nil {
		resp.ErrorCode = errorCode(err)
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp
}

func (b *Broker) initProducerID(ctx context.Context, version int16, req *kmsg.InitProducerIDRequest) (int64, error) {
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "":
		return 0, kerr.InvalidRequest
	case req.TransactionalID != nil:
		// No transactions yet. This is the one code that librdkafka takes as final.
		return 0, kerr.TransactionalIDAuthorizationFailed
	case version >= 3 && (req.ProducerID == -1) != (req.ProducerEpoch == -1):
		return 0, kerr.InvalidRequest // both or neither
	}
	id, err := b.producerIDs.next(ctx)
	if err != nil {
		b.log.Warn("no block of producer ids", "err", err)
		return 0, kerr.CoordinatorLoadInProgress // what every client waits out
	}
	return id, nil
}
