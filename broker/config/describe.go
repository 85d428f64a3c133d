package config

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
