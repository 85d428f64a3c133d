package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/broker/config"
	"firn/replication/meta"
)

// newTopic is a wish for a topic, and what became of it.
type newTopic struct {
	name        string
	partitions  int32     // -1: num.partitions
	replication int16     // -1: default.replication.factor
	replicas    [][]int32 // by hand, or nil
	configs     map[string]string
	// internal: the broker itself wants it, so that clients' limits don't hold.
	internal bool
	// err says why it was or will be refused.
	err error
}

// planTopics decides what each wish comes to in picture x: a topic, or its err.
func (b *Broker) planTopics(x *topicIndex, wishes []newTopic) []meta.Topic {
	plans := make([]meta.Topic, len(wishes))
	collides := map[string]string{}
	for name := range x.byName {
		if mayCollide(name) {
			collides[collisionKey(name)] = name
		}
	}
	for i := range wishes {
		w := &wishes[i]
		if w.err != nil {
			continue
		}
		if plans[i], w.err = b.planTopic(x, w, collides); w.err == nil && mayCollide(w.name) {
			collides[collisionKey(w.name)] = w.name
		}
	}
	return plans
}

func (b *Broker) planTopic(x *topicIndex, w *newTopic, collides map[string]string) (meta.Topic, error) {
	if words := checkTopicName(w.name); words != "" {
		return meta.Topic{}, refuse(kerr.InvalidTopicException, "%s", words)
	}
	if x.byName[w.name] != nil {
		return meta.Topic{}, refuse(kerr.TopicAlreadyExists, "Topic '%s' already exists.", w.name)
	}
	if other := collides[collisionKey(w.name)]; other != "" && mayCollide(w.name) {
		return meta.Topic{}, refuse(kerr.InvalidTopicException, "Topic '%s' collides with existing topic: %s", w.name, other)
	}
	if !w.internal {
		if err := x.settings.CheckTopic(w.name, nil, w.configs); err != nil {
			return meta.Topic{}, configRefusal(kerr.InvalidConfig, err)
		}
	}
	replicas, err := b.planReplicas(x, w)
	if err != nil {
		return meta.Topic{}, err
	}
	t := meta.Topic{Name: w.name, Replicas: replicas}
	for t.ID.IsZero() || t.ID.String()[0] == '-' { // as Kafka: an id that looks like an option helps nobody
		rand.Read(t.ID[:])
	}
	return t, nil
}

