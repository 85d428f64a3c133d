package broker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/segment"
	"firn/segment/batch"
)

// alter sets one config of a topic or, with topic "", of this broker.
func (n *node) alter(topic, key, value string) kmsg.IncrementalAlterConfigsResponseResource {
	n.t.Helper()
	return n.edit(topic, key, kmsg.IncrementalAlterConfigOpSet, &value)
}

func (n *node) edit(topic, key string, op kmsg.IncrementalAlterConfigOp, value *string) kmsg.IncrementalAlterConfigsResponseResource {
	n.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	if topic == "" {
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBroker, "1"
	}
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = key, op, value
	res.Configs = append(res.Configs, c)
	req.Resources = append(req.Resources, res)
	for end := time.Now().Add(patience); ; { // a change isn't waited for in a stall
		r := ask[*kmsg.IncrementalAlterConfigsResponse](n, req).Resources[0]
		if r.ErrorCode != kerr.RequestTimedOut.Code || time.Now().After(end) {
			return r
		}
	}
}

// config describes one key of a topic or, with topic "", of this broker.
func (n *node) config(topic, key string) kmsg.DescribeConfigsResponseResourceConfig {
	n.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms, req.IncludeDocumentation = 4, true, true
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{key}
	if topic == "" {
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBroker, "1"
	}
	req.Resources = append(req.Resources, res)
	out := ask[*kmsg.DescribeConfigsResponse](n, req).Resources[0]
	if out.ErrorCode != 0 || len(out.Configs) != 1 {
		n.t.Fatalf("describe %s of %q: code %d %s, %d configs", key, topic, out.ErrorCode, words(out.ErrorMessage), len(out.Configs))
	}
	return out.Configs[0]
}

func TestConfigsAreDocumented(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	for topic, key := range map[string]string{"t": "segment.ms", "": "log.roll.ms"} {
		if d := n.config(topic, key).Documentation; d == nil || !strings.Contains(*d, "Milliseconds") {
			t.Errorf("%s: %v", key, d)
		}
	}
}

// TestEachTopicConfigTakesEffectWhenTheAnswerComes: an alteration is answered
// when the open log has it, so that "within a second" is at once.
func TestEachTopicConfigTakesEffectWhenTheAnswerComes(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	local := func() *segment.Log { return n.replicas.get(n.topics.Load().byName["t"].ID, 0).local }
	for _, c := range []struct {
		key, value string
		got        func(segment.Options) any
		want       any
	}{
		{"segment.bytes", "2048", func(o segment.Options) any { return o.SegmentBytes }, int64(2048)},
		{"segment.ms", "60000", func(o segment.Options) any { return o.SegmentMs }, int64(60000)},
		{"segment.jitter.ms", "10", func(o segment.Options) any { return o.SegmentJitterMs }, int64(10)},
		{"segment.index.bytes", "4096", func(o segment.Options) any { return o.SegmentIndexBytes }, 4096},
		{"index.interval.bytes", "100", func(o segment.Options) any { return o.IndexIntervalBytes }, 100},
		{"retention.ms", "5000", func(o segment.Options) any { return o.RetentionMs }, int64(5000)},
		{"retention.bytes", "5000", func(o segment.Options) any { return o.RetentionBytes }, int64(5000)},
		{"max.message.bytes", "1000", func(o segment.Options) any { return o.MaxMessageBytes }, 1000},
		{"compression.type", "zstd", func(o segment.Options) any { return o.Compression }, segment.Zstd},
		{"message.timestamp.type", "LogAppendTime", func(o segment.Options) any { return o.TimestampType }, batch.LogAppendTime},
		{"message.timestamp.before.max.ms", "9", func(o segment.Options) any { return o.TimestampBeforeMaxMs }, int64(9)},
		{"message.timestamp.after.max.ms", "9", func(o segment.Options) any { return o.TimestampAfterMaxMs }, int64(9)},
		{"flush.messages", "1", func(o segment.Options) any { return o.FlushMessages }, int64(1)},
		{"flush.ms", "100", func(o segment.Options) any { return o.FlushMs }, int64(100)},
		{"file.delete.delay.ms", "1", func(o segment.Options) any { return o.FileDeleteDelayMs }, int64(1)},
	} {
		began := time.Now()
		// has: now, unless the machine has stood still for as long as an answer waits.
		has := func(want bool) bool {
			ok := func() bool { return (c.got(local().Options()) == c.want) == want }
			if !ok() && time.Since(began) >= configWait {
				eventually(t, c.key, ok)
			}
			return ok()
		}
		if r := n.alter("t", c.key, c.value); r.ErrorCode != 0 {
			t.Errorf("%s: code %d %s", c.key, r.ErrorCode, words(r.ErrorMessage))
		}
		if !has(true) {
			t.Errorf("%s=%s: the log has %v", c.key, c.value, c.got(local().Options()))
		}
		d := n.config("t", c.key)
		if words(d.Value) != c.value || d.Source != kmsg.ConfigSourceDynamicTopicConfig || d.IsDefault || len(d.ConfigSynonyms) < 1 {
			t.Errorf("%s is described as %+v", c.key, d)
		}
		began = time.Now()
		if r := n.edit("t", c.key, kmsg.IncrementalAlterConfigOpDelete, nil); r.ErrorCode != 0 {
			t.Errorf("delete %s: code %d %s", c.key, r.ErrorCode, words(r.ErrorMessage))
		}
		if !has(false) {
			t.Errorf("%s is still %v", c.key, c.want)
		}
	}
}

