package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"firn/e2e/harness"
)

// A shell runs Kafka's tools against one broker.
type shell struct {
	*testing.T
	box  *harness.Toolbox
	addr string
}

// prints runs a tool that must succeed and print exactly this, lines in order;
// what changes from run to run is written as in masked.
func (s shell) prints(want, class string, args ...string) {
	s.Helper()
	if got := masked(s.out(class, args...)); got != strings.TrimSpace(want) {
		s.Errorf("%s %s prints\n%s\nwant\n%s", class, strings.Join(args, " "), got, want)
	}
}

// out is what a tool that must succeed prints.
func (s shell) out(class string, args ...string) string {
	s.Helper()
	return s.box.Must("", class, append([]string{"--bootstrap-server", s.addr}, args...)...)
}

// refused runs a tool that must fail and say so.
func (s shell) refused(want, class string, args ...string) {
	s.Helper()
	o := s.box.Run("", class, append([]string{"--bootstrap-server", s.addr}, args...)...)
	if o.Err == nil || !strings.Contains(o.Stdout+o.Stderr, want) {
		s.Errorf("%s %s: %v\n%s%s\nwant %q", class, strings.Join(args, " "), o.Err, o.Stdout, o.Stderr, want)
	}
}

var topicID = regexp.MustCompile(`TopicId: [-_\w]{22}`)

// masked has every topic id as "TopicId: ID" and tabs as single spaces,
// and nothing at the end of a line.
func masked(s string) string {
	s = topicID.ReplaceAllString(s, "TopicId: ID")
	s = regexp.MustCompile(`[ \t]+(\n|$)`).ReplaceAllString(s, "$1")
	return strings.TrimSpace(strings.ReplaceAll(s, "\t", " "))
}

// TestKafkasAdminTools holds what Apache Kafka's own tools print about a broker
// against what they print about Apache Kafka.
func TestKafkasAdminTools(t *testing.T) {
	f := harness.Start(t, harness.Options{Set: []string{"offsets.topic.num.partitions=1"}})
	box := harness.NewToolbox(t)
	for _, part := range []struct {
		name string
		test func(shell)
	}{
		{"topics", topicTool}, {"configs", configTool}, {"console", consoleTools},
		{"offsets", offsetTools}, {"performance", perfTool},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(shell{t, box, f.Addr}) })
	}
}

func topicTool(s shell) {
	s.prints("Created topic made.", "TopicCommand", "--create", "--topic", "made", "--partitions", "2",
		"--config", "retention.ms=86400000", "--config", "local.retention.ms=1000")
	s.refused("Topic 'made' already exists.", "TopicCommand", "--create", "--topic", "made")
	s.prints("", "TopicCommand", "--create", "--topic", "made", "--if-not-exists")
	s.refused("The target replication factor of 3 cannot be reached because only 1 broker(s) are registered",
		"TopicCommand", "--create", "--topic", "three", "--replication-factor", "3")
	s.refused("Invalid value x for configuration retention.ms: Not a number of type LONG", "TopicCommand", "--create", "--topic", "bad", "--config", "retention.ms=x")
	s.refused("Unknown topic config name: no.such.config", "TopicCommand", "--create", "--topic", "bad", "--config", "no.such.config=1")
	s.prints("made", "TopicCommand", "--list")
	s.prints(`
Topic: made TopicId: ID PartitionCount: 2 ReplicationFactor: 1 Configs: local.retention.ms=1000,retention.ms=86400000,segment.bytes=67108864
 Topic: made Partition: 0 Leader: 1 Replicas: 1 Isr: 1 Elr:  LastKnownElr:
 Topic: made Partition: 1 Leader: 1 Replicas: 1 Isr: 1 Elr:  LastKnownElr:`,
		"TopicCommand", "--describe", "--topic", "made")
	s.prints("", "TopicCommand", "--describe", "--under-replicated-partitions")
	s.prints("", "TopicCommand", "--describe", "--unavailable-partitions")
	s.prints("", "TopicCommand", "--alter", "--topic", "made", "--partitions", "3")
	s.refused("The topic made currently has 3 partition(s); 2 would not be an increase.", "TopicCommand", "--alter", "--topic", "made", "--partitions", "2")
	s.refused("Topic 'none' does not exist as expected", "TopicCommand", "--describe", "--topic", "none")
	if got := s.out("TopicCommand", "--describe", "--topic", "made"); strings.Count(got, "Leader: 1") != 3 {
		s.Errorf("--describe after --alter: %s", got)
	}
	s.prints("", "TopicCommand", "--delete", "--topic", "made")
	s.refused("Topic 'made' does not exist as expected", "TopicCommand", "--delete", "--topic", "made")
	s.prints("", "TopicCommand", "--list")
}

