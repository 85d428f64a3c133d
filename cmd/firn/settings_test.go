package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"firn/zkmeta/zktest"
)

// TestKafkasOwnFilesStart: what Kafka ships starts a broker unchanged, but for
// the ports and the directory, which belong to the test.
func TestKafkasOwnFilesStart(t *testing.T) {
	for file, want := range map[string]struct {
		node, warnings int
		listeners      string
		zookeeper      bool
	}{
		"kafka-4.3-server.properties":           {1, 1, "PLAINTEXT", false},
		"kafka-3.9-zookeeper-server.properties": {0, 0, "PLAINTEXT", true},
	} {
		t.Run(file, func(t *testing.T) {
			path := filepath.Join("testdata", file)
			s, err := load(sources{file: path})
			if err != nil {
				t.Fatal(err)
			}
			ls, err := s.config.Listeners()
			if err != nil || len(ls) != 1 || ls[0].Name != want.listeners || ls[0].Port != 9092 {
				t.Errorf("listeners %+v, %v", ls, err)
			}
			if got := nodeID(s.config.Int("node.id")); int(got) != want.node {
				t.Errorf("broker id %d, want %d", got, want.node)
			}
			if len(s.warnings) > 12 || len(s.warnings) < want.warnings {
				t.Errorf("warnings: %q", s.warnings)
			}
			if s.archive != "" || s.config.Topic(nil, false).RemoteStorageEnable || s.config.Topic(nil, false).RetentionMs != 168*3600_000 {
				t.Errorf("with a config file Kafka's defaults hold: archive %q", s.archive)
			}
			set := []string{"log.dirs=" + t.TempDir(),
				"listeners=PLAINTEXT://127.0.0.1:0", "advertised.listeners=", "admin.listener="}
			check := func() {}
			if want.zookeeper {
				if s.zookeeper != "localhost:2181" {
					t.Errorf("metadata in %q", s.zookeeper)
				}
				connect := zktest.Start(t).Servers()
				set = append(set, "zookeeper.connect="+connect)
				check = func() { wantRegistered(t, connect, int32(want.node)) }
			}
			startsWith(t, sources{file: path, set: set}, check)
		})
	}
}

// startsWith starts a broker, and stops it after the check.
func startsWith(t *testing.T, src sources, check func()) {
	t.Helper()
	s, err := load(src)
	if err != nil {
		t.Fatal(err)
	}
	n, err := openNode(t.Context(), s, logger("text", t.Output()))
	if err != nil {
		t.Fatal(err)
	}
	done, up := make(chan error, 1), make(chan struct{})
	e := &embedded{done: done}
	ctx, cancel := context.WithCancel(t.Context())
	e.cancel = cancel
	go func() { done <- n.run(ctx, func() { close(up) }) }()
	select {
	case <-up:
		check()
	case <-time.After(2 * time.Minute):
		t.Error("not ready")
	}
	if err := e.stop(); err != nil {
		t.Error(err)
	}
}

func TestProfileOnlyWithoutAFile(t *testing.T) {
	dir := t.TempDir()
	s, err := load(sources{data: dir})
	if err != nil {
		t.Fatal(err)
	}
	if s.config.String("log.retention.ms") != "-1" || !strings.HasPrefix(s.archive, "file://") || s.config.String("archive.url") != s.archive ||
		!s.config.Topic(nil, false).RemoteStorageEnable || s.config.Topic(nil, false).LocalRetentionMs != 3600_000 {
		t.Errorf("profile not applied: archive %q", s.archive)
	}
	if s, err = load(sources{data: dir, set: []string{"archive.url="}}); err != nil || s.archive != "" {
		t.Errorf("--set archive.url= means no archive: %q, %v", s.archive, err)
	}
	if _, err := load(sources{data: dir, set: []string{"archive.url"}}); err == nil {
		t.Error("--set without a value was taken")
	}
	env := []string{"KAFKA_NUM_PARTITIONS=7", "KAFKA_LOG_RETENTION_MS=5"}
	if s, err = load(sources{data: dir, env: env, set: []string{"log.retention.ms=6"}}); err != nil || s.config.Int("num.partitions") != 7 || s.config.Int("log.retention.ms") != 6 {
		t.Errorf("precedence: %v", err)
	}
}

