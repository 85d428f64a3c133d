package broker

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication/meta"
)

// configWait is how long a change of configs waits until it has taken effect
// here. It is committed by then; the request itself has no time limit.
const configWait = 5 * time.Second

// configChange makes a resource's configs after a change of those before.
type configChange func(before map[string]string) (map[string]string, error)

// alterConfigs changes the configs of a topic or a broker, by compare-and-set.
func (b *Broker) alterConfigs(ctx context.Context, kind kmsg.ConfigResourceType, name string, change configChange, validateOnly bool) error {
	var (
		entity  string
		storeIn meta.ConfigKind
		check   func(before, after map[string]string) error
		exists  []meta.Op // what must still be there
	)
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if words := checkTopicName(name); words != "" {
			return refuse(kerr.InvalidTopicException, "%s", words)
		}
		t := b.topics.Load().byName[name]
		if t == nil {
			return refuse(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", name)
		}
		storeIn, entity = meta.TopicConfig, name
		exists = []meta.Op{meta.CheckTopic(t.ID)} // else a deleted topic would leave configs behind (B14)
		check = func(before, after map[string]string) error { return b.checkTopicConfigs(t, before, after) }
	case kmsg.ConfigResourceTypeBroker:
		entity = name
		if name == "" {
			entity = defaultEntity
		} else if id, err := b.knownBroker(name); err != nil {
			return err
		} else {
			entity = brokerEntity(id) // "01" is 1
		}
		storeIn = meta.BrokerConfig
		check = func(before, after map[string]string) error {
			return configRefusal(kerr.InvalidRequest, b.settings().CheckDynamic(before, after, name != ""))
		}
	default:
		return refuse(kerr.InvalidRequest, "Unknown resource type %d", kind)
	}

	ctx, cancel := context.WithTimeout(ctx, configWait)
	defer cancel()
	for {
		now, err := meta.LoadConfig(ctx, b.cfg.Meta, storeIn, entity)
		if err != nil {
			return err
		}
		after, err := change(now.Values)
		if err != nil {
			return err
		}
		if err := check(now.Values, after); err != nil {
			return err
		}
		if validateOnly || maps.Equal(now.Values, after) {
			return nil
		}
		write := meta.SetConfig(storeIn, entity, meta.Config{Values: after, Version: now.Version}).With(exists...)
		err = b.commit(ctx, write)
		refused := (*meta.Conflict)(nil)
		switch {
		case errors.As(err, &refused) && refused.Op.Path == meta.ConfigPath(storeIn, entity):
			continue // somebody else's change came first: look again
		case refused != nil && len(exists) > 0 && refused.Op.Path == exists[0].Path:
			return refuse(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", name)
		case err != nil:
			return err
		}
		// Committed: whether we see it in time is not the client's concern.
		_ = b.await(ctx, func(x *topicIndex) bool { return x.shows(storeIn, entity, after) })
		return nil
	}
}

// knownBroker is the id of a broker of this cluster, be it away.
func (b *Broker) knownBroker(name string) (int32, error) {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return 0, refuse(kerr.InvalidRequest, "Broker id must be an integer, but it is: %s", name)
	}
	if r, ok := b.topics.Load().registrations[int32(id)]; int32(id) != b.cfg.NodeID && (!ok || r.Retired) {
		return 0, refuse(kerr.InvalidRequest, "Broker %s is not registered", name)
	}
	return int32(id), nil
}

// brokerEntity is the entity of a broker's dynamic configs.
func brokerEntity(id int32) string { return strconv.Itoa(int(id)) }

// shows: the picture holds these configs.
func (x *topicIndex) shows(kind meta.ConfigKind, entity string, want map[string]string) bool {
	if kind == meta.TopicConfig {
		t := x.byName[entity]
		return t == nil || maps.Equal(t.overrides, want)
	}
	return maps.Equal(x.dynamic[entity], want)
}

// checkTopicConfigs judges a change. What an internal topic was given by the
// broker itself (compact) a client may leave as it is.
func (b *Broker) checkTopicConfigs(t *topic, before, after map[string]string) error {
	if t.internal && before["cleanup.policy"] == after["cleanup.policy"] {
		before, after = maps.Clone(before), maps.Clone(after)
		delete(before, "cleanup.policy")
		delete(after, "cleanup.policy")
	}
	return configRefusal(kerr.InvalidConfig, b.settings().CheckTopic(t.Name, before, after))
}
