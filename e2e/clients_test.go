package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
)

// members start a process of each client that reads topic events as a member of
// group readers and prints a record a line.
var members = map[string]func(t *testing.T, addr string, session time.Duration) *exec.Cmd{
	"kcat": func(t *testing.T, addr string, session time.Duration) *exec.Cmd {
		return exec.Command(harness.Kcat(t), "-b", addr, "-u", "-q", "-X", "auto.offset.reset=earliest",
			"-X", "session.timeout.ms="+millis(session), "-X", "heartbeat.interval.ms=300", "-X", "auto.commit.interval.ms=200", "-G", "readers", "events")
	},
	"java": func(t *testing.T, addr string, session time.Duration) *exec.Cmd {
		return exec.Command("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", harness.KafkaLib(t),
			"org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", addr, "--topic", "events", "--group", "readers", "--from-beginning",
			"--command-property", "session.timeout.ms="+millis(session), "--command-property", "heartbeat.interval.ms=300", "--command-property", "auto.commit.interval.ms=200")
	},
	"kgo": func(t *testing.T, addr string, session time.Duration) *exec.Cmd {
		return goMember(t, "kgo", addr, session)
	},
	"kafka-go": func(t *testing.T, addr string, session time.Duration) *exec.Cmd {
		return goMember(t, "kafka-go", addr, session)
	},
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// goMember is the test binary as a member; see TestMain.
func goMember(t *testing.T, client, addr string, session time.Duration) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "FIRN_E2E_MEMBER="+client, "FIRN_E2E_BROKER="+addr, "FIRN_E2E_SESSION="+session.String())
	cmd.Stderr = os.Stderr
	return cmd
}

// TestEveryClientRebalances: a member joins, one leaves, one is killed, and no
// record goes unread.
func TestEveryClientRebalances(t *testing.T) {
	for client, start := range members {
		t.Run(client, func(t *testing.T) {
			f := harness.Start(t, harness.Options{Set: []string{"offsets.topic.num.partitions=1"}})
			createTopic(t, f.Addr, "events", 4, nil)
			adm := kadmClient(t, f.Addr)
			var got numbers
			read := func(from, below int) {
				t.Helper()
				produceNumbers(t, f.Addr, "events", 4, from, below)
				harness.Eventually(t, 40*time.Second, fmt.Sprint(below, " records are read"), func() bool { return got.count() == below },
					func() string { return fmt.Sprint(" ", got.count(), " are") })
			}
			first := member(t, start(t, f.Addr, 6*time.Second), &got)
			waitMembers(t, adm, "readers", 1)
			read(0, 400)
			// The session of the one that leaves is longer than anybody waits here.
			second := member(t, start(t, f.Addr, 4*time.Minute), &got)
			waitMembers(t, adm, "readers", 2)
			read(400, 800)
			_ = second.Process.Signal(syscall.SIGTERM)
			waitMembers(t, adm, "readers", 1)
			read(800, 1200)
			third := member(t, start(t, f.Addr, 6*time.Second), &got)
			waitMembers(t, adm, "readers", 2)
			_ = first.Process.Kill() // no good-bye: its session ends it
			waitMembers(t, adm, "readers", 1)
			read(1200, 1600)
			_ = third.Process.Kill()
		})
	}
}

// TestEveryClientSeeksIntoTheArchive: by time, to a record that the local disk
// holds no more.
func TestEveryClientSeeksIntoTheArchive(t *testing.T) {
	f := harness.Start(t, harness.Options{Set: []string{"log.retention.check.interval.ms=200",
		"remote.log.manager.task.interval.ms=200", "log.segment.delete.delay.ms=0"}})
	createTopic(t, f.Addr, "years", 1, map[string]string{"segment.bytes": "1024", "local.retention.ms": "1"})
	for i := range 20 {
		produceNumbers(t, f.Addr, "years", 1, 10*i, 10*i+10)
	}
	waitArchived(t, f, "years", 150)
	at := time.Unix(104, 500e6) // record 105 is the first one not older
	for client, seek := range map[string]func(t *testing.T) string{
		"kcat": func(t *testing.T) string {
			return harness.Must(t, time.Minute, "", harness.Kcat(t), "-b", f.Addr, "-C", "-q", "-t", "years", "-p", "0", "-o", fmt.Sprint("s@", at.UnixMilli()), "-c", "1")
		},
		"java": func(t *testing.T) string {
			o := harness.JavaClass(t, time.Minute, "SeekTime", f.Addr, "years", fmt.Sprint(at.UnixMilli()))
			if o.Err != nil {
				t.Fatalf("%v\n%s", o.Err, o.Stderr)
			}
			return o.Stdout
		},
		"kgo":      func(t *testing.T) string { return kgoSeeks(t, f.Addr, at) },
		"kafka-go": func(t *testing.T) string { return kafkaGoSeeks(t, f.Addr, at) },
	} {
		t.Run(client, func(t *testing.T) {
			if got := strings.TrimSpace(seek(t)); got != "105" {
				t.Errorf("the first record from %v on is %q, want 105", at, got)
			}
		})
	}
}

func kgoSeeks(t *testing.T, addr string, at time.Time) string {
	c := newClient(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		"years": {0: kgo.NewOffset().AfterMilli(at.UnixMilli())}}))
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	records := c.PollFetches(ctx).Records()
	if len(records) == 0 {
		t.Fatal("nothing fetched")
	}
	return string(records[0].Value)
}

func kafkaGoSeeks(t *testing.T, addr string, at time.Time) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{addr}, Topic: "years", Partition: 0, MaxWait: 200 * time.Millisecond})
	defer r.Close()
	if err := r.SetOffsetAt(ctx, at); err != nil {
		t.Fatal(err)
	}
	m, err := r.ReadMessage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Value)
}
