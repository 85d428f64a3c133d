package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleAlterPartitionReassignments answers AlterPartitionReassignments: v0–1.
// Null replicas take a reassignment back.
//
//	v1 AllowReplicationFactorChange (before: yes)
func handleAlterPartitionReassignments(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.AlterPartitionAssignmentsRequest)
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	otherFactor := r.version < 1 || req.AllowReplicationFactorChange
	resp.AllowReplicationFactorChange = otherFactor
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond)
	defer cancel()
	for i := range req.Topics {
		in := &req.Topics[i]
		wishes := make([]reassignment, len(in.Partitions))
		for j, p := range in.Partitions {
			wishes[j] = reassignment{partition: p.Partition, replicas: p.Replicas}
		}
		b.reassign(ctx, in.Topic, wishes, otherFactor)
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = in.Topic
		for _, w := range wishes {
			p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			p.Partition, p.ErrorCode, p.ErrorMessage = w.partition, errorCode(w.err), errorMessage(w.err)
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
