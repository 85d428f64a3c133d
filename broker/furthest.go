package broker

import (
	"context"
	"strconv"
	"sync"
	"time"

	"firn/broker/peer"
	"firn/replication"
	"firn/replication/controller"
	"firn/replication/meta"
)

// endsWait is how long a broker may take to tell where its logs end.
const endsWait = 3 * time.Second

// askEnds asks brokers where replicas end that nobody leads, for the controller.
// Who doesn't answer in time is left out.
func (b *Broker) askEnds(ctx context.Context, questions []controller.Question) map[controller.Replica]controller.LogEnd {
	of := map[int32][]controller.Question{}
	for _, q := range questions {
		of[q.Member.ID] = append(of[q.Member.ID], q)
	}
	var (
		mu  sync.Mutex
		all = map[controller.Replica]controller.LogEnd{}
		wg  sync.WaitGroup
	)
	for broker, qs := range of {
		wg.Go(func() {
			ends, err := b.askBroker(ctx, broker, qs)
			if err != nil {
				b.log.Warn("a broker doesn't tell where its logs end; will ask again", "broker", broker, "partitions", len(qs), "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, q := range qs {
				if e, ok := ends[meta.TopicPartition{Topic: q.Name, Partition: q.Partition}]; ok {
					all[q.Replica] = e
				}
			}
		})
	}
	wg.Wait()
	return all
}

// askBroker asks one broker.
func (b *Broker) askBroker(ctx context.Context, broker int32, qs []controller.Question) (map[meta.TopicPartition]controller.LogEnd, error) {
	c := peer.New(peer.Config{
		Self:     b.self,
		Address:  func() (string, error) { return b.peerAddress(broker) },
		Dial:     b.cfg.Dial,
		Timeout:  endsWait,
		ClientID: "firn-controller-" + strconv.Itoa(int(b.cfg.NodeID)),
	})
	defer c.Close()
	defer context.AfterFunc(ctx, c.Close)()
	keys := make([]replication.FetchKey, len(qs))
	for i, q := range qs {
		keys[i] = replication.FetchKey{TopicID: q.Topic, Topic: q.Name, Index: q.Partition}
	}
	answers, err := c.FurthestLogs(ctx, keys, nil)
	ends := map[meta.TopicPartition]controller.LogEnd{}
	for _, a := range answers {
		if a.Err == nil {
			ends[meta.TopicPartition{Topic: a.Topic, Partition: a.Index}] = controller.LogEnd{Epoch: a.End.Epoch, End: a.End.End}
		}
	}
	return ends, err
}
