package broker

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ensureOffsetsTopic returns __consumer_offsets, made on first use, as soon as
// this broker serves it.
func (b *Broker) ensureOffsetsTopic(ctx context.Context) (*topic, error) {
	return b.ensureInternal(ctx, offsetsTopic, b.offsetsTopicPlan)
}

// offsetsTopicPlan is __consumer_offsets as the settings want it.
func (b *Broker) offsetsTopicPlan(x *topicIndex) newTopic {
	c := x.settings
	return newTopic{
		name:        offsetsTopic,
		internal:    true,
		partitions:  int32(c.Int("offsets.topic.num.partitions")),
		replication: b.internalFactor(x, "offsets.topic.replication.factor"),
		configs: map[string]string{
			"cleanup.policy":   "compact",
			"compression.type": "producer",
			"segment.bytes":    strconv.FormatInt(c.Int("offsets.topic.segment.bytes"), 10),
		},
	}
}

// internalFactor is how many replicas an internal topic gets. In a cluster it is
// what the settings say: as long as fewer brokers are there the topic isn't made,
// for it would keep that number. A broker that is alone by its metadata gets one.
func (b *Broker) internalFactor(x *topicIndex, key string) int16 {
	if b.alone() {
		return 1
	}
	return int16(x.settings.Int(key))
}

// internalTopicWait is how long one request waits for an internal topic that it
// needs; the client asks again.
const internalTopicWait = 5 * time.Second

// ensureInternal returns an internal topic, creating it if need be.
func (b *Broker) ensureInternal(ctx context.Context, name string, plan func(*topicIndex) newTopic) (*topic, error) {
	x := b.topics.Load()
	if t := x.byName[name]; t != nil && b.serves(x, t.Topic) {
		return t, nil
	}
	ctx, cancel := context.WithTimeout(ctx, internalTopicWait)
	defer cancel()
	if x.byName[name] == nil {
		wishes := []newTopic{plan(x)}
		b.createTopics(ctx, wishes)
		if err := wishes[0].err; err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return nil, err
		}
	}
	err := b.await(ctx, func(x *topicIndex) bool {
		t := x.byName[name]
		return t != nil && b.serves(x, t.Topic)
	})
	if err != nil {
		return nil, err
	}
	return b.topics.Load().byName[name], nil
}
