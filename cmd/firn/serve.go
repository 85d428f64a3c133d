package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func serveCommand() *cobra.Command {
	var src sources
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker",
		Long: `Runs a broker until Ctrl-C or SIGTERM; a second one ends it at once.

Without flags everything is embedded: metadata in one file, the archive in a
directory, all of it below ./firn-data. --config takes Kafka's server.properties
as it is, --set overrides single keys, and KAFKA_* variables mean what they mean
to the apache/kafka image. Precedence: --set, environment, file, default.

Without --config an archive profile applies:

  log.retention.ms=-1                   everything is kept
  log.local.retention.ms=3600000        on the local disk for an hour
  log.segment.bytes=67108864
  archive.upload.max.interval.ms=60000  in the archive after a minute

With --config Kafka's defaults hold, and there is an archive only if the file
names one:

  archive.url=file:///var/lib/firn-archive
  archive.url=s3://bucket/prefix?region=eu-central-1
  archive.url=s3://bucket?endpoint=http://127.0.0.1:9000&create=true

Credentials come from the usual AWS chain (AWS_ACCESS_KEY_ID, profiles, roles).`,
		Example: `  firn serve
  firn serve --data /var/lib/firn --set listeners=PLAINTEXT://:9092
  firn serve --config server.properties --set archive.url=s3://events?region=eu-central-1`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			began := time.Now()
			src.env = os.Environ()
			s, err := load(src)
			if err != nil {
				return err
			}
			log := logger(s.config.String("log.format"), os.Stderr)
			for _, w := range s.warnings {
				log.Warn("configuration", "note", w)
			}
			n, err := openNode(c.Context(), s, log)
			if err != nil {
				return err
			}
			return n.run(c.Context(), func() { banner(os.Stdout, n, time.Since(began)) })
		},
	}
	c.Flags().StringVar(&src.file, "config", "", "Kafka's server.properties")
	c.Flags().StringVar(&src.data, "data", "", "data directory (default ./firn-data, or log.dirs if the configuration names it)")
	c.Flags().StringArrayVar(&src.set, "set", nil, "key=value, over file and environment; may be repeated")
	return c
}

// banner says where everything is and what to try.
func banner(w io.Writer, n *node, took time.Duration) {
	s := n.settings
	who := "one broker"
	if s.zookeeper != "" {
		who = fmt.Sprintf("broker %d", s.config.Int("node.id"))
	}
	fmt.Fprintf(w, "firn %s   %s, data in %s   (Ctrl-C stops; state is kept)\n\n", version, who, shortPath(s.data))
	between := s.config.String("inter.broker.listener.name")
	for _, e := range n.broker.Endpoints() {
		who := "any Kafka client, no auth"
		if strings.EqualFold(e.Listener, between) && len(n.broker.Endpoints()) > 1 {
			who = "the other brokers"
		}
		fmt.Fprintf(w, "  %-10s %s:%d   %s\n", "Kafka", e.Host, e.Port, who)
	}
	if n.admin != nil {
		fmt.Fprintf(w, "  %-10s http://%s   /metrics /readyz /livez\n", "Admin", n.admin.Addr())
	}
	if s.archive != "" {
		fmt.Fprintf(w, "  %-10s %s\n", "Archive", s.archive)
	} else {
		fmt.Fprintf(w, "  %-10s none: nothing leaves the local disk (archive.url=file:///dir or s3://bucket?… sets one, the same for all brokers of a cluster)\n", "Archive")
	}
	if s.zookeeper != "" {
		fmt.Fprintf(w, "  %-10s ZooKeeper %s\n", "Metadata", s.zookeeper)
	} else {
		fmt.Fprintf(w, "  %-10s built in\n", "Metadata")
	}
	if s.usedProfile {
		fmt.Fprintf(w, "  %-10s log.retention.ms=%s  log.local.retention.ms=%s  log.segment.bytes=%s\n  %-10s archive.upload.max.interval.ms=%s   (with --config FILE Kafka's defaults hold)\n", "Profile",
			strconv.FormatInt(s.config.Topic(nil, false).RetentionMs, 10), s.config.String("log.local.retention.ms"), s.config.String("log.segment.bytes"), "",
			s.config.String("archive.upload.max.interval.ms"))
	}
	b := ""
	if e := n.broker.Endpoints()[0]; e.Port != 9092 {
		b = fmt.Sprintf(" -b %s:%d", e.Host, e.Port)
	}
	fmt.Fprintf(w, "\n  ready in %.2f s.  Try:  seq 1000 | firn produce events%s     firn consume events%s\n", took.Seconds(), b, b)
}

// shortPath is p relative to the working directory where that is shorter.
func shortPath(p string) string {
	wd, err := os.Getwd()
	if err != nil {
		return p
	}
	if rel, err := filepath.Rel(wd, p); err == nil && len(rel) < len(p) {
		return rel
	}
	return p
}