func TestALoweredMaxMessageBytesRefusesTheNextAppend(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	big := func() []byte { return n.batch(batch.Spec{}, make([]int64, 200)...) }
	if _, err := n.tryAppend("t", 0, big()); err != nil {
		t.Fatal(err)
	}
	n.alter("t", "max.message.bytes", "500")
	if _, err := n.tryAppend("t", 0, big()); !errors.Is(err, segment.ErrTooLarge) {
		t.Fatalf("append: %v", err)
	}
}

// The change itself has retention run: the next round would be minutes away.
func TestAShortenedRetentionDropsRecordsAtOnce(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1, "file.delete.delay.ms=0")
	n.append("t", 0, time.Now().Add(-time.Hour).UnixMilli())
	n.alter("t", "retention.ms", "60000")
	eventually(t, "the log start has moved", func() bool { return n.list("t", 0, -2).Offset == 1 })
}

func TestRefusedConfigs(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	for name, c := range map[string]struct {
		topic, key, value string
		want              *kerr.Error
		says              string
	}{
		"unknown key":       {"t", "retention.mss", "1", kerr.InvalidConfig, "retention.ms"},
		"bad value":         {"t", "retention.ms", "x", kerr.InvalidConfig, "retention.ms"},
		"compaction":        {"t", "cleanup.policy", "compact", kerr.InvalidConfig, "compact"},
		"unknown topic":     {"u", "retention.ms", "1", kerr.UnknownTopicOrPartition, ""},
		"static key":        {"", "log.dirs", "/x", kerr.InvalidRequest, "log.dirs"},
		"unknown of ours":   {"", "log.retention.mss", "1", kerr.InvalidRequest, "log.retention.ms"},
		"nothing is kept":   {"", "log.retention.ms", "0", kerr.InvalidRequest, "must be unlimited (-1)"},
		"fixed at a start":  {"", "listeners", "PLAINTEXT://:9999", kerr.InvalidRequest, "while the broker runs"},
		"value of a broker": {"", "log.retention.ms", "x", kerr.InvalidRequest, "log.retention.ms"},
	} {
		got := n.alter(c.topic, c.key, c.value)
		if got.ErrorCode != c.want.Code || !strings.Contains(words(got.ErrorMessage), c.says) {
			t.Errorf("%s: code %d %q, want %v saying %q", name, got.ErrorCode, words(got.ErrorMessage), c.want, c.says)
		}
	}
}

func TestABrokersDynamicConfigReachesItsTopics(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 1)
	if r := n.alter("", "log.retention.ms", "12345"); r.ErrorCode != 0 {
		t.Fatalf("code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	d := n.config("t", "retention.ms")
	if words(d.Value) != "12345" || d.Source != kmsg.ConfigSourceDynamicBrokerConfig {
		t.Errorf("retention.ms is %q by %v", words(d.Value), d.Source)
	}
	if got := n.replicas.get(n.topics.Load().byName["t"].ID, 0).local.Options().RetentionMs; got != 12345 {
		t.Errorf("the log has %d", got)
	}
	n.restart()
	if d := n.config("", "log.retention.ms"); words(d.Value) != "12345" || d.ReadOnly {
		t.Errorf("after a restart: %+v", d)
	}
}
