package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
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

// offsets lists until each wanted partition has a leader that answers, for a leader
// may have just died. With patient false it takes what is answered now.
func offsets(ctx context.Context, topic string, want []int32, patient bool, list listOffsets) (kadm.ListedOffsets, error) {
	deadline := time.Now().Add(leaderWait)
	late := sayIfLate(os.Stderr, fmt.Sprintf("waiting for the offsets of %s: no answer yet", topic))
	for told := false; ; told = true {
		l, err := list(ctx)
		told = late() || told
		if !patient && (err == nil || inShards(err)) {
			return l, nil
		}
		where, err := lacking(l, err, topic, want)
		if err == nil {
			return l, nil
		}
		if !passes(err) || time.Now().After(deadline) {
			return l, fmt.Errorf("offsets of %s: %w", where, err)
		}
		if !told {
			fmt.Fprintf(os.Stderr, "waiting for %s: %v\n", where, ourWords(err))
		}
		select {
		case <-time.After(leaderLook):
		case <-ctx.Done():
			return l, context.Cause(ctx)
		}
	}
}

// sayIfLate says a line unless it is stopped before noticeEvery is over; stopping,
// again too, tells whether it has been said.
func sayIfLate(w io.Writer, line string) (stop func() (said bool)) {
	done := make(chan struct{})
	t := time.AfterFunc(noticeEvery, func() {
		defer close(done)
		fmt.Fprintln(w, line)
	})
	return sync.OnceValue(func() bool {
		if t.Stop() {
			return false
		}
		<-done
		return true
	})
}

// passes: the leader is away, or changes; another answer would stay.
func passes(err error) bool {
	se, away := (*kadm.ShardErrors)(nil), (*net.OpError)(nil)
	return errors.As(err, &se) && !se.AllFailed || errors.As(err, &away) || kerr.IsRetriable(err)
}

// inShards: not all of the brokers that were asked have answered well.
func inShards(err error) bool {
	se := (*kadm.ShardErrors)(nil)
	return errors.As(err, &se)
}

// lacking is the first wanted partition without an offset, and why it has none; or
// the topic, if err is not about some partitions.
func lacking(l kadm.ListedOffsets, err error, topic string, want []int32) (where string, why error) {
	if err != nil && !inShards(err) {
		return topic, err
	}
	for _, p := range want {
		o, ok := l.Lookup(topic, p)
		switch where = fmt.Sprintf("%s-%d", topic, p); {
		case ok && o.Err != nil:
			return where, o.Err
		case !ok && err != nil:
			return where, err
		case !ok:
			return where, kerr.LeaderNotAvailable
		}
	}
	return "", nil
}
