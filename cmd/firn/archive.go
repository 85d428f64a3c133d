package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"firn/tiering"
	"firn/tiering/objstore"
)

func archiveCommand(g *global) *cobra.Command {
	c := &cobra.Command{
		Use:   "archive",
		Short: "List, verify, extract, copy and restore what is archived",
		Long: `Works on the archive itself, a directory or a bucket: no broker need run. Where
--archive is not given, the broker at -b is asked where its archive is; so the
address must be one that works from here as well. Nothing here opens a broker's
meta.db, and only copy, restore and release write.`,
	}
	c.AddCommand(archiveList(g), archivePending(g), archiveVerify(g), archiveExtract(g), archiveCopy(g), archiveRestore(g), archiveRelease())
	return c
}

// archiveAt is where an archive verb finds the archive.
type archiveAt struct{ url, brokers string }

func (a *archiveAt) flags(c *cobra.Command) {
	c.Flags().StringVar(&a.url, "archive", "", "the archive's URL (file:///dir, s3://bucket/prefix?…); asked of the broker by default")
	brokersFlag(c, &a.brokers)
}

// store opens the archive for reading.
func (a *archiveAt) store(ctx context.Context) (objstore.Store, error) {
	if a.url == "" {
		v, err := askBroker(ctx, a.brokers, "archive.url")
		if err != nil {
			return nil, fmt.Errorf("where is the archive? name it with --archive, or a running broker with -b: %w", err)
		}
		if v == "" {
			return nil, fmt.Errorf("the broker at %s has no archive; name one with --archive", a.brokers)
		}
		a.url = v
	}
	return openArchive(ctx, a.url)
}

// storeAnswer bounds the wait for a store's first answer.
const storeAnswer = 15 * time.Second

// openArchive opens the store of an archive that is there: it makes nothing.
func openArchive(ctx context.Context, url string) (objstore.Store, error) {
	return openStore(ctx, url, tiering.OpenOptions{Existing: true})
}

func openStore(ctx context.Context, url string, o tiering.OpenOptions) (objstore.Store, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storeAnswer, fmt.Errorf("no answer within %v", storeAnswer))
	defer cancel()
	s, err := tiering.OpenStore(ctx, url, o)
	if err != nil {
		// The broker's key means nothing to who gave a flag.
		return nil, errors.New(strings.TrimPrefix(err.Error(), "archive.url: "))
	}
	return s, nil
}

// askBroker is the value of one of the broker's configs.
func askBroker(ctx context.Context, brokers, key string) (string, error) {
	var out string
	err := admin(brokers, func(a *kadm.Client) error {
		m, err := a.BrokerMetadata(ctx)
		if err != nil {
			return err
		}
		if len(m.Brokers) == 0 {
			return errors.New("no broker in its metadata")
		}
		rs, err := a.DescribeBrokerConfigs(ctx, m.Brokers[0].NodeID)
		if err != nil {
			return err
		}
		for _, r := range rs {
			for _, c := range r.Configs {
				if c.Key == key && c.Value != nil {
					out = *c.Value
				}
			}
		}
		return nil
	})
	return out, err
}

// splitPartition reads TOPIC or TOPIC:PARTITION.
func splitPartition(arg string) (topic string, partitions []int32, err error) {
	t, p, ok := strings.Cut(arg, ":")
	if !ok {
		return arg, nil, nil
	}
	n, err := strconv.ParseInt(p, 10, 32)
	if err != nil {
		return "", nil, fmt.Errorf("%q: write TOPIC or TOPIC:PARTITION", arg)
	}
	return t, []int32{int32(n)}, nil
}

// segmentView is a segment as `ls -l` lists it.
type segmentView struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Base      int64  `json:"base"`
	End       int64  `json:"end"`
	From      string `json:"from"`
	Until     string `json:"until"`
	Bytes     int64  `json:"bytes"`
	Records   int64  `json:"records"`
	Key       string `json:"key"`
}

// partitionSum is a partition as `ls` lists it.
type partitionSum struct {
	Topic     string `json:"topic"`
	ID        string `json:"id"`
	Partition int32  `json:"partition"`
	LogStart  int64  `json:"logStart"`
	End       int64  `json:"archivedEnd"`
	Segments  int64  `json:"segments"`
	Bytes     int64  `json:"bytes"`
	Records   int64  `json:"records"`
	From      string `json:"from,omitempty"`
	Until     string `json:"until,omitempty"`
	Deleted   bool   `json:"deleted,omitempty"`
}

