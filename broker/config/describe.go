package config

import (
	"maps"
	"slices"
)

// Entry describes one key for DescribeConfigs.
type Entry struct {
	Key      *Key
	Value    Value // Value.Value is empty for a secret
	ReadOnly bool
	// Synonyms lists every source with a value as it was set: hours stay hours.
	// As in Kafka there is none if nothing but a default counts that has another
	// name: log.roll.hours for segment.ms.
	Synonyms []Value
}

// DescribeBroker lists the broker keys; names limits it if not nil.
func (b *Broker) DescribeBroker(names []string) []Entry {
	return b.describe(ScopeBroker, names, func(k *Key) (Value, []Value) {
		return b.Lookup(k.Name), b.listed(b.reg.siblings(k.Name))
	})
}

// DescribeDynamicDefault lists the dynamic values that all brokers share.
func (b *Broker) DescribeDynamicDefault(names []string) []Entry {
	return b.describe(ScopeBroker, names, func(k *Key) (v Value, synonyms []Value) {
		if s, ok := b.cluster[k.Name]; ok {
			v = Value{Name: k.Name, Value: s, Set: true, Source: SourceDynamicDefault}
			synonyms = []Value{v}
		}
		return v, synonyms
	})
}

// DescribeTopic lists a topic's keys under its overrides.
func (b *Broker) DescribeTopic(overrides map[string]string, internal bool, names []string) []Entry {
	return b.describe(ScopeTopic, names, func(k *Key) (v Value, synonyms []Value) {
		v = b.topicSources(k, overrides, internal)[0]
		if v.Source == SourceTopic {
			synonyms = []Value{v}
		}
		return v, append(synonyms, b.listed(k.Synonyms)...)
	})
}

// listed are the values of broker keys that stand for one another, by source.
func (b *Broker) listed(names []string) []Value {
	var out []Value
	for source := SourceDynamicBroker; source <= SourceDefault; source++ {
		for _, n := range names {
			for _, v := range b.sources(n) {
				if v.Source == source {
					out = append(out, v)
				}
			}
		}
	}
	if len(out) > 0 && out[0].Source == SourceDefault && out[0].Name != names[0] {
		return nil
	}
	return out
}

// describe asks value for each key; one without a source is left out.
func (b *Broker) describe(s Scope, names []string, value func(*Key) (Value, []Value)) []Entry {
	var keys []*Key
	if names == nil {
		for _, k := range b.reg.Keys(s) {
			if k.listed() {
				keys = append(keys, k)
			}
		}
	}
	for _, n := range names {
		k, ok := b.reg.topic[n], s == ScopeTopic
		if !ok {
			k = b.reg.broker[n]
		}
		if k != nil {
			keys = append(keys, k)
		}
	}
	var out []Entry
	for _, k := range keys {
		v, synonyms := value(k)
		if v.Source == 0 {
			continue
		}
		if k.Secret {
			v.Value, v.Set = "", false
			for i := range synonyms {
				synonyms[i].Value, synonyms[i].Set = "", false
			}
		}
		out = append(out, Entry{Key: k, Value: v, ReadOnly: k.Update == UpdateStatic, Synonyms: synonyms})
	}
	return out
}

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
	next := b.With(after, b.own)
	if own {
		next = b.With(b.cluster, after)
	}
	if err := next.coherent(); err != nil {
		return problem("%v", err)
	}
	return nil
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
		return problem("Cannot update these configs dynamically: %s", name)
	case k.Update == UpdateBroker && !own:
		return problem("%s can only be set for a single broker, not as a default of all", name)
	case securityKey(name):
		return problem("%s can't be set: this broker has no TLS or SASL yet", name)
	}
	return k.Check(v)
}
