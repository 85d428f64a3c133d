package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
)

// produceNumbers appends the records from … below-1 to a topic, each to the
// partition of its number, with a timestamp of as many seconds.
func produceNumbers(t testing.TB, addr, topic string, partitions, from, below int) {
	t.Helper()
	c := newClient(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer c.Close()
	var records []*kgo.Record
	for i := from; i < below; i++ {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: []byte(strconv.Itoa(i)), Timestamp: time.Unix(int64(i), 0)})
	}
	if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func kadmClient(t testing.TB, addr string) *kadm.Client {
	t.Helper()
	c := newClient(t, addr)
	t.Cleanup(c.Close)
	return kadm.NewClient(c)
}

// numbers collects what members of a group have read.
type numbers struct {
	mu   sync.Mutex
	seen map[string]int
}

func (n *numbers) add(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = map[string]int{}
	}
	n.seen[s]++
}

func (n *numbers) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.seen)
}

// waitMembers waits until a group is stable with so many members.
func waitMembers(t *testing.T, adm *kadm.Client, group string, members int) {
	t.Helper()
	describe := func() string {
		d, err := adm.DescribeGroups(t.Context(), group)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s with %d members", d[group].State, len(d[group].Members))
	}
	want := fmt.Sprintf("Stable with %d members", members)
	harness.Eventually(t, 40*time.Second, want, func() bool { return describe() == want }, describe)
}

// member runs a consumer that prints a record a line, until the test ends.
func member(t *testing.T, cmd *exec.Cmd, into *numbers) *exec.Cmd {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			into.add(sc.Text())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	return cmd
}

// kgoMember polls in the background until it is closed.
func kgoMember(t *testing.T, addr, group, topic string, into *numbers, opts ...kgo.Opt) (leave func()) {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(300 * time.Millisecond), kgo.AutoCommitInterval(100 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.PollFetches(ctx).EachRecord(func(r *kgo.Record) { into.add(string(r.Value)) })
		}
	}()
	leave = sync.OnceFunc(func() {
		cancel()
		<-done
		_ = c.CommitUncommittedOffsets(context.Background()) // best effort: a rebalance may refuse it
		c.Close()
	})
	t.Cleanup(leave)
	return leave
}

func TestKgoGroupRebalances(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{
		"cooperative": kgo.CooperativeStickyBalancer(), "eager": kgo.RangeBalancer(),
	} {
		t.Run(name, func(t *testing.T) {
			f := harness.Start(t, harness.Options{})
			createTopic(t, f.Addr, "events", 4, nil)
			adm := kadmClient(t, f.Addr)
			var got numbers
			opt := kgo.Balancers(balancer)
			kgoMember(t, f.Addr, "readers", "events", &got, opt)
			produceNumbers(t, f.Addr, "events", 4, 0, 400)
			harness.Eventually(t, 30*time.Second, "400 records by one member", func() bool { return got.count() == 400 })
			leave := kgoMember(t, f.Addr, "readers", "events", &got, opt)
			waitMembers(t, adm, "readers", 2)
			produceNumbers(t, f.Addr, "events", 4, 400, 800)
			harness.Eventually(t, 30*time.Second, "800 records by two members", func() bool { return got.count() == 800 })
			leave()
			waitMembers(t, adm, "readers", 1)
			produceNumbers(t, f.Addr, "events", 4, 800, 1200)
			harness.Eventually(t, 30*time.Second, "1200 records by the member that is left", func() bool { return got.count() == 1200 })
		})
	}
}

// TestGroupResumesAfterTheBrokersDeath: what was committed counts after a
// SIGKILL of the broker, and its members find their way back.
func TestGroupResumesAfterTheBrokersDeath(t *testing.T) {
	f := harness.Start(t, harness.Options{})
	createTopic(t, f.Addr, "events", 2, nil)
	produceNumbers(t, f.Addr, "events", 2, 0, 200)
	adm := kadmClient(t, f.Addr)
	var got numbers
	leave := kgoMember(t, f.Addr, "readers", "events", &got)
	harness.Eventually(t, 30*time.Second, "200 records", func() bool { return got.count() == 200 })
	committed := func() int64 {
		o, err := adm.FetchOffsets(t.Context(), "readers")
		if err != nil {
			return -1
		}
		var sum int64
		o.Each(func(r kadm.OffsetResponse) { sum += r.At })
		return sum
	}
	harness.Eventually(t, 20*time.Second, "a commit of all", func() bool { return committed() == 200 })

	f.Kill()
	f.Restart()
	if n := committed(); n != 200 {
		t.Fatalf("after the restart %d are committed, want 200", n)
	}
	produceNumbers(t, f.Addr, "events", 2, 200, 300)
	harness.Eventually(t, 40*time.Second, "300 records", func() bool { return got.count() == 300 })
	harness.Eventually(t, 40*time.Second, "a commit of all 300", func() bool { return committed() == 300 })
	leave()

	var again numbers
	kgoMember(t, f.Addr, "readers", "events", &again)
	produceNumbers(t, f.Addr, "events", 2, 300, 301)
	harness.Eventually(t, 30*time.Second, "record 300", func() bool { again.mu.Lock(); defer again.mu.Unlock(); return again.seen["300"] == 1 })
	if n := again.count(); n != 1 {
		t.Errorf("after a restart of the consumer %d records came, want the new one", n)
	}
}