const configCommand = "kafka.admin.ConfigCommand"

func configTool(s shell) {
	s.out("TopicCommand", "--create", "--topic", "tuned")
	s.prints("Dynamic configs for topic tuned are:", configCommand, "--describe", "--topic", "tuned")
	s.prints("Completed updating config for topic tuned.", configCommand, "--alter", "--topic", "tuned",
		"--add-config", "retention.ms=86400000,max.message.bytes=2000")
	s.prints(`
Dynamic configs for topic tuned are:
  max.message.bytes=2000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000, DEFAULT_CONFIG:message.max.bytes=1048588}
  retention.ms=86400000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=86400000, STATIC_BROKER_CONFIG:log.retention.ms=-1, DEFAULT_CONFIG:log.retention.hours=168}`,
		configCommand, "--describe", "--topic", "tuned")
	s.prints("Completed updating config for topic tuned.", configCommand, "--alter", "--topic", "tuned", "--delete-config", "max.message.bytes")
	s.refused("InvalidConfigurationException: Unknown topic config name: no.such.config", configCommand, "--alter", "--topic", "tuned", "--add-config", "no.such.config=1")
	s.refused("InvalidConfigurationException: Invalid value -2 for configuration max.message.bytes", configCommand, "--alter", "--topic", "tuned", "--add-config", "max.message.bytes=-2")

	all := s.out(configCommand, "--describe", "--all", "--topic", "tuned")
	for _, want := range []string{
		"  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}\n",
		"  flush.ms=9223372036854775807 sensitive=false synonyms={}\n",
		"  leader.replication.throttled.replicas= sensitive=false synonyms={}\n",
		"  local.retention.ms=3600000 sensitive=false synonyms={STATIC_BROKER_CONFIG:log.local.retention.ms=3600000, DEFAULT_CONFIG:log.local.retention.ms=-2}\n",
		"  segment.ms=604800000 sensitive=false synonyms={}\n",
		"  remote.storage.enable=true sensitive=false synonyms={}\n",
	} {
		if !strings.Contains(all, want) {
			s.Errorf("--describe --all lacks %q", want)
		}
	}
	if strings.Contains(all, "message.format.version") {
		s.Errorf("--describe --all has keys that Kafka 4 has no more:\n%s", all)
	}

	s.prints("Completed updating default config for brokers in the cluster.", configCommand, "--alter", "--entity-type", "brokers", "--entity-default",
		"--add-config", "message.max.bytes=2000000")
	s.prints(`
Default configs for brokers in the cluster are:
  message.max.bytes=2000000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000000}`,
		configCommand, "--describe", "--entity-type", "brokers", "--entity-default")
	s.prints("Completed updating config for broker 1.", configCommand, "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "message.max.bytes=3000000")
	s.prints(`
Dynamic configs for broker 1 are:
  message.max.bytes=3000000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:message.max.bytes=3000000, DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000000, DEFAULT_CONFIG:message.max.bytes=1048588}`,
		configCommand, "--describe", "--entity-type", "brokers", "--entity-name", "1")
	s.out(configCommand, "--alter", "--entity-type", "brokers", "--entity-name", "1", "--delete-config", "message.max.bytes")
	all = s.out(configCommand, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
	for _, want := range []string{
		"  message.max.bytes=2000000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000000, DEFAULT_CONFIG:message.max.bytes=1048588}\n",
		"  node.id=1 sensitive=false", "  broker.id=1 sensitive=false",
		"  ssl.key.password=null sensitive=true synonyms={}\n",
		"  log.retention.hours=168 sensitive=false",
	} {
		if !strings.Contains(all, want) {
			s.Errorf("the broker's --describe --all lacks %q", want)
		}
	}
	if strings.Contains(all, "<") {
		s.Errorf("the broker's --describe --all has keys that are none:\n%s", all)
	}
}

func consoleTools(s shell) {
	s.out("TopicCommand", "--create", "--topic", "talk", "--partitions", "1")
	s.box.Must("k1:one\nk2:two\nk1:three\n", "ConsoleProducer", "--bootstrap-server", s.addr, "--topic", "talk",
		"--reader-property", "parse.key=true", "--reader-property", "key.separator=:", "--compression-codec", "zstd")
	s.prints("k1 one\nk2 two\nk1 three", "consumer.ConsoleConsumer", "--topic", "talk", "--from-beginning",
		"--max-messages", "3", "--timeout-ms", "30000", "--formatter-property", "print.key=true")
	s.prints("Partition:0 Offset:1 two", "consumer.ConsoleConsumer", "--topic", "talk", "--partition", "0", "--offset", "1",
		"--max-messages", "1", "--timeout-ms", "30000", "--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true")
}

func perfTool(s shell) {
	s.out("TopicCommand", "--create", "--topic", "load", "--partitions", "2")
	got := s.out("ProducerPerformance", "--topic", "load", "--num-records", "20000", "--record-size", "100", "--throughput", "-1")
	if !regexp.MustCompile(`(?m)^20000 records sent, [\d.]+ records/sec .* 99.9th\.`).MatchString(got) {
		s.Errorf("ProducerPerformance prints %s", got)
	}
	got = s.out("GetOffsetShell", "--topic", "load", "--time", "latest")
	sum := 0
	for line := range strings.Lines(got) {
		var p, n int
		if _, err := fmt.Sscanf(line, "load:%d:%d", &p, &n); err != nil {
			s.Errorf("GetOffsetShell prints %s", line)
		}
		sum += n
	}
	if sum != 20000 {
		s.Errorf("%d records arrived: %s", sum, got)
	}
}

// offsetTools are those that ask for offsets and move the log start, over both
// tiers.
func offsetTools(s shell) {
	s.out("TopicCommand", "--create", "--topic", "past", "--partitions", "2", "--config", "remote.storage.enable=false")
	produceNumbers(s.T, s.addr, "past", 2, 0, 100)
	offsets := func(time, want string) {
		s.Helper()
		s.prints(want, "GetOffsetShell", "--topic", "past", "--time", time)
	}
	for _, l := range []struct{ time, want string }{
		{"-1", "past:0:50\npast:1:50"}, {"latest", "past:0:50\npast:1:50"},
		{"-2", "past:0:0\npast:1:0"}, {"earliest", "past:0:0\npast:1:0"},
		{"-3", "past:0:49\npast:1:49"}, {"max-timestamp", "past:0:49\npast:1:49"},
		{"-4", "past:0:0\npast:1:0"}, {"earliest-local", "past:0:0\npast:1:0"},
		{"-5", ""}, {"latest-tiered", ""}, {"-6", ""}, {"earliest-pending-upload", ""},
		{"40000", "past:0:20\npast:1:20"}, {"99000", "past:1:49"}, {"100000", ""},
	} {
		offsets(l.time, l.want)
	}

	deleteRecords(s, "past", 0, 10, "partition: past-0 low_watermark: 10")
	deleteRecords(s, "past", 1, -1, "partition: past-1 low_watermark: 50")
	offsets("earliest", "past:0:10\npast:1:50")
	deleteRecords(s, "past", 0, 51, "OffsetOutOfRangeException")

	var dirs struct {
		Brokers []struct {
			Broker  int
			LogDirs []struct {
				Error      *string
				Partitions []struct {
					Partition       string
					Size, OffsetLag int64
					IsFuture        bool
				}
			}
		}
	}
	got := s.out("LogDirsCommand", "--describe", "--topic-list", "past")
	_, body, _ := strings.Cut(got, "from brokers 1\n")
	if err := json.Unmarshal([]byte(body), &dirs); err != nil || len(dirs.Brokers) != 1 || len(dirs.Brokers[0].LogDirs) != 1 {
		s.Fatalf("LogDirsCommand prints %s: %v", got, err)
	}
	if d := dirs.Brokers[0].LogDirs[0]; d.Error != nil || len(d.Partitions) != 2 || d.Partitions[0].Size < 500 || d.Partitions[0].OffsetLag != 0 {
		s.Errorf("LogDirsCommand prints %s", body)
	}
}

// deleteRecords runs the tool with an offset file that it takes as JSON.
func deleteRecords(s shell, topic string, partition, offset int, want string) {
	s.Helper()
	file := writeFile(s.T, "offsets.json", fmt.Sprintf(`{"version":1,"partitions":[{"topic":%q,"partition":%d,"offset":%d}]}`, topic, partition, offset))
	if got := masked(s.out("DeleteRecordsCommand", "--offset-json-file", file)); !strings.Contains(got, want) {
		s.Errorf("DeleteRecordsCommand prints\n%s\nwant %q", got, want)
	}
}

func writeFile(t testing.TB, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKafkasToolsReachTheArchive asks for offsets and reads by date where the
// local log no longer reaches.
func TestKafkasToolsReachTheArchive(t *testing.T) {
	f := harness.Start(t, harness.Options{Set: []string{"offsets.topic.num.partitions=1", "log.retention.check.interval.ms=200",
		"remote.log.manager.task.interval.ms=200", "log.segment.delete.delay.ms=0",
		"archive.upload.max.interval.ms=86400000"}}) // the tiers stay as they are
	createTopic(t, f.Addr, "years", 1, map[string]string{"segment.bytes": "1024", "local.retention.ms": "1"})
	for i := range 20 { // a batch each, a segment every few
		produceNumbers(t, f.Addr, "years", 1, 10*i, 10*i+10)
	}
	local := waitArchived(t, f, "years", 150)
	s := shell{t, harness.NewToolbox(t), f.Addr}
	for time, want := range map[string]int64{
		"earliest": 0, "latest": 200, "max-timestamp": 199, "earliest-local": local, "latest-tiered": local - 1, "earliest-pending-upload": local,
		"25000": 25,
	} {
		s.prints(fmt.Sprintf("years:0:%d", want), "GetOffsetShell", "--topic", "years", "--time", time)
	}
	s.prints("GROUP           TOPIC           PARTITION  NEW-OFFSET\naudit           years           0          100",
		"consumer.group.ConsumerGroupCommand", "--group", "audit", "--topic", "years", "--reset-offsets", "--to-datetime", "1970-01-01T00:01:40.000Z", "--execute")
	s.prints("100\n101\n102", "consumer.ConsoleConsumer", "--topic", "years", "--group", "audit", "--max-messages", "3", "--timeout-ms", "30000")
	s.prints("audit", "consumer.group.ConsumerGroupCommand", "--list")
	deleteRecords(s, "years", 0, 42, "partition: years-0 low_watermark: 42")
	s.prints("years:0:42", "GetOffsetShell", "--topic", "years", "--time", "earliest")
	s.prints("years:0:42", "GetOffsetShell", "--topic", "years", "--time", "1000")
	s.prints("42", "consumer.ConsoleConsumer", "--topic", "years", "--from-beginning", "--max-messages", "1", "--timeout-ms", "30000")
}

// waitArchived waits until nothing of partition 0 is left on the disk but the segment
// that is written to, and the archive reaches offset least, and returns where the
// local log begins.
func waitArchived(t testing.TB, f *harness.Firn, topic string, least int64) (local int64) {
	t.Helper()
	adm := kadmClient(t, f.Addr)
	harness.Eventually(t, 30*time.Second, "the archive holds what is sealed, and only it", func() bool {
		l, err1 := adm.ListLocalLogStartOffsets(t.Context(), topic)
		r, err2 := adm.ListLatestRemoteOffsets(t.Context(), topic)
		if err1 != nil || err2 != nil {
			return false
		}
		from, _ := l.Lookup(topic, 0)
		to, _ := r.Lookup(topic, 0)
		local = from.Offset
		logs, err := filepath.Glob(filepath.Join(f.Data, "logs", topic+"-0", "*.log"))
		return err == nil && len(logs) == 1 && local == to.Offset+1 && local >= least
	}, func() string { return fmt.Sprint(" local from ", local) })
	return local
}
