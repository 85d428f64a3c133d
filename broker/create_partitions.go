package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleCreatePartitions answers CreatePartitions: v0–3.
func handleCreatePartitions(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.CreatePartitionsRequest)
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond)
	defer cancel()

	named := map[string]int{}
	for i := range req.Topics {
		named[req.Topics[i].Topic]++
	}
	for i := range req.Topics {
		in := &req.Topics[i]
		var err error
		switch n := named[in.Topic]; {
		case n == 0:
			continue // answered
		case n > 1:
			err = refuse(kerr.InvalidRequest, "Duplicate topic name.")
		default:
			err = b.createPartitions(ctx, in, req.ValidateOnly)
		}
		named[in.Topic] = 0
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = in.Topic
		out.ErrorCode, out.ErrorMessage = errorCode(err), errorMessage(err)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// createPartitions adds partitions to a topic and waits until they are there.
func (b *Broker) createPartitions(ctx context.Context, in *kmsg.CreatePartitionsRequestTopic, validateOnly bool) error {
	x := b.topics.Load()
	t := x.byName[in.Topic]
	if t == nil {
		return kerr.UnknownTopicOrPartition
	}
	have := int32(len(t.Replicas))
	switch {
	case in.Count == have:
		return refuse(kerr.InvalidPartitions, "Topic already has %d partition(s).", have)
	case in.Count < have:
		return refuse(kerr.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", in.Topic, have, in.Count)
	case in.Count > maxPartitions:
		return refuse(kerr.InvalidPartitions, "A topic can have at most %d partitions.", maxPartitions)
	}
	factor := len(t.Replicas[0])
	var added [][]int32
	if in.Assignment != nil {
		if len(in.Assignment) != int(in.Count-have) {
			return refuse(kerr.InvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", in.Count-have, len(in.Assignment))
		}
		for _, a := range in.Assignment {
			added = append(added, a.Replicas)
		}
		if err := checkAssignment(x, added, factor); err != nil {
			return err
		}
	} else {
		var err error
		if added, err = placeReplicas(x, int(have), int(in.Count-have), factor); err != nil {
			return err
		}
	}
	if validateOnly {
		return nil
	}
	grown := t.Topic
	grown.Replicas = append(append([][]int32{}, t.Replicas...), added...)
	return b.growTopic(ctx, t, grown)
}
