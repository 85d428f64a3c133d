package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/broker/wire"
	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
)

// producer is what a connection needs to answer Produce requests, used again
// for each.
type producer struct {
	req   wire.ProduceRequest
	resp  wire.ProduceResponse
	waits []ackWait
	nodes []wire.Node
	topic topicCache
}

// Acks of a Produce request.
const (
	acksNone = 0
	acksOne  = 1
	acksAll  = -1
)

// adminClient is the client id that may write to internal topics, as in Kafka.
const adminClient = "__admin_client"

// errAcksNone: with acks=0 a client learns of a failure only by its connection's
// end, which makes it look for the leader again.
var errAcksNone = errors.New("broker: a produce request with acks=0 failed")

// answerProduce appends what a Produce request holds, and answers it, or queues
// the answer if it has to wait.
func (c *conn) answerProduce(ctx context.Context, h wire.RequestHeader, body []byte) error {
	p := &c.produce
	if wire.ProduceFlexible(h.Version) {
		var err error
		if body, err = wire.SkipHeaderTags(body); err != nil {
			return &badRequest{err}
		}
	}
	if err := p.req.Parse(h.Version, body); err != nil {
		return &badRequest{err}
	}
	start := len(c.out)
	p.resp.B = c.own()
	p.waits = p.waits[:0]
	p.nodes = p.nodes[:0]
	failed := c.appendAll(h, start)
	c.out = p.resp.B
	p.resp.B = nil
	switch {
	case p.req.Acks == acksNone:
		c.out = c.out[:start]
		if failed {
			return errAcksNone
		}
		return nil
	case len(p.waits) == 0 && !c.acks.waiting():
		return c.flushIfMuch()
	}
	return c.queueAnswer(ctx, start)
}

// appendAll appends partition by partition and encodes the answer; its waits
// are relative to start. It says whether anything failed.
func (c *conn) appendAll(h wire.RequestHeader, start int) (failed bool) {
	p := &c.produce
	refused := c.refuseProduce()
	now := c.s.b.now().UnixMilli()
	index := c.s.b.topics.Load()
	p.resp.Begin(h.Version, h.Correlation, len(p.req.Topics))
	for i := range p.req.Topics {
		rt := &p.req.Topics[i]
		t := p.topic.find(index, rt.Name, rt.ID)
		p.resp.Topic(rt)
		bytes, records, refusedHere := 0, int64(0), false
		for j := rt.From; j < rt.Below; j++ {
			rp := &p.req.Partitions[j]
			res := wire.ProduceResult{Index: rp.Index, BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Leader: wire.NoLeader}
			var part *replication.Partition
			var a replication.Appended
			err := refused
			if err == nil {
				part, err = c.target(t, rp.Index, h.Version >= 13)
			}
			if err == nil {
				a, err = part.Append(rp.Records, replication.AppendOptions{
					Epoch: replication.AnyEpoch,
					All:   p.req.Acks == acksAll,
					Now:   now,
				})
			}
			if err == nil {
				if !a.Duplicate {
					bytes += len(rp.Records)
					records += a.Last - a.First + 1
				}
				res.BaseOffset, res.LogAppendTime, res.LogStart = a.First, a.AppendTime, a.LogStart
			} else {
				refusedHere = true
				c.failResult(&res, t, err)
			}
			at := p.resp.Partition(&res)
			if err == nil && p.req.Acks != acksNone {
				w := ackWait{p: part, a: a, all: p.req.Acks == acksAll, at: at - start}
				acked, err := w.acked()
				refusedHere = refusedHere || err != nil
				if !acked {
					p.waits = append(p.waits, w) // also what has failed already: the queue tells
				}
			}
		}
		p.resp.EndTopic()
		if t != nil {
			t.stats.produced(bytes, records, refusedHere)
		}
		failed = failed || refusedHere
	}
	p.resp.End(0, p.nodes)
	return failed
}

// refuseProduce is why a request is refused as a whole.
func (c *conn) refuseProduce() error {
	switch r := &c.produce.req; {
	case r.Version < 3:
		return kerr.UnsupportedVersion
	case r.Acks < acksAll || r.Acks > acksOne:
		return kerr.InvalidRequiredAcks
	case len(r.TransactionalID) > 0:
		return kerr.TransactionalIDAuthorizationFailed
	}
	return nil
}

// target is the partition to append to.
func (c *conn) target(t *topic, partition int32, byID bool) (*replication.Partition, error) {
	switch {
	case t == nil && byID:
		return nil, kerr.UnknownTopicID
	case t == nil || partition < 0 || int(partition) >= len(t.parts):
		return nil, kerr.UnknownTopicOrPartition
	case t.internal && c.clientID != adminClient:
		return nil, kerr.InvalidTopicException
	}
	p := t.partition(partition)
	if p == nil {
		return nil, replication.ErrNotLeader
	}
	return p, nil
}

// failResult makes res tell err.
func (c *conn) failResult(res *wire.ProduceResult, t *topic, err error) {
	res.Code = errorCode(err)
	if ke := (*kerr.Error)(nil); !errors.As(err, &ke) {
		res.Message = clientWords(err)
	}
	if re := (*segment.RecordErrors)(nil); errors.As(err, &re) {
		for _, e := range re.Records {
			res.Records = append(res.Records, wire.RecordError{Index: e.Index, Message: e.Reason})
		}
	}
	if res.Code == kerr.NotLeaderForPartition.Code && t != nil {
		res.Leader = t.leader(res.Index)
		c.produce.nodes = c.s.b.appendNode(c.produce.nodes, c.listener, res.Leader)
	}
}

// queueAnswer moves the answer at c.out[start:] into the queue of acks.
func (c *conn) queueAnswer(ctx context.Context, start int) error {
	p := &c.produce
	e := c.acks.entry()
	e.version = p.req.Version
	e.out = append(e.out[:0], c.out[start:]...)
	e.nodes = append(e.nodes[:0], p.nodes...)
	e.waits = append(e.waits[:0], p.waits...)
	e.deadline = time.Now().Add(time.Duration(p.req.TimeoutMillis) * time.Millisecond)
	clear(p.waits)
	c.out = c.out[:start]
	if !c.acks.waiting() {
		if err := c.flush(); err != nil {
			return err
		}
	}
	return c.acks.push(ctx, e)
}

// topicCache finds topics, the one that was found last without a look into a map.
type topicCache struct {
	index *topicIndex
	t     *topic
}

// find finds a topic by name, or by id if there is no name.
func (l *topicCache) find(x *topicIndex, name []byte, id meta.TopicID) *topic {
	if l.index == x && l.t != nil {
		if name != nil && string(name) == l.t.Name || name == nil && id == l.t.ID {
			return l.t
		}
	}
	if x == nil {
		return nil
	}
	var t *topic
	if name != nil {
		t = x.byName[string(name)]
	} else {
		t = x.byID[id]
	}
	l.index, l.t = x, t
	return t
}
