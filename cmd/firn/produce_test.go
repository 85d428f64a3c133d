package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestProduceFollowsTheTopicsLimits: whatever segments and batches a topic takes, a
// line that fits arrives, and one that doesn't is refused with the limit.
func TestProduceFollowsTheTopicsLimits(t *testing.T) {
	e, err := startEmbedded(t.Context(), t.TempDir(), map[string]string{"archive.url": "", "log.segment.bytes": "8192"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.stop() })
	err = admin(e.addr, func(a *kadm.Client) error {
		for topic, configs := range map[string]map[string]*string{
			"small-segments": {"segment.bytes": new("4096")},
			"small-batches":  {"max.message.bytes": new("2000"), "segment.bytes": new("1048576")},
			"large":          {"max.message.bytes": new("3000000"), "segment.bytes": new("4000000")},
		} {
			if _, err := a.CreateTopic(t.Context(), 1, 1, configs, topic); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		topic   string
		lines   string
		records int64
		words   string
	}{
		{"small-segments", strings.Repeat("a line of a log\n", 3000), 3000, ""},
		{"small-batches", strings.Repeat("a line of a log\n", 3000), 3000, ""},
		{"made-by-this", strings.Repeat("a line of a log\n", 3000), 3000, ""}, // with the broker's segments
		{"large", strings.Repeat("x", 2_500_000) + "\n", 1, ""},
		{"small-segments", strings.Repeat("x", 5000) + "\n", 0, "4096 bytes"},
	} {
		opts, err := produceOptions("all", "none", -1)
		if err != nil {
			t.Fatal(err)
		}
		p := &lineProducer{partition: -1, notices: io.Discard, patience: time.Minute}
		err = p.produce(ctx, e.addr, c.topic, opts, strings.NewReader(c.lines))
		if n := p.sent.Load(); n != c.records || (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %d records, %v", c.topic, n, err)
		}
	}
}

// TestProduceSaysThatItWaits where the broker refuses records until there is space.
func TestProduceSaysThatItWaits(t *testing.T) {
	e, err := startEmbedded(t.Context(), t.TempDir(), map[string]string{"archive.url": "", "log.dir.min.free.bytes": "9000000000000000000"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.stop() })
	opts, err := produceOptions("all", "none", -1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told := &notices{until: "acknowledgement of 2 records", then: cancel}
	p := &lineProducer{partition: -1, notices: told, patience: 50 * time.Millisecond}
	if err := p.produce(ctx, e.addr, "t", opts, strings.NewReader("a\nb\n")); err == nil {
		t.Error("acknowledged on a full disk")
	}
	if !strings.Contains(told.String(), told.until) {
		t.Errorf("said %q", told.String())
	}
}

// notices end the test's patience at the one that is waited for: the first may come when
// the second record isn't read yet. The producer's goroutine alone writes to them, and has
// ended when they are read.
type notices struct {
	strings.Builder
	until string
	then  func()
}

func (n *notices) Write(p []byte) (int, error) {
	if strings.Contains(string(p), n.until) {
		defer n.then()
	}
	return n.Builder.Write(p)
}
