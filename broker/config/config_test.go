package config

import (
	"fmt"
	"strings"
	"testing"
)

func mustBroker(t *testing.T, s Static) *Broker {
	t.Helper()
	b, _, err := NewBroker(NewRegistry(), s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEveryDefaultPassesItsOwnCheck(t *testing.T) {
	for _, s := range []Scope{ScopeBroker, ScopeTopic} {
		for _, k := range NewRegistry().Keys(s) {
			if !k.HasDefault || k.Default == "" {
				continue
			}
			if err := k.Check(k.Default); err != nil {
				t.Errorf("%s %s: %v", s, k.Name, err)
			}
		}
	}
}

func TestPrecedence(t *testing.T) {
	b := mustBroker(t, Static{
		File: map[string]string{"log.retention.hours": "2", "num.partitions": "3"},
		Env:  map[string]string{"num.partitions": "4"},
		Set:  map[string]string{"num.partitions": "5"},
	})
	if got := b.Int("num.partitions"); got != 5 {
		t.Errorf("--set wins: got %d, want 5", got)
	}
	if got := b.Topic(nil, false).RetentionMs; got != 2*3600_000 {
		t.Errorf("retention.ms from log.retention.hours: got %d", got)
	}
	d := b.With(map[string]string{"log.retention.ms": "7"}, map[string]string{"log.retention.ms": "9"})
	if got := d.Topic(nil, false).RetentionMs; got != 9 {
		t.Errorf("the broker's own dynamic value wins: got %d", got)
	}
	if got := d.Topic(map[string]string{"retention.ms": "11"}, false).RetentionMs; got != 11 {
		t.Errorf("the topic's own value wins: got %d", got)
	}
	if got := b.Topic(nil, false).SegmentMs; got != 168*3600_000 {
		t.Errorf("segment.ms default: got %d", got)
	}
}

func TestRefusals(t *testing.T) {
	for key, value := range map[string]string{
		"authorizer.class.name":                   "kafka.security.authorizer.AclAuthorizer",
		"sasl.enabled.mechanisms":                 "PLAIN",
		"listener.name.internal.sasl.jaas.config": "x",
		"ssl.keystore.location":                   "/k",
		"client.quota.callback.class":             "x.Quotas",
		"quota.producer.default":                  "1048576",
		"log.dirs":                                "/a,/b",
		"security.inter.broker.protocol":          "SSL",
		"num.partitions":                          "many",
		"log.segment.bytes":                       "1023",
	} {
		if _, _, err := NewBroker(NewRegistry(), Static{File: map[string]string{key: value}}); err == nil {
			t.Errorf("%s=%s was taken", key, value)
		}
	}
	b := mustBroker(t, Static{File: map[string]string{"listeners": "SASL_SSL://:9093"}})
	if _, err := b.Listeners(); err == nil {
		t.Error("a SASL_SSL listener was taken")
	}
}

func TestARefusalNamesTheKeyThatWasWritten(t *testing.T) {
	for _, key := range []string{"broker.id", "node.id"} {
		_, _, err := NewBroker(NewRegistry(), Static{Set: map[string]string{key: "-5"}})
		if err == nil || !strings.Contains(err.Error(), "for configuration "+key+": ") {
			t.Errorf("%s=-5: %v", key, err)
		}
	}
}

// TestAnEmptyValueIsNoNumber: as in Kafka; log.retention.ms= was once 0, and
// deleted everything, the archive included.
func TestAnEmptyValueIsNoNumber(t *testing.T) {
	for key, want := range map[string]string{
		"log.retention.ms":                "Invalid value  for configuration log.retention.ms: Not a number of type LONG",
		"log.retention.hours":             "Not a number of type INT",
		"log.segment.bytes":               "Not a number of type INT",
		"offsets.topic.num.partitions":    "Not a number of type INT",
		"min.insync.replicas":             "Not a number of type INT",
		"archive.delete.grace.ms":         "Not a number of type LONG",
		"log.cleaner.min.cleanable.ratio": "Not a number of type DOUBLE",
		"auto.create.topics.enable":       "Expected value to be either true or false",
		"compression.type":                "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
		"log.dirs":                        "log.dirs is empty",
	} {
		for _, s := range []struct {
			layer Static
			where string
		}{
			{Static{Set: map[string]string{key: ""}}, "--set " + key},
			{Static{Env: map[string]string{key: ""}}, "environment variable KAFKA_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))},
			{Static{File: map[string]string{key: ""}}, "in the configuration file"},
			{Static{File: map[string]string{key: " "}}, "in the configuration file"},
		} {
			_, _, err := NewBroker(NewRegistry(), s.layer)
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "value   for", "value  for"), want) || !strings.Contains(err.Error(), s.where) {
				t.Errorf("empty %s: %v, want %q and %q", key, err, want, s.where)
			}
		}
	}
	mustBroker(t, Static{Set: map[string]string{"archive.url": "", "admin.listener": "", "advertised.listeners": "", "broker.rack": "",
		"log.cleanup.policy": "", "zookeeper.connect": "", "replica.selector.class": "", "authorizer.class.name": ""}})
	if err := mustBroker(t, Static{}).CheckTopic("t", nil, map[string]string{"retention.ms": ""}); err == nil {
		t.Error("a topic took an empty retention.ms")
	}
}

func TestUnknownKeyIsSuggested(t *testing.T) {
	_, warn, err := NewBroker(NewRegistry(), Static{File: map[string]string{"log.retention.hour": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(warn) != 1 || !strings.Contains(warn[0], "did you mean log.retention.hours?") {
		t.Errorf("warnings: %q", warn)
	}
}

func TestListeners(t *testing.T) {
	b := mustBroker(t, Static{File: map[string]string{
		"listeners":                      "PLAINTEXT://:9092,CONTROLLER://:9093,INTERNAL://10.0.0.1:9094",
		"controller.listener.names":      "CONTROLLER",
		"advertised.listeners":           "PLAINTEXT://broker.example:19092,CONTROLLER://localhost:9093",
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
	}})
	ls, err := b.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	want := []Listener{
		{"PLAINTEXT", "", 9092, "broker.example", 19092},
		{"INTERNAL", "10.0.0.1", 9094, "10.0.0.1", 9094},
	}
	if len(ls) != 2 || ls[0] != want[0] || ls[1] != want[1] {
		t.Errorf("got %+v, want %+v", ls, want)
	}
}

func TestFromEnv(t *testing.T) {
	got := FromEnv([]string{
		"KAFKA_LOG_RETENTION_MS=5", "KAFKA_A__B___C=x", "KAFKA_HEAP_OPTS=-Xmx1G", "KAFKA_LOG4J_LOGGERS=a", "PATH=/bin",
		"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://h:9092",
	})
	want := map[string]string{"log.retention.ms": "5", "a_b-c": "x", "advertised.listeners": "PLAINTEXT://h:9092", "listeners": "PLAINTEXT://0.0.0.0:9092"}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s = %q, want %q", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
}

func TestReadProperties(t *testing.T) {
	got, err := ReadProperties(strings.NewReader("# c\n! c\n a = 1 \nb:2\nc 3\nd=x,\\\n   y\ne=\\u00e9\\t\\=\nf\nlog.dirs=/tmp/a\\:b\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"a": "1", "b": "2", "c": "3", "d": "x,y", "e": "é\t=", "f": "", "log.dirs": "/tmp/a:b"} {
		if got[k] != v {
			t.Errorf("%s = %q, want %q", k, got[k], v)
		}
	}
}

func FuzzReadProperties(f *testing.F) {
	f.Add("a=b\\\nc\\u12")
	f.Add("\\u00e9=\\")
	f.Fuzz(func(t *testing.T, s string) { _, _ = ReadProperties(strings.NewReader(s)) })
}

func TestRemoteRules(t *testing.T) {
	plain := mustBroker(t, Static{})
	arch := plain.WithArchive(true)
	for _, c := range []struct {
		b             *Broker
		before, after map[string]string
		want          string // part of the problem; "" for none
	}{
		{plain, nil, map[string]string{"remote.storage.enable": "true"}, "archive.url"},
		{arch, nil, map[string]string{"remote.storage.enable": "true"}, ""},
		{arch, map[string]string{}, map[string]string{"remote.storage.enable": "false"}, "remote.log.copy.disable=true"},
		{arch, map[string]string{}, map[string]string{"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}, ""},
		{arch, nil, map[string]string{"remote.storage.enable": "false"}, ""},
		{arch, nil, map[string]string{"retention.ms": "10", "local.retention.ms": "11"}, "local.retention.ms=11"},
		{arch, nil, map[string]string{"retention.ms": "10", "local.retention.ms": "-1"}, "local.retention.ms=-1"},
		{arch, nil, map[string]string{"retention.ms": "-1", "local.retention.ms": "11"}, ""},
		{arch, nil, map[string]string{"remote.log.copy.disable": "true", "retention.ms": "10", "local.retention.ms": "5"}, "remote.log.copy.disable"},
		{arch, nil, map[string]string{"local.retention.ms": "5", "remote.copy.lag.ms": "6"}, "remote.copy.lag.ms"},
		{arch, nil, map[string]string{"cleanup.policy": "compact"}, "compact"},
		{arch, nil, map[string]string{"retention.msec": "5"}, "Did you mean retention.ms?"},
		{arch, nil, map[string]string{"message.format.version": "3.0"}, "Unknown topic config name: message.format.version"},
		{arch, nil, map[string]string{"retention.ms": "-7"}, "Invalid value -7 for configuration retention.ms: Value must be at least -1"},
		{arch, nil, map[string]string{"leader.replication.throttled.replicas": "zz"}, "must be the literal '*' or a list"},
		{arch, nil, map[string]string{"leader.replication.throttled.replicas": "0:1,zz"}, "must be the literal '*' or a list"},
		{arch, nil, map[string]string{"leader.replication.throttled.replicas": "0:1,1:2", "follower.replication.throttled.replicas": "*"}, ""},
		{arch, nil, map[string]string{"leader.replication.throttled.replicas": ""}, ""},
	} {
		err := c.b.CheckTopic("t", c.before, c.after)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v → %v: got %v, want %q", c.before, c.after, err, c.want)
		}
	}
	long := strings.Repeat("x", MaxArchivedName+1)
	if err := arch.CheckTopic(long, nil, map[string]string{"remote.storage.enable": "true"}); err == nil {
		t.Error("a name too long for the archive was to be archived")
	}
	if err := arch.CheckTopic(long, nil, nil); err != nil {
		t.Errorf("a long name: %v", err)
	}
	if !arch.Topic(nil, false).RemoteStorageEnable || arch.Topic(nil, true).RemoteStorageEnable || plain.Topic(nil, false).RemoteStorageEnable {
		t.Error("remote.storage.enable is on by default only with an archive, and never for internal topics")
	}
}

func TestDescribe(t *testing.T) {
	b := mustBroker(t, Static{File: map[string]string{"log.retention.ms": "5"}})
	e := b.DescribeTopic(map[string]string{"retention.ms": "3"}, false, []string{"retention.ms"})
	if len(e) != 1 || e[0].Value.Value != "3" || e[0].Value.Source != SourceTopic || len(e[0].Synonyms) < 3 || e[0].Synonyms[1].Name != "log.retention.ms" {
		t.Errorf("got %+v", e)
	}
	if n := len(b.DescribeBroker(nil)); n < 200 {
		t.Errorf("only %d broker keys", n)
	}
}

// What DescribeConfigs lists is what Apache Kafka 4.3.1 lists.
func TestSynonymsAreListedAsInKafka(t *testing.T) {
	b := mustBroker(t, Static{File: map[string]string{"log.retention.ms": "5"}}).With(map[string]string{"message.max.bytes": "2000"}, nil)
	list := func(e []Entry) string {
		var all []string
		for _, e := range e {
			line := e.Key.Name + "=" + e.Value.Value
			for _, s := range e.Synonyms {
				line += fmt.Sprintf(" %d:%s=%s", s.Source, s.Name, s.Value)
			}
			all = append(all, line)
		}
		return strings.Join(all, "\n")
	}
	got := list(b.DescribeTopic(map[string]string{"segment.ms": "7"}, false,
		[]string{"retention.ms", "segment.ms", "segment.jitter.ms", "remote.log.copy.disable", "max.message.bytes", "cleanup.policy"}))
	if want := `retention.ms=5 4:log.retention.ms=5 5:log.retention.hours=168
segment.ms=7 1:segment.ms=7
segment.jitter.ms=0
remote.log.copy.disable=false
max.message.bytes=2000 3:message.max.bytes=2000 5:message.max.bytes=1048588
cleanup.policy=delete 5:log.cleanup.policy=delete`; got != want {
		t.Errorf("of a topic:\n%s\nwant\n%s", got, want)
	}
	got = list(b.DescribeBroker([]string{"log.retention.ms", "log.retention.minutes", "log.retention.hours", "log.roll.ms", "broker.rack", "node.id"}))
	if want := `log.retention.ms=5 4:log.retention.ms=5 5:log.retention.hours=168
log.retention.minutes=
log.retention.hours=168 5:log.retention.hours=168
log.roll.ms=
broker.rack=
node.id=1 5:node.id=1`; got != want {
		t.Errorf("of a broker:\n%s\nwant\n%s", got, want)
	}
	for _, e := range append(b.DescribeBroker(nil), b.DescribeTopic(nil, false, nil)...) {
		if strings.Contains(e.Key.Name, "<") || e.Key.Name == "message.format.version" {
			t.Errorf("%s is listed", e.Key.Name)
		}
	}
}

func TestADiskKeepsAReserveUnlessToldNot(t *testing.T) {
	for set, want := range map[string]int64{"": 0, "-1": 0, "0": -1, "4096": 4096} {
		s := Static{Set: map[string]string{}}
		if set != "" {
			s.Set["log.dir.min.free.bytes"] = set
		}
		b, _, err := NewBroker(NewRegistry(), s)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.DiskReserve(); got != want {
			t.Errorf("log.dir.min.free.bytes=%s: %d, want %d", set, got, want)
		}
	}
}

// TestTopicKeysAreDocumented: every topic key that a describe lists says what it
// does, and so does the broker key that is its default.
func TestTopicKeysAreDocumented(t *testing.T) {
	r := NewRegistry()
	for _, k := range r.Keys(ScopeTopic) {
		if k.listed() && k.Doc == "" {
			t.Errorf("%s has no documentation", k.Name)
		}
	}
	if k, _ := r.Broker("log.roll.ms"); !strings.Contains(k.Doc, "segment.ms") {
		t.Errorf("log.roll.ms: %q", k.Doc)
	}
	for _, k := range r.Keys(ScopeBroker) {
		if k.Stance == "ours" && k.Doc == "" {
			t.Errorf("%s has no documentation", k.Name)
		}
	}
}
