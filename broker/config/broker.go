package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Source tells where a value comes from; the numbers are the protocol's.
type Source int8

const (
	SourceTopic          Source = 1
	SourceDynamicBroker  Source = 2
	SourceDynamicDefault Source = 3
	SourceStatic         Source = 4
	SourceDefault        Source = 5
)

// Value is a value of a key as one source has it.
type Value struct {
	Name   string // the key's, or its synonym's
	Value  string
	Set    bool // false: no value, not even a default
	Source Source
}

// Broker is the configuration of one broker: static values, with the dynamic
// ones over them. It is immutable; With makes another.
type Broker struct {
	reg     *Registry
	static  map[string]string
	cluster map[string]string // dynamic, of all brokers
	own     map[string]string // dynamic, of this one
	archive bool
}

// Static layers, highest first, resolve to what a broker starts with.
type Static struct {
	Set  map[string]string // --set key=value
	Env  map[string]string // FromEnv
	File map[string]string // ReadProperties
	// Profile holds the values that serve uses without a config file.
	Profile map[string]string
}

// where says which layer a key's value is from.
func (s Static) where(name string) string {
	in := func(layer map[string]string) bool { _, ok := layer[name]; return ok }
	switch {
	case in(s.Set):
		return "--set " + name
	case in(s.Env):
		return "environment variable " + envName(name)
	case in(s.File):
		return "in the configuration file"
	default:
		return "not set"
	}
}

// NewBroker resolves static layers. It returns warnings for people, one line
// each, and an error that says what to do if a value is wrong or can't be honoured.
func NewBroker(reg *Registry, s Static) (*Broker, []string, error) {
	b := &Broker{reg: reg, static: map[string]string{}}
	maps.Copy(b.static, s.Profile)
	for _, layer := range []map[string]string{s.File, s.Env, s.Set} {
		for name := range layer {
			// log.retention.hours from the user outranks the profile's log.retention.ms.
			for _, other := range reg.sameThing(name) {
				delete(b.static, other)
			}
		}
	}
	for _, layer := range []map[string]string{s.File, s.Env, s.Set} {
		maps.Copy(b.static, layer)
	}
	warnings, err := b.review(s)
	if err != nil {
		return nil, nil, err
	}
	b.alias("node.id", "broker.id") // reviewed, so that a refusal has named what was written
	b.archive = b.static["archive.url"] != ""
	return b, warnings, nil
}

// alias makes either of two names for one thing stand for both; the first wins.
func (b *Broker) alias(first, second string) {
	if v, ok := b.static[first]; ok {
		b.static[second] = v
	} else if v, ok := b.static[second]; ok {
		b.static[first] = v
	}
}

// With is b under other dynamic values: those of all brokers and its own.
func (b *Broker) With(cluster, own map[string]string) *Broker {
	n := *b
	n.cluster, n.own = maps.Clone(cluster), maps.Clone(own)
	return &n
}

// Registry is the table that b was made with.
func (b *Broker) Registry() *Registry { return b.reg }

// Archive: an archive is configured.
func (b *Broker) Archive() bool { return b.archive }

// WithArchive is b with an archive, or without, whatever archive.url says: for
// the embedded default, a directory beside the logs.
func (b *Broker) WithArchive(on bool) *Broker {
	n := *b
	n.archive = on
	return &n
}

// IsSet: the user gave the key a static value.
func (b *Broker) IsSet(name string) bool { _, ok := b.static[name]; return ok }

// Lookup resolves a broker key.
func (b *Broker) Lookup(name string) Value {
	vs := b.sources(name)
	if len(vs) == 0 {
		return Value{Name: name, Source: SourceDefault}
	}
	return vs[0]
}

// sources lists every source that has a value for a broker key, highest first.
func (b *Broker) sources(name string) []Value {
	var out []Value
	add := func(v string, ok bool, s Source) {
		if ok {
			out = append(out, Value{Name: name, Value: v, Set: true, Source: s})
		}
	}
	k := b.reg.broker[name]
	if k == nil || k.Update != UpdateStatic {
		v, ok := b.own[name]
		add(v, ok, SourceDynamicBroker)
		v, ok = b.cluster[name]
		add(v, ok, SourceDynamicDefault)
	}
	v, ok := b.static[name]
	add(v, ok, SourceStatic)
	if k != nil {
		add(k.Default, k.HasDefault, SourceDefault)
	}
	return out
}

// String is the value of a key, "" if it has none.
func (b *Broker) String(name string) string { return b.Lookup(name).Value }

// Int is the value of a number key; values were checked when they were taken.
func (b *Broker) Int(name string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(b.String(name)), 10, 64)
	return n
}

// Bool is the value of a boolean key.
func (b *Broker) Bool(name string) bool {
	return strings.EqualFold(strings.TrimSpace(b.String(name)), "true")
}

