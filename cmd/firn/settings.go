package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"firn/broker/config"
	"firn/tiering"
)

// profile is what serve uses without a config file: an archive that shows itself
// soon. With --config Kafka's defaults hold.
func profile() map[string]string {
	return map[string]string{
		"log.retention.ms":               "-1",
		"log.local.retention.ms":         "3600000",
		"log.segment.bytes":              "67108864",
		"archive.upload.max.interval.ms": "60000",
	}
}

// settings is what a broker is started with.
type settings struct {
	config   *config.Broker
	warnings []string
	// usedProfile: no config file was given.
	usedProfile bool

	data, logs, meta, cache string
	// zookeeper is where the metadata is, "" for in the file meta.
	zookeeper string
	// archive is the URL of the archive, "" for none.
	archive string
	// archiveIsDefault: nobody named it, it is the directory beside the logs.
	archiveIsDefault bool
}

// sources is where settings come from.
type sources struct {
	file string // --config, "" for none
	data string // --data, "" if not given
	set  []string
	env  []string
}

// load resolves settings: --set over environment over file over profile.
func load(s sources) (*settings, error) {
	st := config.Static{Env: config.FromEnv(s.env), Set: map[string]string{}}
	for _, p := range s.set {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("--set %q: write key=value", p)
		}
		st.Set[k] = v
	}
	out := &settings{usedProfile: s.file == ""}
	if s.file == "" {
		st.Profile = profile()
		if st.Env["listeners"]+st.Set["listeners"] == "" {
			// As in the server.properties that Kafka ships.
			st.Profile["advertised.listeners"] = "PLAINTEXT://localhost:9092"
		}
	} else {
		f, err := os.Open(s.file)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		defer f.Close()
		if st.File, err = config.ReadProperties(f); err != nil {
			return nil, fmt.Errorf("--config %s: %w", s.file, err)
		}
	}
	var err error
	if out.config, out.warnings, err = config.NewBroker(config.NewRegistry(), st); err != nil {
		return nil, err
	}
	if err := out.layout(s.data); err != nil {
		return nil, err
	}
	if out.archiveIsDefault {
		// DescribeConfigs shows what holds, so that tools find the archive.
		st.Profile["archive.url"] = out.archive
		if out.config, _, err = config.NewBroker(config.NewRegistry(), st); err != nil {
			return nil, err
		}
	}
	if t := out.config.Topic(nil, false); t.RemoteStorageEnable && t.LocalRetentionMs == t.RetentionMs && t.LocalRetentionBytes == t.RetentionBytes {
		out.warnings = append(out.warnings, "archived topics keep all of their log on the local disk as well, since local retention equals the whole: "+
			"set log.local.retention.ms or log.local.retention.bytes, or a topic's own local.retention.*, to let it leave the disk early")
	}
	return out, nil
}

// layout decides where everything lies. With log.dirs in the configuration and
// no --data, everything lies there, as Kafka's users expect.
func (s *settings) layout(data string) error {
	s.data = data
	dirs := s.config.String("log.dirs")
	if dirs == "" && s.config.IsSet("log.dir") {
		dirs = s.config.String("log.dir")
	}
	if list := config.SplitList(dirs); len(list) == 1 {
		s.logs = list[0]
		if s.data == "" {
			s.data = s.logs
		}
	}
	if s.data == "" {
		s.data = "firn-data"
	}
	abs, err := filepath.Abs(s.data)
	if err != nil {
		return fmt.Errorf("--data %s: %w", s.data, err)
	}
	s.data = abs
	if s.logs == "" {
		s.logs = filepath.Join(abs, "logs")
	} else if s.logs, err = filepath.Abs(s.logs); err != nil {
		return fmt.Errorf("log.dirs %s: %w", s.logs, err)
	}
	s.meta = filepath.Join(abs, "meta.db")
	s.cache = filepath.Join(abs, "cache")
	if c := s.config.String("archive.cache.dir"); c != "" {
		s.cache = c
	}
	s.zookeeper = s.config.String("zookeeper.connect")
	s.archive = s.config.String("archive.url")
	// The brokers of a cluster share one archive, which no broker's own directory is.
	if s.archive == "" && s.usedProfile && s.zookeeper == "" && !s.config.IsSet("archive.url") {
		s.archiveIsDefault = true
		s.archive = "file://" + filepath.ToSlash(filepath.Join(abs, "archive"))
	}
	if s.archive != "" { // before anything is made, or waits for ZooKeeper
		_, err = tiering.ParseLocation(s.archive)
	}
	return err
}

// logger makes the logger that log.format asks for: text on a terminal unless
// told otherwise.
func logger(format string, w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if l := os.Getenv("KAFKA_LOG4J_ROOT_LOGLEVEL"); l != "" {
		_ = level.UnmarshalText([]byte(strings.Replace(l, "TRACE", "DEBUG", 1))) // an unknown level leaves info
	}
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
