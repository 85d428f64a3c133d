package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication/meta"
)

// handleDeleteTopics answers DeleteTopics: v1–6.
//
//	v3 TOPIC_DELETION_DISABLED (before: INVALID_REQUEST)
//	v5 an error's words
//	v6 by name or by id
func handleDeleteTopics(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond)
	defer cancel()

	asked := req.Topics
	for _, name := range req.TopicNames {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = new(name)
		asked = append(asked, t)
	}
	x := b.topics.Load()
	victims := make([]*topic, len(asked))
	errs := make([]error, len(asked))
	count := map[*topic]int{}
	for i := range asked {
		victims[i], errs[i] = b.findVictim(x, r.version, &asked[i])
		count[victims[i]]++
	}
	var chosen []*topic
	for i, t := range victims {
		if t != nil && count[t] > 1 {
			errs[i] = refuse(kerr.InvalidRequest, "Duplicate topic name or id.")
		}
		if errs[i] == nil {
			chosen = append(chosen, t)
		}
	}
	outcome := b.deleteTopics(ctx, chosen)
	for i := range asked {
		t := victims[i]
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = asked[i].Topic, asked[i].TopicID
		if t != nil {
			out.Topic, out.TopicID = new(t.Name), t.ID
		}
		if errs[i] == nil {
			errs[i] = outcome[t.ID]
		}
		out.ErrorCode, out.ErrorMessage = errorCode(errs[i]), errorMessage(errs[i])
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// findVictim finds the topic that a client wants deleted.
func (b *Broker) findVictim(x *topicIndex, version int16, t *kmsg.DeleteTopicsRequestTopic) (*topic, error) {
	id := meta.TopicID(t.TopicID)
	switch {
	case !b.settings().Bool("delete.topic.enable") && version < 3:
		return nil, refuse(kerr.InvalidRequest, "Topic deletion is disabled.")
	case !b.settings().Bool("delete.topic.enable"):
		return nil, kerr.TopicDeletionDisabled
	case t.Topic == nil && id.IsZero():
		return nil, refuse(kerr.InvalidRequest, "Neither topic name nor id were specified.")
	case t.Topic != nil && !id.IsZero():
		return nil, refuse(kerr.InvalidRequest, "You may not specify both topic name and topic id.")
	case t.Topic == nil:
		if known := x.byID[id]; known != nil {
			return known, nil
		}
		return nil, kerr.UnknownTopicID
	default:
		if known := x.byName[*t.Topic]; known != nil {
			return known, nil
		}
		return nil, kerr.UnknownTopicOrPartition
	}
}