// DiskReserve is log.dir.min.free.bytes as segment and filestore take it: 0 is
// the default, the smaller of 5 % and 5 GiB, and -1 none.
func (b *Broker) DiskReserve() int64 {
	switch n := b.Int("log.dir.min.free.bytes"); n {
	case -1:
		return 0
	case 0:
		return -1
	default:
		return n
	}
}

// Millis is the value of a key in milliseconds, as a duration. What is longer
// than a duration can be is the longest duration.
func (b *Broker) Millis(name string) time.Duration {
	ms := b.Int(name)
	if ms > int64(1<<63-1)/int64(time.Millisecond) {
		return 1<<63 - 1
	}
	return time.Duration(ms) * time.Millisecond
}

// review checks the static values and collects warnings.
func (b *Broker) review(s Static) ([]string, error) {
	var warn []string
	kraft := false
	for _, name := range slices.Sorted(maps.Keys(b.static)) {
		k, known := b.reg.broker[name]
		value := b.static[name]
		switch {
		case !known && pluginKey(name):
			warn = append(warn, fmt.Sprintf("%s is a plugin's key and has no effect", name))
		case !known && value != "" && (securityKey(name) || quotaKey(name)):
			return nil, b.refusal(name)
		case !known:
			w := fmt.Sprintf("%s is not a known key and has no effect", name)
			if near := b.reg.Suggest(ScopeBroker, name); near != "" {
				w += "; did you mean " + near + "?"
			}
			warn = append(warn, w)
		case value == "":
		case k.Stance == StanceRefused, securityKey(name):
			return nil, b.refusal(name)
		case k.Stance == StanceUnknown:
			kraft = true
		case k.Stance == StanceIgnored:
			warn = append(warn, name+" is accepted and has no effect")
		}
		if known {
			// An empty value is no number: a broker that took it for 0 would delete
			// everything where log.retention.ms comes of a variable that isn't set.
			if err := k.Check(value); err != nil {
				return nil, fmt.Errorf("config: %w (%s)", err, s.where(name))
			}
		}
	}
	if kraft {
		warn = append(warn, "keys of KRaft (process.roles, controller.quorum.* and the like) have no effect: a broker needs no quorum here")
	}
	if err := b.coherent(); err != nil {
		e := (*incoherent)(nil)
		errors.As(err, &e)
		return nil, fmt.Errorf("config: %w (%s)", err, s.where(e.key))
	}
	for _, name := range []string{"log.dirs", "log.dir"} {
		if v, ok := b.static[name]; ok && len(SplitList(v)) == 0 {
			return nil, fmt.Errorf("config: %s is empty (%s): name a directory, or remove the key", name, s.where(name))
		}
	}
	if dirs := SplitList(b.static["log.dirs"]); len(dirs) > 1 {
		return nil, fmt.Errorf("config: log.dirs names %d directories; this broker keeps all logs in one: name one, or join the disks below the file system", len(dirs))
	}
	if p := b.static["security.inter.broker.protocol"]; p != "" && p != "PLAINTEXT" {
		return nil, fmt.Errorf("config: security.inter.broker.protocol is %s, but only PLAINTEXT is there yet", p)
	}
	if n := b.Int("socket.send.buffer.bytes"); b.IsSet("socket.send.buffer.bytes") && n >= 0 && n < 64<<10 {
		warn = append(warn, fmt.Sprintf("socket.send.buffer.bytes is %d; below 65536 connections stall, so 65536 is used", n))
	}
	if slices.Contains(SplitList(b.String("log.cleanup.policy")), "compact") {
		warn = append(warn, "log.cleanup.policy names compact, which is not there yet: topics that take it are neither compacted nor cleaned up")
	}
	if b.Int("log.retention.bytes") == 0 {
		warn = append(warn, "log.retention.bytes is 0, with which topics keep nothing, archived or not; -1 is without limit")
	}
	if n := b.Int("log.segment.bytes"); n < 1<<20 {
		warn = append(warn, fmt.Sprintf("log.segment.bytes is %d; Apache Kafka takes no less than 1048576", n))
	}
	return warn, nil
}

func (b *Broker) refusal(name string) error {
	return fmt.Errorf("config: %s is set, but this broker has no TLS, SASL, authorizer or quotas yet, and to go on without would leave it open; remove the key to start without that protection", name)
}

// securityKey: to disregard the key would weaken security.
func securityKey(name string) bool {
	if rest, ok := strings.CutPrefix(name, "listener.name."); ok {
		_, name, _ = strings.Cut(rest, ".")
	}
	return name == "authorizer.class.name" || strings.HasPrefix(name, "sasl.") || strings.HasPrefix(name, "ssl.")
}

// quotaKey: asks for a quota, by a name that Kafka 4 has no more.
func quotaKey(name string) bool {
	return name == "quota.producer.default" || name == "quota.consumer.default"
}

// pluginKey: configures a plugin of Kafka's.
func pluginKey(name string) bool {
	return strings.HasPrefix(name, "rsm.config.") || strings.HasPrefix(name, "rlmm.config.") ||
		strings.HasPrefix(name, "remote.log.metadata.") || strings.HasPrefix(name, "metric.reporters")
}
