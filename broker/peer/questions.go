package peer

import (
	"context"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/wire"
	"firn/replication"
	"firn/segment"
)

const (
	epochVersion  = 4
	offsetVersion = 9
	// earliest is the log start in ListOffsets.
	earliest = -2
)

// AnyReplica as replica id, with AnyEpochEnd as the epoch, asks OffsetForLeaderEpoch
// for the last epoch and the end of a log, whether it is led or not.
const (
	AnyReplica  = -2
	AnyEpochEnd = math.MaxInt32
)

// EpochEnds asks where epochs end, and appends the answers to into.
func (c *Client) EpochEnds(ctx context.Context, questions []replication.EpochQuestion, into []replication.EpochAnswer) ([]replication.EpochAnswer, error) {
	return c.epochEnds(ctx, c.cfg.Self().ID, questions, into)
}

// FurthestLogs asks for the last epochs and the ends of logs, whether they are led
// or not; of questions the names count.
func (c *Client) FurthestLogs(ctx context.Context, of []replication.FetchKey, into []replication.EpochAnswer) ([]replication.EpochAnswer, error) {
	questions := make([]replication.EpochQuestion, len(of))
	for i, k := range of {
		questions[i] = replication.EpochQuestion{FetchKey: k, CurrentEpoch: -1, Epoch: AnyEpochEnd}
	}
	return c.epochEnds(ctx, AnyReplica, questions, into)
}

func (c *Client) epochEnds(ctx context.Context, replica int32, questions []replication.EpochQuestion, into []replication.EpochAnswer) ([]replication.EpochAnswer, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = epochVersion, replica
	for i := range questions {
		q := &questions[i]
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != q.Topic {
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = q.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = q.Index, q.CurrentEpoch, q.Epoch
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	if err := c.ask(ctx, req, resp); err != nil {
		return into, err
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			into = append(into, replication.EpochAnswer{
				Topic: resp.Topics[i].Topic, Index: p.Partition, Err: codeError(p.ErrorCode),
				End: segment.EpochEnd{Epoch: p.LeaderEpoch, End: p.EndOffset},
			})
		}
	}
	return into, nil
}

// Starts asks where logs begin, and appends the answers to into.
func (c *Client) Starts(ctx context.Context, of []replication.FetchKey, into []replication.StartAnswer) ([]replication.StartAnswer, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = offsetVersion, c.cfg.Self().ID
	for _, k := range of {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != k.Topic {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = k.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.Timestamp = k.Index, -1, earliest
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	resp := kmsg.NewPtrListOffsetsResponse()
	if err := c.ask(ctx, req, resp); err != nil {
		return into, err
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			into = append(into, replication.StartAnswer{
				Topic: resp.Topics[i].Topic, Index: p.Partition, Err: codeError(p.ErrorCode), LogStart: p.Offset,
			})
		}
	}
	return into, nil
}

// ask carries a request that kmsg knows.
func (c *Client) ask(ctx context.Context, req kmsg.Request, resp kmsg.Response) error {
	c.correlation++
	c.out = c.formatter.AppendRequest(c.out[:0], req, c.correlation)
	body, err := c.exchange(ctx, c.out, 0)
	if err != nil {
		return err
	}
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() {
		if body, err = wire.SkipHeaderTags(body); err != nil {
			return fmt.Errorf("%w: %w", ErrAnswer, err)
		}
	}
	if err := resp.ReadFrom(body); err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return nil
}
