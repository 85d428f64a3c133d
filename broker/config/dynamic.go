package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// CheckDynamic judges a change of dynamic broker keys, from before to after: one's
// own (own), or all brokers'. Its errors are *Problem.
func (b *Broker) CheckDynamic(before, after map[string]string, own bool) error {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		v := after[name]
		if old, ok := before[name]; ok && old == v {
			continue
		}
		if err := b.checkDynamicKey(name, v, own); err != nil {
			return err
		}
	}
	was, next := b.With(before, b.own), b.With(after, b.own)
	if own {
		was, next = b.With(b.cluster, before), b.With(b.cluster, after)
	}
	if err := next.coherent(); err != nil {
		return problem("%v", err)
	}
	return step(was, next)
}

// checkDynamicKey judges a new value of one key.
func (b *Broker) checkDynamicKey(name, v string, own bool) error {
	k, ok := b.reg.broker[name]
	switch {
	case !ok:
		if near := b.reg.Suggest(ScopeBroker, name); near != "" {
			return problem("Unknown broker config name: %s. Did you mean %s?", name, near)
		}
		return problem("Unknown broker config name: %s", name)
	case k.Update == UpdateStatic:
		return problem("Cannot update these configs dynamically: %s. It can't be changed while the broker runs", name)
	case k.Update == UpdateBroker && !own:
		return problem("%s can only be set for a single broker, not as a default of all", name)
	case securityKey(name):
		return problem("%s can't be set: this broker has no TLS or SASL yet", name)
	}
	return k.Check(v)
}

// pools are the keys that count threads, in Kafka. Only num.replica.fetchers has
// an effect here; the others are taken for the sake of tools that set them.
var pools = []string{
	"background.threads", "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir", "num.replica.fetchers",
	"remote.log.manager.expiration.thread.pool.size", "remote.log.manager.follower.thread.pool.size", "remote.log.reader.threads",
}

// step holds what Kafka requires of a running broker's change: a number of threads
// is at most doubled or halved, and what stays on the local disk is no more than
// the whole. A static local retention above it is capped (Topic), so that it
// doesn't keep anybody from shortening the whole.
func step(was, next *Broker) error {
	for _, name := range pools {
		from, to := was.Int(name), next.Int(name)
		switch {
		case to < from/2:
			return problem("Dynamic thread count update validation failed for %s=%d, value should be at least half the current value %d", name, to, from)
		case to > 2*from:
			return problem("Dynamic thread count update validation failed for %s=%d, value should not be greater than double the current value %d", name, to, from)
		}
	}
	for _, unit := range []string{"ms", "bytes"} {
		local, whole := "log.local.retention."+unit, next.topicNumber("retention."+unit)
		n := next.Int(local)
		if n != was.Int(local) && n != -2 && above(n, whole) {
			return problem("Invalid value %d for configuration %s: Value must not be more than log.retention.%s property value: %d", n, local, unit, whole)
		}
	}
	return nil
}

// topicNumber is what a topic's key is where the topic says nothing.
func (b *Broker) topicNumber(name string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(b.topicSources(b.reg.topic[name], nil, false)[0].Value), 10, 64)
	return n
}
