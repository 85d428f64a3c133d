package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Topic is what a topic's keys resolve to. -1 means without limit where Kafka
// has it so.
type Topic struct {
	// CleanupDelete and CleanupCompact are cleanup.policy; neither: keep all.
	CleanupDelete, CleanupCompact bool

	CompressionType             string // "producer" or a codec's name; "uncompressed"
	GzipLevel, Lz4Level         int
	ZstdLevel                   int
	FileDeleteDelayMs           int64
	FlushMessages, FlushMs      int64
	IndexIntervalBytes          int64
	LocalRetentionBytes         int64 // resolved: never -2
	LocalRetentionMs            int64 // resolved: never -2
	MaxMessageBytes             int64
	TimestampAfterMaxMs         int64
	TimestampBeforeMaxMs        int64
	LogAppendTime               bool
	MinInsyncReplicas           int
	RemoteCopyLagBytes          int64
	RemoteCopyLagMs             int64
	RemoteLogCopyDisable        bool
	RemoteLogDeleteOnDisable    bool
	RemoteStorageEnable         bool
	RetentionBytes, RetentionMs int64
	SegmentBytes                int64
	SegmentIndexBytes           int64
	SegmentJitterMs, SegmentMs  int64
	UncleanLeaderElection       bool
}

// toMillis turns the value of a synonym that counts in hours or minutes into
// its topic key's milliseconds. Any retention below zero is without limit.
func toMillis(synonym, value string) string {
	if strings.HasPrefix(synonym, "log.retention.") && synonym != "log.retention.bytes" {
		if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil && n < 0 {
			return "-1"
		}
	}
	per := int64(1)
	switch {
	case strings.HasSuffix(synonym, ".hours"):
		per = 3600_000
	case strings.HasSuffix(synonym, ".minutes"):
		per = 60_000
	default:
		return value
	}
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil {
		return value
	}
	return strconv.FormatInt(n*per, 10)
}

// topicSources lists every source of a topic key, highest first.
func (b *Broker) topicSources(k *Key, overrides map[string]string, internal bool) []Value {
	var out []Value
	if v, ok := overrides[k.Name]; ok {
		out = append(out, Value{Name: k.Name, Value: v, Set: true, Source: SourceTopic})
	}
	var defaults []Value
	for _, syn := range k.Synonyms {
		for _, v := range b.sources(syn) {
			v.Value = toMillis(syn, v.Value)
			if v.Source == SourceDefault {
				defaults = append(defaults, v)
			} else {
				out = append(out, v)
			}
		}
	}
	// Kafka ranks log.retention.ms over .minutes over .hours, whichever way each
	// was set, so the order of synonyms stands within their sources already.
	out = append(out, defaults...)
	if len(k.Synonyms) == 0 || len(defaults) == 0 {
		d := Value{Name: k.Name, Value: k.Default, Set: k.HasDefault, Source: SourceDefault}
		if k.Name == "remote.storage.enable" && b.archive && !internal {
			d.Value = "true"
		}
		out = append(out, d)
	}
	return out
}

// MaxArchivedName is the longest topic name that can be archived: with the
// topic's id it is one path element in the archive, of at most 255 bytes.
const MaxArchivedName = 232

// Topic resolves a topic's keys. Internal topics are never archived, and
// nothing is cleaned up in them but by their own overrides.
func (b *Broker) Topic(overrides map[string]string, internal bool) Topic {
	str := func(name string) string {
		return strings.TrimSpace(b.topicSources(b.reg.topic[name], overrides, internal)[0].Value)
	}
	num := func(name string) int64 {
		n, _ := strconv.ParseInt(str(name), 10, 64)
		return n
	}
	flag := func(name string) bool { return strings.EqualFold(str(name), "true") }
	policy := SplitList(str("cleanup.policy"))
	t := Topic{
		CleanupDelete:            slices.Contains(policy, "delete"),
		CleanupCompact:           slices.Contains(policy, "compact"),
		CompressionType:          str("compression.type"),
		GzipLevel:                int(num("compression.gzip.level")),
		Lz4Level:                 int(num("compression.lz4.level")),
		ZstdLevel:                int(num("compression.zstd.level")),
		FileDeleteDelayMs:        num("file.delete.delay.ms"),
		FlushMessages:            num("flush.messages"),
		FlushMs:                  num("flush.ms"),
		IndexIntervalBytes:       num("index.interval.bytes"),
		LocalRetentionBytes:      num("local.retention.bytes"),
		LocalRetentionMs:         num("local.retention.ms"),
		MaxMessageBytes:          num("max.message.bytes"),
		TimestampAfterMaxMs:      num("message.timestamp.after.max.ms"),
		TimestampBeforeMaxMs:     num("message.timestamp.before.max.ms"),
		LogAppendTime:            str("message.timestamp.type") == "LogAppendTime",
		MinInsyncReplicas:        int(num("min.insync.replicas")),
		RemoteCopyLagBytes:       num("remote.copy.lag.bytes"),
		RemoteCopyLagMs:          num("remote.copy.lag.ms"),
		RemoteLogCopyDisable:     flag("remote.log.copy.disable"),
		RemoteLogDeleteOnDisable: flag("remote.log.delete.on.disable"),
		RemoteStorageEnable:      flag("remote.storage.enable") && !internal,
		RetentionBytes:           num("retention.bytes"),
		RetentionMs:              num("retention.ms"),
		SegmentBytes:             num("segment.bytes"),
		SegmentIndexBytes:        num("segment.index.bytes"),
		SegmentJitterMs:          num("segment.jitter.ms"),
		SegmentMs:                num("segment.ms"),
		UncleanLeaderElection:    flag("unclean.leader.election.enable"),
	}
	if t.LocalRetentionMs == -2 {
		t.LocalRetentionMs = t.RetentionMs
	}
	if t.LocalRetentionBytes == -2 {
		t.LocalRetentionBytes = t.RetentionBytes
	}
	// A broker-wide local retention above the topic's whole one is capped.
	if _, said := overrides["local.retention.ms"]; !said && above(t.LocalRetentionMs, t.RetentionMs) {
		t.LocalRetentionMs = t.RetentionMs
	}
	if _, said := overrides["local.retention.bytes"]; !said && above(t.LocalRetentionBytes, t.RetentionBytes) {
		t.LocalRetentionBytes = t.RetentionBytes
	}
	return t
}

