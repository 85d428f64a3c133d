package broker

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication/meta"
)

// autoCreateWait bounds how long a Metadata request is held up by the creation of
// topics on demand: for the write, not until they are served.
const autoCreateWait = time.Second

// handleMetadata answers Metadata: v0–13.
//
//	v1  null asks for all topics, empty for none (v0: empty for all)
//	v4  AllowAutoTopicCreation (before: yes)
//	v10 topic ids in the answer, v12 in the request
//	v13 an error of the whole answer, which we have no use for
func handleMetadata(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)

	all := req.Topics == nil || r.version == 0 && len(req.Topics) == 0
	for _, t := range req.Topics {
		if r.version < 12 && (t.Topic == nil || t.TopicID != [16]byte{}) {
			return nil // Kafka fails the whole request, which has no error field, and closes
		}
	}
	x := b.topics.Load()
	var created map[string]error
	if !all {
		created = b.autoCreate(ctx, x, r, req)
	}

	resp.ClusterID = new(b.clusterID)
	resp.ControllerID = x.controller
	resp.Brokers = metadataBrokers(x, r.listener)
	m := metadataView{x: x, listener: r.listener, version: r.version, unfit: b.replicas.unfit}
	if all {
		topics := x.sorted()
		resp.Topics = make([]kmsg.MetadataResponseTopic, 0, len(topics))
		for _, t := range topics {
			resp.Topics = append(resp.Topics, m.topic(t))
		}
	} else {
		resp.Topics = make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
		type key struct {
			name string
			id   meta.TopicID
		}
		seen := make(map[key]bool, len(req.Topics))
		for i := range req.Topics {
			t := &req.Topics[i]
			k := key{id: t.TopicID}
			if t.Topic != nil {
				k.name = *t.Topic
			}
			if !seen[k] { // named twice, answered once
				seen[k] = true
				resp.Topics = append(resp.Topics, m.named(k.name, k.id, created))
			}
		}
	}

	resp.AuthorizedOperations = math.MinInt32
	if req.IncludeClusterAuthorizedOperations && r.version <= 10 {
		resp.AuthorizedOperations = clusterOperations
	}
	for i := range resp.Topics {
		resp.Topics[i].AuthorizedOperations = math.MinInt32
		if req.IncludeTopicAuthorizedOperations && resp.Topics[i].ErrorCode == 0 {
			resp.Topics[i].AuthorizedOperations = topicOperations
		}
	}
	return resp
}

// autoCreate creates the topics that req names and x lacks, if that is allowed,
// and tells of each how that went. As in Kafka the answer doesn't have them yet: who has deleted a topic and looks
// whether it is gone mustn't find what that look has made.
func (b *Broker) autoCreate(ctx context.Context, x *topicIndex, r *request, req *kmsg.MetadataRequest) map[string]error {
	if !b.settings().Bool("auto.create.topics.enable") || r.version >= 4 && !req.AllowAutoTopicCreation {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, autoCreateWait)
	defer cancel()
	var missing []newTopic
	for _, t := range req.Topics {
		switch {
		case t.Topic == nil || x.byName[*t.Topic] != nil || checkTopicName(*t.Topic) != "":
		case *t.Topic == offsetsTopic: // with its own configs, whoever asks first
			missing = append(missing, b.offsetsTopicPlan(x))
		case isInternal(*t.Topic): // there are no transactions yet
		default:
			missing = append(missing, newTopic{name: *t.Topic, partitions: -1, replication: -1})
		}
	}
	b.commitTopics(ctx, missing)
	outcome := make(map[string]error, len(missing))
	for i := range missing {
		err := missing[i].err
		if errors.Is(err, kerr.TopicAlreadyExists) {
			err = nil // somebody else was faster
		}
		if outcome[missing[i].name] = err; err != nil {
			b.log.Info("topic not created on demand", "topic", missing[i].name, "err", err)
		}
	}
	return outcome
}

// metadataView draws topics as a client of one listener, in one version, sees them.
type metadataView struct {
	x        *topicIndex
	listener string
	version  int16
	// unfit: this broker, though elected, can't lead that partition until somebody
	// repairs it; nil: it can.
	unfit func(id meta.TopicID, p int32) bool
}

// named draws a topic that the client has named, by name or by id. created tells
// of topics that have just been asked for.
func (m metadataView) named(name string, id meta.TopicID, created map[string]error) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	if !id.IsZero() {
		if known := m.x.byID[id]; known != nil {
			return m.topic(known)
		}
		out.TopicID, out.ErrorCode = id, kerr.UnknownTopicID.Code
		return out
	}
	if known := m.x.byName[name]; known != nil {
		return m.topic(known)
	}
	out.Topic = &name
	out.IsInternal = isInternal(name)
	err, tried := created[name]
	switch {
	case checkTopicName(name) != "":
		out.ErrorCode = kerr.InvalidTopicException.Code
	case err != nil:
		out.ErrorCode = errorCode(err)
	case tried: // on its way: ask again
		out.ErrorCode = kerr.LeaderNotAvailable.Code
	default:
		out.ErrorCode = kerr.UnknownTopicOrPartition.Code
	}
	return out
}

