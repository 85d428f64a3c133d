package e2e

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
)

// A tuned topic is one of a running broker whose configs a test changes.
type tuned struct {
	*testing.T
	f     *harness.Firn
	adm   *kadm.Client
	cl    *kgo.Client
	topic string
}

// set changes one config and nothing else; "" deletes it.
func (c tuned) set(key, value string) {
	c.Helper()
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value}
	if value == "" {
		change = kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key}
	}
	r, err := c.adm.AlterTopicConfigs(c.Context(), []kadm.AlterConfig{change}, c.topic)
	if err != nil || r[0].Err != nil {
		c.Fatalf("%s=%s: %v %v %s", key, value, err, r[0].Err, r[0].ErrMessage)
	}
}

// batches appends batches of one record of 300 bytes with a timestamp each.
func (c tuned) batches(n int, at time.Time) error {
	for range n {
		r := &kgo.Record{Topic: c.topic, Value: bytes.Repeat([]byte("some text "), 30), Timestamp: at}
		if err := c.cl.ProduceSync(c.Context(), r).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func (c tuned) mustBatches(n int, at time.Time) {
	c.Helper()
	if err := c.batches(n, at); err != nil {
		c.Fatal(err)
	}
}

// segments counts the topic's segments on disk.
func (c tuned) segments() int {
	c.Helper()
	logs, err := filepath.Glob(filepath.Join(c.f.Data, "logs", c.topic+"-0", "*.log"))
	if err != nil {
		c.Fatal(err)
	}
	return len(logs)
}

// last is the newest record, as a consumer gets it.
func (c tuned) last() *kgo.Record {
	c.Helper()
	end := c.offset(c.adm.ListEndOffsets(c.Context(), c.topic))
	cl := newClient(c, c.f.Addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.topic: {0: kgo.NewOffset().At(end - 1)}}))
	defer cl.Close()
	for {
		fs := cl.PollFetches(c.Context())
		if err := fs.Err0(); err != nil {
			c.Fatal(err)
		}
		if records := fs.Records(); len(records) > 0 {
			return records[0]
		}
	}
}

func (c tuned) offset(l kadm.ListedOffsets, err error) int64 {
	c.Helper()
	o, ok := l.Lookup(c.topic, 0)
	if err != nil || !ok || o.Err != nil {
		c.Fatal(err, o.Err)
	}
	return o.Offset
}

func (c tuned) start() int64 { return c.offset(c.adm.ListStartOffsets(c.Context(), c.topic)) }
func (c tuned) local() int64 { return c.offset(c.adm.ListLocalLogStartOffsets(c.Context(), c.topic)) }
func (c tuned) archived() int64 {
	return c.offset(c.adm.ListLatestRemoteOffsets(c.Context(), c.topic)) + 1
}

// soon waits for what a change is to bring about.
func (c tuned) soon(what string, ok func() bool) {
	c.Helper()
	began := time.Now()
	harness.Eventually(c, 20*time.Second, what, ok)
	c.Logf("%s after %v", what, time.Since(began).Round(time.Millisecond))
}

