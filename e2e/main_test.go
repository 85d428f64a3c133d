package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestMain lets the test binary be a Go client's member of a group, in a process
// that a test can kill.
func TestMain(m *testing.M) {
	if client := os.Getenv("FIRN_E2E_MEMBER"); client != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		session, err := time.ParseDuration(os.Getenv("FIRN_E2E_SESSION"))
		if err == nil {
			err = goMembers[client](ctx, os.Getenv("FIRN_E2E_BROKER"), session)
		}
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, client, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// goMembers read topic events as members of group readers and print a record a
// line, until their context ends; then they leave.
var goMembers = map[string]func(ctx context.Context, broker string, session time.Duration) error{
	"kgo": kgoReads, "kafka-go": kafkaGoReads,
}

func kgoReads(ctx context.Context, broker string, session time.Duration) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("events"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(session), kgo.HeartbeatInterval(300*time.Millisecond))
	if err != nil {
		return err
	}
	defer c.Close()
	for ctx.Err() == nil {
		c.PollFetches(ctx).EachRecord(func(r *kgo.Record) { fmt.Println(string(r.Value)) })
	}
	return nil
}

func kafkaGoReads(ctx context.Context, broker string, session time.Duration) error {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{broker}, GroupID: "readers", Topic: "events", StartOffset: kafka.FirstOffset,
		SessionTimeout: session, HeartbeatInterval: 300 * time.Millisecond, MaxWait: 200 * time.Millisecond,
	})
	for {
		m, err := r.ReadMessage(ctx)
		if ctx.Err() != nil {
			return r.Close()
		}
		if err != nil {
			return err
		}
		fmt.Println(string(m.Value))
	}
}