func (m metadataView) topic(t *topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic = new(t.Name)
	out.TopicID = t.ID
	out.IsInternal = t.internal
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(t.Replicas))
	for p := range t.Replicas {
		// One that never had a leader is on its way: no client of Kafka's has ever
		// seen such a partition, and some give up on it.
		if t.states[p].Version != meta.Missing {
			out.Partitions = append(out.Partitions, m.partition(t, int32(p)))
		}
	}
	if len(out.Partitions) == 0 {
		out.ErrorCode = kerr.LeaderNotAvailable.Code
	}
	return out
}

func (m metadataView) partition(t *topic, p int32) kmsg.MetadataResponseTopicPartition {
	out := kmsg.NewMetadataResponseTopicPartition()
	s := &t.states[p]
	out.Partition = p
	out.LeaderEpoch = s.LeaderEpoch
	out.Replicas = t.Replicas[p]
	out.ISR = ids(s.ISR)
	out.OfflineReplicas = m.offline(t, p)
	out.Leader, out.ErrorCode = m.leader(t, p)
	if m.version == 0 { // the one version that has errors for replicas that are away
		out.Replicas = m.reachable(out.Replicas)
		out.ISR = m.reachable(out.ISR)
		if out.ErrorCode == 0 && (len(out.Replicas) < len(t.Replicas[p]) || len(out.ISR) < len(s.ISR)) {
			out.ErrorCode = kerr.ReplicaNotAvailable.Code
		}
	}
	return out
}

// leader is the leader as this listener's clients can reach it.
func (m metadataView) leader(t *topic, p int32) (leader int32, code int16) {
	id := t.states[p].Leader.ID
	broker := m.x.broker(id)
	switch {
	case broker == nil, m.unfit != nil && m.unfit(t.ID, p):
		return -1, kerr.LeaderNotAvailable.Code
	case endpoint(broker, m.listener) != nil:
		return id, 0
	case m.version >= 6:
		return -1, kerr.ListenerNotFound.Code
	default:
		return -1, kerr.LeaderNotAvailable.Code
	}
}

func (m metadataView) reachable(ids []int32) []int32 {
	out := make([]int32, 0, len(ids))
	for _, id := range ids {
		if endpoint(m.x.broker(id), m.listener) != nil {
			out = append(out, id)
		}
	}
	return out
}

// offline are the replicas that clients of this listener can't reach, and those
// that their brokers have given up.
func (m metadataView) offline(t *topic, p int32) []int32 {
	out := []int32{}
	for _, id := range t.Replicas[p] {
		if endpoint(m.x.broker(id), m.listener) == nil || m.x.offline[id].Lists(t.ID, p) {
			out = append(out, id)
		}
	}
	return out
}

// metadataBrokers lists the brokers that clients of listener can reach.
func metadataBrokers(x *topicIndex, listener string) []kmsg.MetadataResponseBroker {
	out := make([]kmsg.MetadataResponseBroker, 0, len(x.brokers))
	for i := range x.brokers {
		if e := endpoint(&x.brokers[i], listener); e != nil {
			n := kmsg.NewMetadataResponseBroker()
			n.NodeID, n.Host, n.Port, n.Rack = x.brokers[i].ID, e.Host, e.Port, rack(&x.brokers[i])
			out = append(out, n)
		}
	}
	return out
}

// rack is a broker's rack as the protocol has it: null for none.
func rack(b *meta.Broker) *string {
	if b.Rack == "" {
		return nil
	}
	return &b.Rack
}

// The operations that Kafka knows on a topic and on the cluster, as bits: what
// everybody may do as long as there are no ACLs.
const (
	topicOperations int32 = 1<<kmsg.ACLOperationRead | 1<<kmsg.ACLOperationWrite | 1<<kmsg.ACLOperationCreate |
		1<<kmsg.ACLOperationDelete | 1<<kmsg.ACLOperationAlter | 1<<kmsg.ACLOperationDescribe |
		1<<kmsg.ACLOperationDescribeConfigs | 1<<kmsg.ACLOperationAlterConfigs
	clusterOperations int32 = 1<<kmsg.ACLOperationCreate | 1<<kmsg.ACLOperationAlter | 1<<kmsg.ACLOperationDescribe |
		1<<kmsg.ACLOperationClusterAction | 1<<kmsg.ACLOperationDescribeConfigs | 1<<kmsg.ACLOperationAlterConfigs |
		1<<kmsg.ACLOperationIdempotentWrite
)