func archiveList(g *global) *cobra.Command {
	var at archiveAt
	var long bool
	c := &cobra.Command{
		Use:   "ls [TOPIC[:PARTITION]]",
		Short: "List what the archive holds",
		Example: `  firn archive ls
  firn archive ls orders:0 -l --archive 's3://events?region=eu-central-1'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			store, err := at.store(c.Context())
			if err != nil {
				return err
			}
			only, parts := "", []int32(nil)
			if len(args) == 1 {
				if only, parts, err = splitPartition(args[0]); err != nil {
					return err
				}
			}
			l := &lister{b: tiering.NewBucket(store), json: g.json(), long: long, topic: only, parts: parts}
			return l.run(c.Context())
		},
	}
	at.flags(c)
	c.Flags().BoolVarP(&long, "long", "l", false, "every segment")
	return c
}

// lister prints an archive's contents.
type lister struct {
	b          *tiering.Bucket
	json, long bool
	topic      string
	parts      []int32
	tab        table
}

func (l *lister) run(ctx context.Context) error {
	topics, err := l.b.Topics(ctx)
	if err != nil {
		return err
	}
	if err := tiering.Lacks(topics, l.topic, l.parts); err != nil {
		return err
	}
	if !l.json {
		head := []string{"TOPIC", "PARTITION", "LOG-START", "ARCHIVED-END", "SEGMENTS", "BYTES", "RECORDS", "FROM", "UNTIL"}
		if l.long {
			head = []string{"TOPIC", "PARTITION", "BASE", "END", "BYTES", "RECORDS", "FROM", "UNTIL", "KEY"}
		}
		l.tab = newTable(os.Stdout, head...)
	}
	for _, t := range topics {
		if l.topic != "" && t.Info.Name != l.topic || t.Deleted && l.topic == "" && !l.json {
			continue
		}
		for _, n := range t.Partitions {
			if l.parts != nil && n != l.parts[0] {
				continue
			}
			if err := l.partition(ctx, t, n); err != nil {
				return err
			}
		}
	}
	if !l.json {
		l.tab.flush()
	}
	return nil
}

func (l *lister) partition(ctx context.Context, t tiering.BucketTopic, n int32) error {
	p := tiering.Partition{Topic: t.Info.Name, ID: t.Info.ID, Num: n}
	bp, err := l.b.Partition(ctx, p)
	if err != nil {
		return err
	}
	sum := partitionSum{Topic: p.Topic, ID: p.ID.String(), Partition: n, LogStart: bp.Pointer.LogStart, End: bp.Pointer.ArchivedEnd, Deleted: t.Deleted}
	first, last := int64(0), int64(0)
	for e, err := range l.b.Entries(ctx, bp) {
		if err != nil {
			return err
		}
		if e.End <= bp.Pointer.LogStart {
			continue // waits for its deletion
		}
		if sum.Segments == 0 {
			first = e.BaseTime
		}
		sum.Segments, sum.Bytes, sum.Records = sum.Segments+1, sum.Bytes+e.Size, sum.Records+e.Records
		last = max(last, e.MaxTime)
		if l.long {
			if err := l.segment(p, e); err != nil {
				return err
			}
		}
	}
	if l.long {
		return nil
	}
	if sum.Segments > 0 {
		sum.From, sum.Until = stamp(first), stamp(last)
	}
	if l.json {
		return printJSON(os.Stdout, sum)
	}
	l.tab.row(sum.Topic, n, sum.LogStart, sum.End, sum.Segments, bytesText(sum.Bytes), sum.Records, sum.From, sum.Until)
	return nil
}

func (l *lister) segment(p tiering.Partition, e *tiering.Entry) error {
	v := segmentView{Topic: p.Topic, Partition: p.Num, Base: e.Base, End: e.End, From: stamp(e.BaseTime), Until: stamp(e.MaxTime),
		Bytes: e.Size, Records: e.Records, Key: e.LogKey(p)}
	if l.json {
		return printJSON(os.Stdout, v)
	}
	l.tab.row(v.Topic, v.Partition, v.Base, v.End, bytesText(v.Bytes), v.Records, v.From, v.Until, v.Key)
	return nil
}

// stamp is a record's timestamp for people.
func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
