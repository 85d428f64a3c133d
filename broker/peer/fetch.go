package peer

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/broker/wire"
	"firn/replication"
	"firn/segment"
)

// Fetch carries a Fetch to the broker. The records in the answer are good until
// the next request.
func (c *Client) Fetch(ctx context.Context, r *replication.FetchRequest, into *replication.FetchAnswer) error {
	c.correlation++
	c.appendFetch(r)
	body, err := c.exchange(ctx, c.fetch.B, r.MaxWait)
	if err != nil {
		return err
	}
	return c.takeFetch(body, into)
}

func (c *Client) appendFetch(r *replication.FetchRequest) {
	self := c.cfg.Self()
	topics := 0
	for i := range r.Partitions {
		if i == 0 || r.Partitions[i].TopicID != r.Partitions[i-1].TopicID {
			topics++
		}
	}
	w := &c.fetch
	w.Begin(wire.ReplicaFetch{
		Correlation:   c.correlation,
		ClientID:      c.cfg.ClientID,
		Replica:       self.ID,
		BrokerEpoch:   self.Epoch,
		MaxWaitMillis: int32(r.MaxWait / time.Millisecond),
		MinBytes:      r.MinBytes,
		MaxBytes:      r.MaxBytes,
		Session:       r.Session,
		SessionEpoch:  r.SessionEpoch,
	}, topics)
	for i := 0; i < len(r.Partitions); {
		n := i + 1
		for n < len(r.Partitions) && r.Partitions[n].TopicID == r.Partitions[i].TopicID {
			n++
		}
		w.Topic(r.Partitions[i].TopicID, n-i)
		for ; i < n; i++ {
			p := &r.Partitions[i]
			w.Partition(wire.FetchPartition{
				Index: p.Index, LeaderEpoch: p.Epoch, Offset: p.Offset, LastEpoch: p.LastEpoch, LogStart: p.LogStart, MaxBytes: p.MaxBytes,
			})
		}
		w.EndTopic()
	}
	w.Forgotten(len(r.Forgotten))
	for i := range r.Forgotten {
		w.ForgottenTopic(r.Forgotten[i].TopicID, r.Forgotten[i].Index)
	}
	w.End()
}

func (c *Client) takeFetch(body []byte, into *replication.FetchAnswer) error {
	if err := c.got.Parse(body); err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	into.Err, into.Session, into.Partitions = codeError(c.got.Code), c.got.Session, into.Partitions[:0]
	for i := range c.got.Partitions {
		p := &c.got.Partitions[i]
		into.Partitions = append(into.Partitions, replication.PartitionAnswer{
			TopicID:       p.Topic,
			Index:         p.Index,
			Err:           codeError(p.Code),
			Diverging:     segment.EpochEnd{Epoch: p.Diverging.Epoch, End: p.Diverging.End},
			HighWatermark: p.HighWatermark,
			LogStart:      p.LogStart,
			Records:       p.Records,
		})
	}
	return nil
}

// codes are the codes that mean something to a follower.
var codes = map[int16]error{
	kerr.OffsetOutOfRange.Code:           segment.ErrOffsetOutOfRange,
	kerr.OffsetMovedToTieredStorage.Code: replication.ErrMovedToArchive,
	kerr.NotLeaderForPartition.Code:      replication.ErrNotLeader,
	kerr.FencedLeaderEpoch.Code:          replication.ErrFencedEpoch,
	kerr.UnknownLeaderEpoch.Code:         replication.ErrUnknownEpoch,
	kerr.FetchSessionIDNotFound.Code:     replication.ErrSession,
	kerr.InvalidFetchSessionEpoch.Code:   replication.ErrSession,
	kerr.FetchSessionTopicIDError.Code:   replication.ErrSession,
}

// codeError is the error of a code, nil for 0.
func codeError(code int16) error {
	if code == 0 {
		return nil
	}
	if err, ok := codes[code]; ok {
		return err
	}
	return kerr.ErrorForCode(code)
}
