package workload

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// unanswered is how many records a producer has out at most.
const unanswered = 256

// produce writes bursts to partitions at random, as kgo does it: retried until
// answered. Without a certain answer the producer is retired.
func (l *Load) produce(ctx context.Context, kind string, rng *rand.Rand) {
	for ctx.Err() == nil {
		l.incarnation(ctx, kind, rng)
	}
}

func (l *Load) incarnation(ctx context.Context, kind string, rng *rand.Rand) {
	name := l.name(kind)
	opts := []kgo.Opt{
		kgo.DefaultProduceTopic(l.c.History.Topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(16 << 10), kgo.MaxBufferedRecords(unanswered), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProduceRequestTimeout(3 * time.Second), kgo.RecordDeliveryTimeout(20 * time.Second), kgo.UnknownTopicRetries(-1),
	}
	if kind == "w" {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	}
	cl := l.client(name, opts...)
	defer cl.Close()
	var retired atomic.Bool
	next := make([]int64, l.c.History.Partitions)
	slots := make(chan struct{}, unanswered)
	for !retired.Load() && sleep(ctx, l.c.Pause/2+time.Duration(rng.Int64N(int64(l.c.Pause)))) {
		p := rng.Int32N(l.c.History.Partitions)
		for range l.c.Burst {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
			}
			if ctx.Err() != nil || retired.Load() {
				break
			}
			n, from := next[p], l.now()
			next[p]++
			size := l.c.Bytes/2 + rng.IntN(l.c.Bytes)
			l.Flying.Add(1)
			// The record outlives ctx: it has an outcome, whatever happens.
			cl.Produce(context.Background(), &kgo.Record{Partition: p, Value: encode(p, name, n, size)}, func(r *kgo.Record, err error) {
				if h, to := l.c.History.Of(p), l.now(); err == nil {
					h.Acked(from, to, name, n, r.Offset)
					l.Acked.Add(1)
				} else {
					h.Unknown(from, to, name, n)
					l.Unknown.Add(1)
					retired.Store(true)
				}
				l.Flying.Add(-1)
				<-slots
			})
		}
	}
	fctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := cl.Flush(fctx); err != nil {
		_ = cl.AbortBufferedRecords(context.Background()) // what has no answer by now is unknown
	}
}
