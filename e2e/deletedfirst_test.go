package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
)

// TestRetentionAheadOfTheArchive: all that a partition holds is deleted before the
// archive has any of it. That is no damage at a restart, and what is acknowledged
// after it stays.
func TestRetentionAheadOfTheArchive(t *testing.T) {
	const topic = "a"
	f := harness.Start(t, harness.Options{Set: []string{
		"log.retention.check.interval.ms=200", "log.segment.delete.delay.ms=0",
		"remote.log.manager.task.interval.ms=3600000", // retention comes first
	}})
	createTopic(t, f.Addr, topic, 1, nil)
	acked := 0
	produce := func(n int) {
		t.Helper()
		cl, err := kgo.NewClient(kgo.SeedBrokers(f.Addr), kgo.DefaultProduceTopic(topic))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for range n {
			if err := cl.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(acked))).FirstErr(); err != nil {
				t.Fatal(err)
			}
			acked++
		}
	}
	produce(3)
	a := newAdmin(t, f.Addr)
	defer a.Close()
	keep := func(ms string) {
		t.Helper()
		r, err := a.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &ms}}, topic)
		if err != nil || r[0].Err != nil {
			t.Fatal(r, err)
		}
	}
	keep("1")
	harness.Eventually(t, time.Minute, "all of it is deleted, from the disk too", func() bool {
		start, err1 := a.ListStartOffsets(t.Context(), topic)
		local, err2 := a.ListLocalLogStartOffsets(t.Context(), topic)
		s, _ := start.Lookup(topic, 0)
		l, _ := local.Lookup(topic, 0)
		return err1 == nil && err2 == nil && s.Offset == 3 && l.Offset == 3
	})
	keep("-1")
	for _, end := range []func(){f.Stop, f.Kill, f.Stop} {
		produce(5)
		end()
		f.Restart()
		if log := f.Log(); strings.Contains(log, "out of service") {
			t.Fatal(log)
		}
		got := consumeAll(t, f.Addr, topic, 3, acked)
		for i, v := range got {
			if v != fmt.Sprint(3+i) {
				t.Fatalf("record %d is %q", 3+i, v)
			}
		}
	}
}

// consumeAll reads values from the beginning, which is offset from, up to offset end.
func consumeAll(t *testing.T, addr, topic string, from, end int) (values []string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for from+len(values) < end {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d records: %v", len(values), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != int64(from+len(values)) {
				t.Fatalf("offset %d, want %d", r.Offset, from+len(values))
			}
			values = append(values, string(r.Value))
		})
	}
	return values
}