// consumerGroups runs kafka-consumer-groups, and returns its lines in words.
func consumerGroups(s shell, args ...string) [][]string {
	s.Helper()
	var lines [][]string
	for l := range strings.Lines(s.out("consumer.group.ConsumerGroupCommand", args...)) {
		if w := strings.Fields(l); len(w) > 0 {
			lines = append(lines, w)
		}
	}
	return lines
}

func hasLine(lines [][]string, words ...string) bool {
	return slices.ContainsFunc(lines, func(l []string) bool {
		return len(l) >= len(words) && slices.Equal(l[:len(words)], words)
	})
}

func TestKafkasConsumerTools(t *testing.T) {
	f := harness.Start(t, harness.Options{})
	createTopic(t, f.Addr, "events", 2, map[string]string{"retention.ms": "-1"})
	produceNumbers(t, f.Addr, "events", 2, 0, 100)

	s := shell{t, harness.NewToolbox(t), f.Addr}
	o := s.box.Run("", "consumer.ConsoleConsumer", "--bootstrap-server", f.Addr, "--topic", "events",
		"--group", "readers", "--from-beginning", "--max-messages", "100", "--timeout-ms", "30000")
	if n := len(strings.Fields(o.Stdout)); o.Err != nil || n != 100 {
		t.Fatalf("console consumer: %d records, %v\n%s", n, o.Err, o.Stderr)
	}

	if l := consumerGroups(s, "--list"); !hasLine(l, "readers") {
		t.Errorf("--list: %q", l)
	}
	l := consumerGroups(s, "--describe", "--group", "readers")
	if !hasLine(l, "readers", "events", "0", "50", "50", "0", "-", "-", "-") || !hasLine(l, "readers", "events", "1", "50", "50", "0", "-", "-", "-") {
		t.Errorf("--describe: %q", l)
	}
	l = consumerGroups(s, "--describe", "--group", "readers", "--state")
	if !slices.ContainsFunc(l, func(w []string) bool { return slices.Contains(w, "readers") && slices.Contains(w, "Empty") }) {
		t.Errorf("--state: %q", l)
	}
	// Record i has second i of 1970; the 40th second begins with offset 20 of either.
	l = consumerGroups(s, "--group", "readers", "--topic", "events", "--reset-offsets", "--to-datetime", "1970-01-01T00:00:40.000Z", "--execute")
	if !hasLine(l, "readers", "events", "0", "20") || !hasLine(l, "readers", "events", "1", "20") {
		t.Errorf("--reset-offsets: %q", l)
	}
	if l := consumerGroups(s, "--describe", "--group", "readers"); !hasLine(l, "readers", "events", "0", "20", "50", "30") {
		t.Errorf("--describe after the reset: %q", l)
	}

	var got numbers
	leave := kgoMember(t, f.Addr, "readers", "events", &got)
	harness.Eventually(t, 30*time.Second, "60 records from the reset on", func() bool { return got.count() == 60 })
	l = consumerGroups(s, "--describe", "--group", "readers", "--members")
	if !slices.ContainsFunc(l, func(w []string) bool { return len(w) >= 5 && w[0] == "readers" && w[2] == "/127.0.0.1" && w[4] == "2" }) {
		t.Errorf("--members: %q", l)
	}
	leave()
	consumerGroups(s, "--delete-offsets", "--group", "readers", "--topic", "events:1")
	l = consumerGroups(s, "--describe", "--group", "readers")
	if hasLine(l, "readers", "events", "1") || !hasLine(l, "readers", "events", "0") {
		t.Errorf("--describe after --delete-offsets: %q", l)
	}
	consumerGroups(s, "--delete", "--group", "readers")
	if l := consumerGroups(s, "--list"); hasLine(l, "readers") {
		t.Errorf("--list after --delete: %q", l)
	}
}

// Kafka's own reader of __consumer_offsets understands what groups leave there.
func TestKafkaReadsTheOffsetsTopic(t *testing.T) {
	f := harness.Start(t, harness.Options{Set: []string{"offsets.topic.num.partitions=1"}})
	createTopic(t, f.Addr, "events", 1, nil)
	produceNumbers(t, f.Addr, "events", 1, 0, 10)
	adm := kadmClient(t, f.Addr)
	var got numbers
	leave := kgoMember(t, f.Addr, "readers", "events", &got, kgo.ClientID("reader"))
	harness.Eventually(t, 30*time.Second, "10 records", func() bool { return got.count() == 10 })
	leave()
	if _, err := adm.DeleteGroups(t.Context(), "readers"); err != nil {
		t.Fatal(err)
	}
	f.Stop()
	log := filepath.Join(f.Data, "logs", "__consumer_offsets-0", "00000000000000000000.log")
	o := harness.KafkaTool(t, "", "DumpLogSegments", "--files", log, "--offsets-decoder", "--print-data-log", "--deep-iteration")
	if o.Err != nil {
		t.Fatalf("%v\n%s", o.Err, o.Stderr)
	}
	for _, want := range []string{
		`"group":"readers","topic":"events","partition":0`,
		`"version":"4","data":{"offset":10,`,
		`{"type":"2","data":{"group":"readers"}}`,
		`"protocolType":"consumer","generation":1,`,
		`"clientId":"reader","clientHost":"/127.0.0.1"`,
		`payload: <DELETE>`,
	} {
		if !strings.Contains(o.Stdout, want) {
			t.Errorf("no %s in\n%s", want, o.Stdout)
		}
	}
	if all := o.Stdout + o.Stderr; strings.Contains(all, "invalid") || strings.Contains(all, "Mismatch") || strings.Contains(all, "Non-consecutive") {
		t.Errorf("DumpLogSegments complains:\n%s", all)
	}
}
