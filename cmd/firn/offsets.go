package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	// leaderWait is how long a verb waits for the leaders of partitions: longer
	// than a failover takes with Kafka's session timeout.
	leaderWait = 30 * time.Second
	// leaderLook is how often it looks.
	leaderLook = 300 * time.Millisecond
)

// listOffsets is one of kadm's lists of offsets, bound to a topic.
type listOffsets func(context.Context) (kadm.ListedOffsets, error)

// offsets lists until every partition has a leader that answers, for a leader may
// have just died. With patient false it takes what is answered now.
func offsets(ctx context.Context, topic string, patient bool, list listOffsets) (kadm.ListedOffsets, error) {
	deadline := time.Now().Add(leaderWait)
	for told := false; ; told = true {
		l, err := list(ctx)
		if !patient && partly(err) {
			return l, nil
		}
		if err == nil {
			err = l.Error()
		}
		if err == nil || !leaderless(err) || time.Now().After(deadline) {
			if err != nil {
				err = fmt.Errorf("offsets of %s: %w", topic, err)
			}
			return l, err
		}
		if !told {
			fmt.Fprintf(os.Stderr, "waiting for the leaders of %s (%v)\n", topic, err)
		}
		select {
		case <-time.After(leaderLook):
		case <-ctx.Done():
			return l, context.Cause(ctx)
		}
	}
}

// partly: some brokers have answered, or their answers name what is wrong.
func partly(err error) bool {
	se := (*kadm.ShardErrors)(nil)
	return err == nil || errors.As(err, &se) && !se.AllFailed
}

// leaderless: a partition has no leader that answers, which passes.
func leaderless(err error) bool {
	se := (*kadm.ShardErrors)(nil)
	return errors.As(err, &se) && !se.AllFailed || kerr.IsRetriable(err)
}
