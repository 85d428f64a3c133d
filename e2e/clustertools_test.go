package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/e2e/harness"
)

// TestKafkasClusterTools runs Kafka's tools for a cluster against three brokers:
// what they print is what they print about Apache Kafka.
func TestKafkasClusterTools(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterOptions{Set: []string{
		"replica.fetch.max.bytes=50000",      // so that a throttle is felt
		"auto.leader.rebalance.enable=false", // else the controller may be faster than the tool
	}})
	box := harness.NewToolbox(t)
	s := clusterShell{shell: shell{t, box, c.Bootstrap()}, c: c, adm: kadm.NewClient(clusterClient(t, c))}
	for _, part := range []struct {
		name string
		test func(clusterShell)
	}{
		{"reassign", reassignTool}, {"configs", brokerConfigTool}, {"election", electionTool}, {"firn", firnCluster},
	} {
		if !t.Run(part.name, func(t *testing.T) {
			sub := s
			sub.T = t
			part.test(sub)
		}) {
			return
		}
	}
}

type clusterShell struct {
	shell
	c   *harness.Cluster
	adm *kadm.Client
}

// assignment is a partition as the tool's JSON has it.
type assignment struct {
	Topic     string   `json:"topic"`
	Partition int      `json:"partition"`
	Replicas  []int    `json:"replicas"`
	LogDirs   []string `json:"log_dirs,omitempty"`
}

type assignments struct {
	Version    int          `json:"version"`
	Partitions []assignment `json:"partitions"`
}

// file writes v as JSON and returns where.
func (s clusterShell) file(v any) string {
	s.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		s.Fatal(err)
	}
	path := filepath.Join(s.TempDir(), "in.json")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		s.Fatal(err)
	}
	return path
}

const (
	reassignClass = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
	electionClass = "org.apache.kafka.tools.LeaderElectionCommand"
)

// everywhere waits until every broker, whichever a tool may ask, says so of
// partition 0 of a topic.
func (s clusterShell) everywhere(what, topic string, ok func(kmsg.MetadataResponseTopicPartition) bool) {
	s.Helper()
	s.c.Everywhere(s.T, time.Minute, "everywhere "+what, topic, func(t kmsg.MetadataResponseTopic) bool {
		return slices.ContainsFunc(t.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Partition == 0 && ok(p) })
	})
}

// shows waits until a tool prints words: what one broker has answered, another may
// hear of a moment later.
func (s clusterShell) shows(words, class string, args ...string) {
	s.Helper()
	var out string
	harness.Eventually(s.T, time.Minute, class+" shows "+words, func() bool {
		out = s.out(class, args...)
		return strings.Contains(out, words)
	}, func() string { return "\n" + out })
}

