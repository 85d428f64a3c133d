package broker

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/config"
	"firn/replication/meta"
)

// handleCreateTopics answers CreateTopics: v2–7.
//
//	v4 -1 for the broker's number of partitions and replication factor
//	v5 what was created: partitions, replication factor, configs
//	v7 the topic's id
func handleCreateTopics(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.CreateTopicsRequest)
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond)
	defer cancel()

	named := map[string]int{}
	for i := range req.Topics {
		named[req.Topics[i].Topic]++
	}
	wishes := make([]newTopic, 0, len(req.Topics))
	for i := range req.Topics {
		in := &req.Topics[i]
		w := newTopic{name: in.Topic, partitions: in.NumPartitions, replication: in.ReplicationFactor}
		if named[in.Topic] > 1 {
			w.err = refuse(kerr.InvalidRequest, "Duplicate topic name.")
		} else {
			w.err = w.read(in)
		}
		if named[in.Topic] > 0 { // each name is answered once
			named[in.Topic] = min(named[in.Topic], 1) - 1
			wishes = append(wishes, w)
		}
	}
	var plans []meta.Topic
	if req.ValidateOnly {
		plans = b.planTopics(b.topics.Load(), wishes)
	} else {
		plans = b.createTopics(ctx, wishes)
	}
	for i := range wishes {
		resp.Topics = append(resp.Topics, b.createdTopic(&wishes[i], plans[i]))
	}
	return resp
}

// read takes what a client asks for beyond the counts.
func (w *newTopic) read(in *kmsg.CreateTopicsRequestTopic) error {
	w.configs = make(map[string]string, len(in.Configs))
	var null []string
	for _, c := range in.Configs {
		if c.Value == nil {
			null = append(null, c.Name)
			continue
		}
		w.configs[c.Name] = *c.Value
	}
	if null != nil {
		return refuse(kerr.InvalidConfig, "Null value not supported for topic configs: %s", strings.Join(null, ","))
	}
	if len(in.ReplicaAssignment) == 0 {
		return nil
	}
	if in.ReplicationFactor != -1 {
		return refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if in.NumPartitions != -1 {
		return refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	w.replicas = make([][]int32, len(in.ReplicaAssignment))
	for _, a := range in.ReplicaAssignment {
		if a.Partition < 0 || int(a.Partition) >= len(w.replicas) {
			return refuse(kerr.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
		if w.replicas[a.Partition] != nil {
			return refuse(kerr.InvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		w.replicas[a.Partition] = append([]int32{}, a.Replicas...)
	}
	return nil
}

// createdTopic answers for one topic.
func (b *Broker) createdTopic(w *newTopic, t meta.Topic) kmsg.CreateTopicsResponseTopic {
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic = w.name
	out.ErrorCode, out.ErrorMessage = errorCode(w.err), errorMessage(w.err)
	out.NumPartitions, out.ReplicationFactor = -1, -1
	if w.err != nil {
		return out
	}
	out.TopicID = t.ID
	out.NumPartitions, out.ReplicationFactor = int32(len(t.Replicas)), int16(len(t.Replicas[0]))
	for _, e := range b.settings().DescribeTopic(w.configs, neverArchived(w.name), nil) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value = e.Key.Name, configValue(e.Value)
		c.ReadOnly, c.Source, c.IsSensitive = e.ReadOnly, int8(e.Value.Source), e.Key.Secret
		out.Configs = append(out.Configs, c)
	}
	return out
}

// configValue is a value as the protocol has it: null for none, and for a secret.
func configValue(v config.Value) *string {
	if !v.Set {
		return nil
	}
	return &v.Value
}
