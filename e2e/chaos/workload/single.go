package workload

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/segment/batch"
)

// produceSingly sends one request for each record and never again, so that it
// knows exactly what it was told.
func (l *Load) produceSingly(ctx context.Context, rng *rand.Rand) {
	name := l.name("n")
	cl := l.client(name)
	defer cl.Close()
	next := make([]int64, l.c.History.Partitions)
	for sleep(ctx, l.c.Pause) {
		p := rng.Int32N(l.c.History.Partitions)
		leader, id := l.watch.leader(p)
		if leader < 0 {
			continue
		}
		n, from := next[p], l.now()
		next[p]++
		b := batch.NewBuilder(batch.Spec{})
		b.Add(time.Now().UnixMilli(), nil, encode(p, name, n, l.c.Bytes))
		records, err := b.Build()
		if err != nil {
			panic(err) // a batch that can't be: a mistake of ours
		}
		offset, how := produceOnce(ctx, cl, leader, l.c.History.Topic, id, p, records)
		h, to := l.c.History.Of(p), l.now()
		switch how {
		case written:
			h.Acked(from, to, name, n, offset)
			l.Acked.Add(1)
		case refused:
			h.Failed(from, to, name, n)
			l.Failed.Add(1)
		default:
			h.Unknown(from, to, name, n)
			l.Unknown.Add(1)
		}
	}
}

type outcome int

const (
	perhaps outcome = iota
	written
	refused
)

// produceOnce sends a Produce request and says what its answer means. Only what
// a broker answers before it appends, and what never left, counts as refused: a
// leader that steps down while the record waits for its followers answers
// NOT_LEADER_OR_FOLLOWER, and the record may stay.
func produceOnce(ctx context.Context, cl *kgo.Client, leader int32, topic string, id [16]byte, p int32, records []byte) (int64, outcome) {
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = p, records
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID, t.Partitions = topic, id, append(t.Partitions, part)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, 3000, append(req.Topics, t)
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	resp, err := cl.Broker(int(leader)).Request(rctx, req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return 0, refused
		}
		return 0, perhaps
	}
	ts := resp.(*kmsg.ProduceResponse).Topics
	if len(ts) != 1 || len(ts[0].Partitions) != 1 {
		return 0, perhaps
	}
	switch a := ts[0].Partitions[0]; a.ErrorCode {
	case 0:
		return a.BaseOffset, written
	case kerr.NotEnoughReplicas.Code, kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code:
		return 0, refused
	default:
		return 0, perhaps
	}
}