// TestNoStartDeletesEverything: a variable that somebody forgot to fill in doesn't
// take away what the profile or Kafka's default keeps, and neither does a 0.
func TestNoStartDeletesEverything(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(file, []byte("log.retention.hours=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const kafkas = "testdata/kafka-4.3-server.properties"
	for want, src := range map[string]sources{
		"configuration log.retention.ms: Not a number of type LONG (environment variable KAFKA_LOG_RETENTION_MS)": {env: []string{"KAFKA_LOG_RETENTION_MS="}},
		"(--set log.local.retention.ms)":                                            {set: []string{"log.local.retention.ms="}},
		"log.retention.hours is 0 (environment variable KAFKA_LOG_RETENTION_HOURS)": {file: kafkas, env: []string{"KAFKA_LOG_RETENTION_HOURS=0"}},
		"log.retention.ms is 0 (--set log.retention.ms)":                            {set: []string{"log.retention.ms=0"}},
		"log.retention.hours: Not a number of type INT (in the configuration file)": {file: file},
	} {
		src.data = t.TempDir()
		if _, err := load(src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", src, err, want)
		}
	}
}

func TestArchiveThatLeavesNothingWarns(t *testing.T) {
	warned := func(set ...string) bool {
		t.Helper()
		s, err := load(sources{file: "testdata/kafka-4.3-server.properties", set: set})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(strings.Join(s.warnings, "\n"), "local retention equals the whole")
	}
	if !warned("archive.url=file:///x") || warned("archive.url=file:///x", "log.local.retention.ms=5") || warned() {
		t.Error("warns if and only if there is an archive and nothing would leave the disk early")
	}
}

func TestABadArchiveURLIsToldBeforeAnythingIsMade(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	_, err := load(sources{data: data, set: []string{"archive.url=s3://My_Bucket?endpoint=http://127.0.0.1:1"}})
	if err == nil || !strings.Contains(err.Error(), `"My_Bucket" can't be the name of a bucket`) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("%s: %v", data, err)
	}
}

func TestSecondServeIsRefusedInWords(t *testing.T) {
	data := t.TempDir()
	onBroker(t, data, nil, func(string) {
		s, err := load(sources{data: data, set: []string{"listeners=PLAINTEXT://127.0.0.1:0", "admin.listener="}})
		if err != nil {
			t.Fatal(err)
		}
		n, err := openNode(t.Context(), s, logger("text", os.Stderr))
		if err == nil {
			n.close()
			t.Fatal("a second broker opened the same data")
		}
		if !strings.Contains(err.Error(), "another process") {
			t.Errorf("refused with %q", err)
		}
	})
}

func TestParsePosition(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for in, want := range map[string]position{
		"":                          {},
		"start":                     {set: true, start: true},
		"end":                       {set: true, end: true},
		"120":                       {set: true, offset: 120},
		"2026":                      {set: true, offset: 2026},
		"@1767225600000":            {set: true, byTime: time.UnixMilli(1767225600000)},
		"2026-01-31T08:00":          {set: true, byTime: at("2026-01-31T08:00:00Z")},
		"2026-01-31":                {set: true, byTime: at("2026-01-31T00:00:00Z")},
		"2026-01":                   {set: true, byTime: at("2026-01-01T00:00:00Z")},
		"2026-01-31T08:00:00+02:00": {set: true, byTime: at("2026-01-31T06:00:00Z")},
		"-48h":                      {set: true, byTime: at("2026-05-30T12:00:00Z")},
		"-7d":                       {set: true, byTime: at("2026-05-25T12:00:00Z")},
	} {
		got, err := parsePosition(in, now)
		if err != nil || got.set != want.set || got.offset != want.offset || !got.byTime.Equal(want.byTime) || got.start != want.start || got.end != want.end {
			t.Errorf("%q: got %+v, %v, want %+v", in, got, err, want)
		}
	}
	for _, bad := range []string{"yesterday", "-5", "2026-13-01", "-x"} {
		if _, err := parsePosition(bad, now); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestBrokersOfAClusterHaveNoArchiveOfTheirOwn: a directory of one broker is none
// for the others.
func TestBrokersOfAClusterHaveNoArchiveOfTheirOwn(t *testing.T) {
	alone, err := load(sources{data: t.TempDir()})
	if err != nil || !strings.HasPrefix(alone.archive, "file://") {
		t.Errorf("a single broker: archive %q, %v", alone.archive, err)
	}
	member, err := load(sources{data: t.TempDir(), set: []string{"broker.id=1", "zookeeper.connect=localhost:2181"}})
	if err != nil || member.archive != "" || member.config.Topic(nil, false).RemoteStorageEnable {
		t.Errorf("a member of a cluster: archive %q, %v", member.archive, err)
	}
}