func (b *Broker) planReplicas(x *topicIndex, w *newTopic) ([][]int32, error) {
	if w.replicas != nil {
		if len(w.replicas) > maxPartitions {
			return nil, refuse(kerr.InvalidPartitions, "A topic can have at most %d partitions.", maxPartitions)
		}
		return w.replicas, checkAssignment(x, w.replicas, 0)
	}
	partitions, factor := int64(w.partitions), int64(w.replication)
	if factor == -1 {
		factor = x.settings.Int("default.replication.factor")
	}
	if partitions == -1 {
		partitions = x.settings.Int("num.partitions")
	}
	switch {
	case factor < 1:
		return nil, refuse(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case partitions < 1:
		return nil, refuse(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	case partitions > maxPartitions:
		return nil, refuse(kerr.InvalidPartitions, "A topic can have at most %d partitions.", maxPartitions)
	}
	return placeReplicas(x, 0, int(partitions), int(factor))
}

// createTopics creates what can be created of wishes and waits until this broker
// serves it, or ctx ends. The wishes' errs tell the outcome.
func (b *Broker) createTopics(ctx context.Context, wishes []newTopic) []meta.Topic {
	plans := b.commitTopics(ctx, wishes)
	for i := range wishes {
		if w := &wishes[i]; w.err == nil {
			w.err = b.awaitServed(ctx, plans[i])
		}
	}
	return plans
}

// commitTopics is createTopics without the wait.
func (b *Broker) commitTopics(ctx context.Context, wishes []newTopic) []meta.Topic {
	plans := b.planTopics(b.topics.Load(), wishes)
	var writes []meta.Write
	var of []int
	for i := range wishes {
		if wishes[i].err == nil {
			writes = append(writes, meta.CreateTopic(plans[i], wishes[i].configs))
			of = append(of, i)
		}
	}
	for j, err := range b.commitAll(ctx, writes) {
		w := &wishes[of[j]]
		if w.err = err; errors.Is(err, meta.ErrExists) {
			w.err = refuse(kerr.TopicAlreadyExists, "Topic '%s' already exists.", w.name)
		}
	}
	return plans
}

// growTopic gives t the partitions of grown and waits until they are served.
func (b *Broker) growTopic(ctx context.Context, t *topic, grown meta.Topic) error {
	if err := b.commit(ctx, meta.SetTopic(grown)); errors.Is(err, meta.ErrNotFound) {
		return kerr.UnknownTopicOrPartition
	} else if err != nil {
		return err
	}
	return b.awaitServed(ctx, grown)
}

// awaitServed waits until what was written of t is served.
func (b *Broker) awaitServed(ctx context.Context, t meta.Topic) error {
	err := b.await(ctx, func(x *topicIndex) bool { return b.serves(x, t) })
	if errors.Is(err, context.DeadlineExceeded) && b.replicas.isCramped(t.ID) {
		return refuse(kerr.RequestTimedOut, "It is made, but the disk of broker %d has no space for its log: it is served as soon as there is.", b.cfg.NodeID)
	}
	return err
}

// serves: every partition of t has a leader, and those that are led here are
// ready. A topic that was deleted meanwhile is as ready as it gets.
func (b *Broker) serves(x *topicIndex, want meta.Topic) bool {
	t := x.byID[want.ID]
	if t == nil {
		return x.byName[want.Name] != nil
	}
	if len(t.Replicas) < len(want.Replicas) {
		return false
	}
	for p := range want.Replicas {
		leader := t.states[p].Leader.ID
		if leader < 0 {
			return false
		}
		if leader != b.cfg.NodeID {
			continue
		}
		if t.parts[p] == nil {
			return false
		}
		if _, _, here := t.parts[p].Leader(); !here {
			return false
		}
	}
	return true
}

// deleteTopics deletes topics and waits until they are gone from this broker.
func (b *Broker) deleteTopics(ctx context.Context, victims []*topic) map[meta.TopicID]error {
	out := make(map[meta.TopicID]error, len(victims))
	writes := make([]meta.Write, len(victims))
	for i, t := range victims {
		writes[i] = meta.DeleteTopic(t.Topic, b.now().UnixMilli())
	}
	for i, err := range b.commitAll(ctx, writes) {
		if errors.Is(err, meta.ErrNotFound) {
			err = kerr.UnknownTopicOrPartition // somebody else was faster
		}
		out[victims[i].ID] = err
	}
	for _, t := range victims {
		if out[t.ID] == nil {
			out[t.ID] = b.await(ctx, func(x *topicIndex) bool { return x.byID[t.ID] == nil && !x.deleting[t.Name] })
		}
	}
	return out
}

// commit makes a write under this broker's own registration: a broker that has
// been taken for dead changes nothing any more.
func (b *Broker) commit(ctx context.Context, w meta.Write) error {
	return b.commitAll(ctx, []meta.Write{w})[0]
}

// commitAll makes writes, each on its own account, in as few commits as may be.
func (b *Broker) commitAll(ctx context.Context, writes []meta.Write) []error {
	fenced := make([]meta.Write, len(writes))
	for i, w := range writes {
		fenced[i] = w.With(b.fence()...)
	}
	return meta.CommitAll(ctx, b.cfg.Meta, fenced)
}

// await waits until ok likes the picture, and what it can see of the replicas.
func (b *Broker) await(ctx context.Context, ok func(*topicIndex) bool) error {
	for {
		changed := b.changed.wait()
		if ok(b.topics.Load()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// configRefusal makes what config says of a value an answer for the client.
func configRefusal(code *kerr.Error, err error) error {
	if p := (*config.Problem)(nil); errors.As(err, &p) {
		return refuse(code, "%s", strings.TrimSpace(p.Text))
	}
	return err
}