func reassignTool(s clusterShell) {
	const topic = "moved"
	const slow = "2000" // bytes a second: each move would take ten minutes, some tools take seconds
	s.prints("Created topic moved.", "TopicCommand", "--create", "--topic", topic, "--replica-assignment", "1:2,2:3")
	client := clusterClient(s.T, s.c, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for range 200 {
		if err := client.ProduceSync(s.Context(), &kgo.Record{Value: make([]byte, 10_000)}).FirstErr(); err != nil {
			s.Fatal(err)
		}
	}

	topics := s.file(map[string]any{"version": 1, "topics": []map[string]string{{"topic": topic}}})
	out := s.out(reassignClass, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,3")
	var proposed assignments
	_, plan, ok := strings.Cut(out, "Proposed partition reassignment configuration\n")
	if !ok || json.Unmarshal([]byte(plan), &proposed) != nil || len(proposed.Partitions) != 2 {
		s.Fatalf("--generate prints\n%s", out)
	}

	proposed.Partitions = []assignment{
		{Topic: topic, Partition: 0, Replicas: []int{3, 1}},
		{Topic: topic, Partition: 1, Replicas: []int{1, 3}},
	}
	plan = s.file(proposed)
	out = s.out(reassignClass, "--execute", "--reassignment-json-file", plan, "--throttle", slow)
	if !strings.Contains(out, "Successfully started partition reassignments for moved-0,moved-1") ||
		!strings.Contains(out, "The inter-broker throttle limit was set to "+slow+" B/s") {
		s.Errorf("--execute prints\n%s", out)
	}
	s.shows("leader.replication.throttled.rate="+slow, configCommand, "--describe", "--entity-type", "brokers", "--entity-name", "1")
	out = s.out(reassignClass, "--list")
	if !strings.Contains(out, "moved-0: replicas: 3,1,2. adding: 3. removing: 2.") {
		s.Errorf("--list prints\n%s", out)
	}
	out = s.out(reassignClass, "--verify", "--reassignment-json-file", plan, "--preserve-throttles")
	if !strings.Contains(out, "Reassignment of partition moved-0 is still in progress.") {
		s.Errorf("--verify at once prints\n%s", out)
	}

	// Other replicas instead, without a throttle.
	out = s.out(reassignClass, "--cancel", "--reassignment-json-file", plan)
	if !strings.Contains(out, "Successfully cancelled partition reassignments for: moved-0") && !strings.Contains(out, "Successfully cancelled partition reassignments for: moved-0,moved-1") {
		s.Errorf("--cancel prints\n%s", out)
	}
	s.everywhere("it is cancelled", topic, func(p kmsg.MetadataResponseTopicPartition) bool { return !slices.Contains(p.Replicas, 3) })
	s.out(reassignClass, "--execute", "--reassignment-json-file", plan)
	harness.Eventually(s.T, 60*time.Second, "the partitions have moved", func() bool {
		out = s.out(reassignClass, "--verify", "--reassignment-json-file", plan)
		return strings.Contains(out, "Reassignment of partition moved-0 is completed.") && strings.Contains(out, "Reassignment of partition moved-1 is completed.")
	})
	if !strings.Contains(out, "Clearing broker-level throttles on brokers 1,2,3") || !strings.Contains(out, "Clearing topic-level throttles on topic moved") {
		s.Errorf("--verify at the end prints\n%s", out)
	}
	s.everywhere("it has moved", topic, func(p kmsg.MetadataResponseTopicPartition) bool { return slices.Equal(p.Replicas, []int32{3, 1}) })
	if n := ended(s.T, s.c.Broker(1).Addr, topic); n != 200 {
		s.Errorf("%d records after the move", n)
	}
}

func brokerConfigTool(s clusterShell) {
	s.prints("Completed updating config for broker 2.", configCommand, "--alter", "--entity-type", "brokers", "--entity-name", "2", "--add-config", "log.retention.ms=123456789")
	s.prints("Completed updating default config for brokers in the cluster.", configCommand, "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=987654321")
	s.shows("log.retention.ms=123456789 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=123456789, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=987654321",
		configCommand, "--describe", "--entity-type", "brokers", "--entity-name", "2")
	s.shows("log.retention.ms=987654321", configCommand, "--describe", "--entity-type", "brokers", "--entity-default")
	s.prints("Completed updating config for broker 2.", configCommand, "--alter", "--entity-type", "brokers", "--entity-name", "2", "--delete-config", "log.retention.ms")
	s.refused("Cannot update these configs dynamically", configCommand, "--alter", "--entity-type", "brokers", "--entity-name", "2", "--add-config", "broker.rack=a")
}

func electionTool(s clusterShell) {
	const topic = "elected"
	s.prints("Created topic elected.", "TopicCommand", "--create", "--topic", topic, "--replica-assignment", "1:2:3", "--config", "min.insync.replicas=1")
	allInSync(s.T, s.c, topic)
	s.prints("", "TopicCommand", "--describe", "--topic", topic, "--under-replicated-partitions")
	s.c.Broker(1).Kill()
	others := s.c.Broker(2).Addr + "," + s.c.Broker(3).Addr
	s.addr = others
	s.everywhere("broker 2 leads", topic, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader == 2 && len(p.ISR) == 2 })
	s.prints("Topic: elected Partition: 0 Leader: 2 Replicas: 1,2,3 Isr: 2,3 Elr:  LastKnownElr:", "TopicCommand", "--describe", "--topic", topic, "--under-replicated-partitions")
	s.prints("", "TopicCommand", "--describe", "--topic", topic, "--unavailable-partitions")
	s.refused("", electionClass, "--election-type", "preferred", "--topic", topic, "--partition", "0")
	s.c.Broker(1).Start()
	s.c.Broker(1).WaitReady()
	allInSync(s.T, s.c, topic)
	s.prints("Successfully completed leader election (PREFERRED) for partitions elected-0", electionClass, "--election-type", "preferred", "--topic", topic, "--partition", "0")
	s.everywhere("broker 1 leads", topic, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader == 1 })
	s.prints("Valid replica already elected for partitions elected-0", electionClass, "--election-type", "preferred", "--topic", topic, "--partition", "0")
}