// TestConfigsChangeAtRunTime changes topic configs one by one and looks at what
// clients and the disk then show.
func TestConfigsChangeAtRunTime(t *testing.T) {
	f := harness.Start(t, harness.Options{Set: []string{"remote.log.manager.task.interval.ms=200", "log.segment.delete.delay.ms=0"}})
	cl := newClient(t, f.Addr, kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer cl.Close()
	plain := map[string]string{"remote.storage.enable": "false"}
	sealing := map[string]string{"remote.storage.enable": "false", "segment.bytes": "1024"}
	archiving := map[string]string{"segment.bytes": "1024", "local.retention.ms": "-2"}
	now := time.Now()
	for _, c := range []struct {
		key     string
		configs map[string]string
		test    func(tuned)
	}{
		{"segment.bytes", plain, func(c tuned) {
			c.mustBatches(6, now)
			if n := c.segments(); n != 1 {
				c.Errorf("%d segments before", n)
			}
			c.set("segment.bytes", "1024")
			c.mustBatches(6, now)
			if n := c.segments(); n != 4 { // the one before, and two batches each
				c.Errorf("%d segments, want 4", n)
			}
		}},
		{"segment.ms", plain, func(c tuned) {
			c.mustBatches(1, now.Add(-time.Minute))
			c.mustBatches(1, now)
			c.set("segment.ms", "30000")
			c.mustBatches(1, now)
			if n := c.segments(); n != 2 {
				c.Errorf("%d segments, want 2", n)
			}
		}},
		{"retention.ms", sealing, func(c tuned) {
			c.mustBatches(6, now.Add(-time.Hour))
			c.set("retention.ms", "60000")
			c.soon("what is older is gone", func() bool { return c.start() == 6 })
		}},
		{"retention.bytes", sealing, func(c tuned) {
			c.mustBatches(12, now)
			c.set("retention.bytes", "2000")
			c.soon("only that much is left", func() bool { return c.start() >= 4 && c.start() < 12 })
		}},
		{"max.message.bytes", plain, func(c tuned) {
			c.mustBatches(1, now)
			c.set("max.message.bytes", "200")
			if err := c.batches(1, now); !errors.Is(err, kerr.MessageTooLarge) {
				c.Errorf("a batch of more: %v", err)
			}
			c.set("max.message.bytes", "")
			c.mustBatches(1, now)
		}},
		{"compression.type", plain, func(c tuned) {
			for codec, number := range map[string]uint8{"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4, "uncompressed": 0} {
				c.set("compression.type", codec)
				c.mustBatches(1, now)
				if got := c.last().Attrs.CompressionType(); got != number {
					c.Errorf("%s: stored with codec %d", codec, got)
				}
			}
		}},
		{"message.timestamp.type", plain, func(c tuned) {
			old := now.Add(-time.Hour)
			c.mustBatches(1, old)
			c.set("message.timestamp.type", "LogAppendTime")
			c.mustBatches(1, old)
			if r := c.last(); r.Attrs.TimestampType() != 1 || r.Timestamp.Before(now) {
				c.Errorf("type %d, %v", r.Attrs.TimestampType(), r.Timestamp)
			}
			c.set("message.timestamp.type", "CreateTime")
			c.mustBatches(1, old)
			if r := c.last(); r.Attrs.TimestampType() != 0 || r.Timestamp.UnixMilli() != old.UnixMilli() {
				c.Errorf("type %d, %v", r.Attrs.TimestampType(), r.Timestamp)
			}
		}},
		{"local.retention.ms", archiving, func(c tuned) {
			c.mustBatches(9, now.Add(-time.Hour))
			c.soon("all sealed segments are archived", func() bool { return c.archived() >= 6 })
			c.set("local.retention.ms", "60000")
			c.soon("the local copies are gone", func() bool { return c.local() == c.archived() && c.start() == 0 })
		}},
		{"local.retention.bytes", archiving, func(c tuned) {
			c.mustBatches(12, now)
			c.soon("all sealed segments are archived", func() bool { return c.archived() >= 9 })
			c.set("local.retention.bytes", "2000")
			c.soon("only that much is local", func() bool { return c.local() >= 4 && c.start() == 0 })
		}},
		{"remote.log.copy.disable", archiving, func(c tuned) {
			c.mustBatches(6, now)
			c.soon("all sealed segments are archived", func() bool { return c.archived() >= 3 })
			c.set("remote.log.copy.disable", "true")
			was := c.archived()
			c.mustBatches(6, now)
			time.Sleep(time.Second) // five rounds of the uploader
			if got := c.archived(); got != was {
				c.Errorf("the archive grew from %d to %d", was, got)
			}
			c.set("remote.log.copy.disable", "false")
			c.soon("what was held back is archived", func() bool { return c.archived() >= 9 })
		}},
		{"remote.storage.enable", sealing, func(c tuned) {
			c.mustBatches(9, now)
			c.set("remote.storage.enable", "true")
			c.soon("the sealed segments are archived", func() bool { return c.archived() >= 6 })
			c.set("local.retention.bytes", "2000")
			c.soon("the local log begins later", func() bool { return c.local() > 0 && c.start() == 0 })
			c.set("remote.log.delete.on.disable", "true")
			c.set("remote.storage.enable", "false")
			c.soon("what only the archive had is gone", func() bool { return c.start() > 0 && c.start() == c.local() })
			c.mustBatches(9, now)
		}},
	} {
		t.Run(c.key, func(t *testing.T) {
			topic := "tuned." + c.key
			createTopic(t, f.Addr, topic, 1, c.configs)
			c.test(tuned{t, f, kadm.NewClient(cl), cl, topic})
		})
	}
}
