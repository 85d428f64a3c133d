package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestWaitingIsToldOnce: who reads is told for which partition nothing comes, from which
// offset and why, once, and when it goes on. To have read all there was is no wait.
func TestWaitingIsToldOnce(t *testing.T) {
	var said bytes.Buffer
	w := waits{out: &said, topic: "t", reason: func(_ int32, _ *stretch, err error) string { return fmt.Sprint(err) }}
	now := time.Unix(1_800_000_000, 0)
	parts := map[int32]*stretch{0: {next: 7, end: 20}, 1: {next: 3, end: 9}, 2: {next: 5, end: 5}}
	step := func(want string, failed map[int32]error) {
		t.Helper()
		w.look(now, parts, failed)
		if got := said.String(); got != want {
			t.Errorf("after %+v: said %q, want %q", failed, got, want)
		}
		said.Reset()
		now = now.Add(noticeEvery / 2)
	}
	away := map[int32]error{0: kerr.KafkaStorageError}
	step("", nil)
	step("", away)
	step("waiting for t-0 at offset 7 (and 1 more): "+kerr.KafkaStorageError.Error()+"\n", away)
	step("", away)
	step("", away)
	parts[0].next++
	step("t-0 goes on\n", nil)
	parts[1].next, parts[0].next = 9, 20
	step("t-1 goes on\n", nil)
	step("", nil)
	step("", nil)
	step("", nil)

	// Following at the end, a partition is waited for only if it fails.
	gone := map[int32]error{2: kerr.LeaderNotAvailable}
	step("", gone)
	step("waiting for t-2 at offset 5: "+kerr.LeaderNotAvailable.Error()+"\n", gone)
	step("", nil)
	step("", nil)
	step("t-2 goes on\n", nil)
	step("", nil)
}

// TestALookAtNothingIsNoFailure: the client is asked for a second at a time, and says so
// when nothing came; an error of a partition counts.
func TestALookAtNothingIsNoFailure(t *testing.T) {
	nothing := kgo.NewErrFetch(context.DeadlineExceeded)
	if _, err := fatal(nothing); err != nil {
		t.Error(err)
	}
	lost := kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{{Partition: 3, Err: kerr.CorruptMessage}}}}}}
	if p, err := fatal(append(nothing, lost...)); p != 3 || !errors.Is(err, kerr.CorruptMessage) {
		t.Errorf("a lost object: partition %d, %v", p, err)
	}
}
