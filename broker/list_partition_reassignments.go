package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleListPartitionReassignments answers ListPartitionReassignments: v0. What is
// asked for and not being reassigned is left out.
func handleListPartitionReassignments(b *Broker, _ context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.ListPartitionReassignmentsRequest)
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	x := b.topics.Load()
	add := func(t *topic, partitions []int32) {
		out := kmsg.NewListPartitionReassignmentsResponseTopic()
		out.Topic = t.Name
		for _, p := range partitions {
			if !t.has(p) || !t.Moving(p) {
				continue
			}
			part := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			part.Partition = p
			part.Replicas, part.AddingReplicas, part.RemovingReplicas = t.Replicas[p], t.Adding[p], t.Removing[p]
			out.Partitions = append(out.Partitions, part)
		}
		if out.Partitions != nil {
			resp.Topics = append(resp.Topics, out)
		}
	}
	if req.Topics == nil {
		for _, t := range x.sorted() {
			add(t, t.partitions())
		}
		return resp
	}
	for i := range req.Topics {
		if t := x.byName[req.Topics[i].Topic]; t != nil {
			add(t, req.Topics[i].Partitions)
		}
	}
	return resp
}

// partitions are the numbers of all.
func (t *topic) partitions() []int32 {
	ps := make([]int32, len(t.Replicas))
	for p := range ps {
		ps[p] = int32(p)
	}
	return ps
}