// Problem is a refused topic configuration, in words for the client.
type Problem struct{ Text string }

func (p *Problem) Error() string { return p.Text }

func problem(format string, args ...any) error { return &Problem{fmt.Sprintf(format, args...)} }

// CheckTopic judges the overrides that the topic name is to have. Before is what it
// has; nil for a new topic. Its errors are *Problem.
func (b *Broker) CheckTopic(name string, before, after map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(after)) {
		k, ok := b.reg.topic[key]
		if !ok {
			if near := b.reg.Suggest(ScopeTopic, key); near != "" {
				return problem("Unknown topic config name: %s. Did you mean %s?", key, near)
			}
			return problem("Unknown topic config name: %s", key)
		}
		if err := k.Check(after[key]); err != nil {
			return err
		}
	}
	if strings.EqualFold(after["remote.storage.enable"], "true") && len(name) > MaxArchivedName {
		return problem("A topic whose name is longer than %d characters can't be archived: leave remote.storage.enable out, or choose a shorter name", MaxArchivedName)
	}
	t := b.Topic(after, false)
	if _, asked := after["cleanup.policy"]; asked && t.CleanupCompact {
		return problem("cleanup.policy=compact is not supported yet; use delete, or leave the policy empty to keep everything")
	}
	return b.checkRemote(before, after, t)
}

// checkRemote holds the rules between the keys of tiered storage (KIP-405, KIP-950).
func (b *Broker) checkRemote(before, after map[string]string, t Topic) error {
	raw := func(name string) int64 {
		n, _ := strconv.ParseInt(b.topicSources(b.reg.topic[name], after, false)[0].Value, 10, 64)
		return n
	}
	_, asked := after["remote.storage.enable"]
	switch {
	case t.RemoteStorageEnable && asked && !b.archive:
		return problem("remote.storage.enable=true needs an archive, and this broker has none: set archive.url")
	case before != nil && b.Topic(before, false).RemoteStorageEnable && !t.RemoteStorageEnable && !t.RemoteLogDeleteOnDisable:
		return problem("Switching remote.storage.enable off also deletes what is archived, so it must be said: " +
			"to keep the archived data and only stop uploading, set remote.storage.enable=true,remote.log.copy.disable=true; " +
			"to delete it, set remote.storage.enable=false,remote.log.delete.on.disable=true")
	case !t.RemoteStorageEnable:
		return nil
	}
	ms, bytes := raw("local.retention.ms"), raw("local.retention.bytes")
	if t.RemoteLogCopyDisable && ((ms != -2 && ms != t.RetentionMs) || (bytes != -2 && bytes != t.RetentionBytes)) {
		return problem("With remote.log.copy.disable=true nothing is uploaded, so local.retention.ms and local.retention.bytes must be -2 or equal retention.ms and retention.bytes")
	}
	// Only what was said is judged: Topic caps a broker-wide local retention.
	if _, said := after["local.retention.ms"]; said && above(t.LocalRetentionMs, t.RetentionMs) {
		return problem("local.retention.ms=%d must not exceed retention.ms=%d", t.LocalRetentionMs, t.RetentionMs)
	}
	if _, said := after["local.retention.bytes"]; said && above(t.LocalRetentionBytes, t.RetentionBytes) {
		return problem("local.retention.bytes=%d must not exceed retention.bytes=%d", t.LocalRetentionBytes, t.RetentionBytes)
	}
	if t.RemoteCopyLagMs != -1 && above(t.RemoteCopyLagMs, t.LocalRetentionMs) {
		return problem("remote.copy.lag.ms=%d must not exceed local.retention.ms=%d", t.RemoteCopyLagMs, t.LocalRetentionMs)
	}
	if t.RemoteCopyLagBytes != -1 && above(t.RemoteCopyLagBytes, t.LocalRetentionBytes) {
		return problem("remote.copy.lag.bytes=%d must not exceed local.retention.bytes=%d", t.RemoteCopyLagBytes, t.LocalRetentionBytes)
	}
	return nil
}

// above: a exceeds b, where -1 is without limit.
func above(a, b int64) bool {
	if b == -1 {
		return false
	}
	return a == -1 || a > b
}
