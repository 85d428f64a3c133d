package config

// Entry describes one key for DescribeConfigs.
type Entry struct {
	Key      *Key
	Value    Value // Value.Value is empty for a secret
	ReadOnly bool
	// Synonyms lists every source with a value, the one that counts first.
	Synonyms []Value
}

// DescribeBroker lists the broker keys; names limits it if not nil.
func (b *Broker) DescribeBroker(names []string) []Entry {
	return b.describe(ScopeBroker, names, func(k *Key) []Value {
		vs := b.sources(k.Name)
		if len(vs) == 0 {
			vs = []Value{{Name: k.Name, Source: SourceDefault}}
		}
		return vs
	})
}

// DescribeDynamicDefault lists the dynamic values that all brokers share.
func (b *Broker) DescribeDynamicDefault(names []string) []Entry {
	return b.describe(ScopeBroker, names, func(k *Key) []Value {
		if v, ok := b.cluster[k.Name]; ok {
			return []Value{{Name: k.Name, Value: v, Set: true, Source: SourceDynamicDefault}}
		}
		return nil
	})
}

// DescribeTopic lists a topic's keys under its overrides.
func (b *Broker) DescribeTopic(overrides map[string]string, internal bool, names []string) []Entry {
	return b.describe(ScopeTopic, names, func(k *Key) []Value {
		return b.topicSources(k, overrides, internal)
	})
}

func (b *Broker) describe(s Scope, names []string, sources func(*Key) []Value) []Entry {
	var keys []*Key
	if names == nil {
		for _, k := range b.reg.Keys(s) {
			if k.Stance != StanceUnknown {
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
		vs := sources(k)
		if len(vs) == 0 {
			continue
		}
		if k.Secret {
			for i := range vs {
				vs[i].Value, vs[i].Set = "", false
			}
		}
		out = append(out, Entry{Key: k, Value: vs[0], ReadOnly: k.Update == UpdateStatic, Synonyms: vs})
	}
	return out
}

// CheckDynamic judges a change of dynamic broker keys: one's own (own), or all
// brokers'. Its errors are *Problem.
func (b *Broker) CheckDynamic(changes map[string]string, own bool) error {
	for name, v := range changes {
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
		}
		if securityKey(name) {
			return problem("%s can't be set: this broker has no TLS or SASL yet", name)
		}
		if err := k.Check(v); err != nil {
			return problem("Invalid value %s for configuration %s: %v", v, name, err)
		}
	}
	return nil
}
