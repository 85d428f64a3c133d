package main

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A restored broker must not hand out the producer ids of the old one: its logs
// remember their sequences, and a new producer's first records would count as
// repetitions, acknowledged without being written (E13).
func TestRestoredBrokerTakesNewProducers(t *testing.T) {
	old, archive := t.TempDir(), "file://"+t.TempDir()
	set := map[string]string{
		"archive.url": archive, "archive.upload.max.interval.ms": "1000", "archive.upload.min.bytes": "1",
		"remote.log.manager.task.interval.ms": "200", "log.retention.check.interval.ms": "200",
	}
	writeOne(t, old, set, "events", "before")
	waitArchived(t, old, set, "events", 1)

	data := t.TempDir() + "/new"
	c := root()
	c.SetArgs([]string{"archive", "restore", "--archive", archive, "--data", data})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	writeOne(t, data, set, "events", "after")
	got := readAll(t, data, set, "events")
	if len(got) != 2 || got[0] != "before" || got[1] != "after" {
		t.Errorf("read %q, want before and after", got)
	}
	// The old broker serves on what it has, archived or not, and writes nothing
	// to what isn't its own any more.
	objects := countFiles(t, strings.TrimPrefix(archive, "file://"))
	writeOne(t, old, set, "events", "only here")
	if got := readAll(t, old, set, "events"); len(got) != 2 || got[0] != "before" || got[1] != "only here" {
		t.Errorf("the old broker reads %q", got)
	}
	if n := countFiles(t, strings.TrimPrefix(archive, "file://")); n != objects {
		t.Errorf("the old broker wrote to the archive: %d objects, then %d", objects, n)
	}
}

func countFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(path, "/probe/") && !strings.Contains(path, "/.firn-tmp/") {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// onBroker runs f against a broker on data.
func onBroker(t *testing.T, data string, set map[string]string, f func(addr string)) {
	t.Helper()
	e, err := startEmbedded(t.Context(), data, set)
	if err != nil {
		t.Fatal(err)
	}
	f(e.addr)
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
}

// writeOne writes one record as a new idempotent producer.
func writeOne(t *testing.T, data string, set map[string]string, topic, value string) {
	t.Helper()
	onBroker(t, data, set, func(addr string) {
		cl, err := connect(addr, kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation())
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	})
}

// waitArchived waits until the first records of a topic are archived.
func waitArchived(t *testing.T, data string, set map[string]string, topic string, records int64) {
	t.Helper()
	onBroker(t, data, set, func(addr string) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		for {
			vs, err := topicViews(ctx, addr, topic)
			if err != nil {
				t.Fatal(err)
			}
			if vs[0].Archived >= records {
				return
			}
			select {
			case <-ctx.Done():
				t.Fatalf("archived up to %d, want %d", vs[0].Archived, records)
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
}

func readAll(t *testing.T, data string, set map[string]string, topic string) (values []string) {
	t.Helper()
	onBroker(t, data, set, func(addr string) {
		r := &replay{brokers: addr, topic: topic, partition: -1, each: func(rec *kgo.Record) error {
			values = append(values, string(rec.Value))
			return nil
		}}
		if _, err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	return values
}