// firnCluster does the same with firn's own verbs.
func firnCluster(s clusterShell) {
	firn := func(brokers string, args ...string) harness.Output {
		args = append(append([]string{"cluster"}, args...), "-b", brokers)
		return harness.Run(s.T, 2*time.Minute, "", harness.Binary(s.T), args...)
	}
	run := func(args ...string) {
		s.Helper()
		if o := firn(s.c.Bootstrap(), args...); o.Err != nil {
			s.Errorf("firn cluster %s: %v\n%s%s", strings.Join(args, " "), o.Err, o.Stdout, o.Stderr)
		}
	}
	harness.Eventually(s.T, 30*time.Second, "the cluster is healthy", func() bool {
		o := firn(s.c.Bootstrap(), "health")
		return o.Err == nil && strings.Contains(o.Stdout, "healthy")
	})
	var out string // of whichever broker is asked
	harness.Eventually(s.T, 30*time.Second, "status has all brokers", func() bool {
		out = firn(s.c.Bootstrap(), "status").Stdout
		return strings.Contains(out, "brokers     1, 2, 3")
	}, func() string { return "\n" + out })
	harness.Eventually(s.T, 30*time.Second, "what is on broker 1 is in sync", func() bool {
		var b struct{ Leads, Replicas, InSync int }
		out = firn(s.c.Bootstrap(), "brokers", "-o", "json").Stdout
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return len(lines) == 3 && json.Unmarshal([]byte(lines[0]), &b) == nil && b.Replicas > 0 && b.Replicas == b.InSync
	}, func() string { return "\n" + out })
	run("reassign", "elected", "--to", "2,3", "--replicas", "2", "--wait")
	s.everywhere("it has moved", "elected", func(p kmsg.MetadataResponseTopicPartition) bool {
		return len(p.Replicas) == 2 && !slices.Contains(p.Replicas, 1)
	})
	if o := firn(s.c.Bootstrap(), "reassign", "elected", "--to", "2,3", "--replicas", "2", "--wait"); o.Err != nil || !strings.Contains(o.Stdout, "nothing to do") {
		s.Errorf("the same once more: %v\n%s%s", o.Err, o.Stdout, o.Stderr)
	}
	// A command goes on from what the one before has waited for, all of it.
	for _, b := range []string{"3", "2", "1"} {
		run("reassign", "--drain", b, "--wait")
	}
	run("reassign", "--drain", "3", "--dry-run")
	s.c.Broker(3).Kill()
	harness.Eventually(s.T, 30*time.Second, "health tells who is away", func() bool {
		o := firn(s.c.Broker(1).Addr+","+s.c.Broker(2).Addr, "health")
		return o.Err != nil && strings.Contains(o.Stdout, "under-replicated") && strings.Contains(o.Stdout, "broker 3 is away")
	})
	s.c.Broker(3).Start()
	s.c.Broker(3).WaitReady()
}
