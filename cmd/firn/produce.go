package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func produceCommand(_ *global) *cobra.Command {
	var brokers, key, keySep, acks, codec string
	var partition int32
	var headers []string
	c := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Produce a record for each line of standard input",
		Example: `  seq 1000 | firn produce numbers
  printf 'alice\tlogged in\n' | firn produce events -K '\t'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			opts, err := produceOptions(acks, codec, partition)
			if err != nil {
				return err
			}
			hs, err := parseHeaders(headers)
			if err != nil {
				return err
			}
			p := &lineProducer{key: key, sep: unquoteSeparator(keySep), partition: partition, headers: hs, notices: os.Stderr, patience: noticeEvery}
			return p.produce(c.Context(), brokers, args[0], opts, os.Stdin)
		},
	}
	brokersFlag(c, &brokers)
	c.Flags().StringVarP(&key, "key", "k", "", "the key of every record")
	c.Flags().StringVarP(&keySep, "key-separator", "K", "", `what parts key and value in a line, "\t" for a tab`)
	c.Flags().Int32VarP(&partition, "partition", "p", -1, "the partition; -1: by key, or spread")
	c.Flags().StringArrayVarP(&headers, "header", "H", nil, "header name=value; may be repeated")
	c.Flags().StringVar(&acks, "acks", "all", "who must have a record before it counts: all, 1 or 0")
	c.Flags().StringVarP(&codec, "compression", "z", "none", "none, gzip, snappy, lz4 or zstd")
	return c
}

func produceOptions(acks, codec string, partition int32) ([]kgo.Opt, error) {
	var opts []kgo.Opt
	switch acks {
	case "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, fmt.Errorf("--acks %s: all, 1 or 0", acks)
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	z, ok := codecs[codec]
	if !ok {
		return nil, fmt.Errorf("-z %s: none, gzip, snappy, lz4 or zstd", codec)
	}
	opts = append(opts, kgo.ProducerBatchCompression(z))
	if partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return opts, nil
}

func parseHeaders(pairs []string) ([]kgo.RecordHeader, error) {
	var out []kgo.RecordHeader
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok {
			return nil, fmt.Errorf("-H %q: write name=value", p)
		}
		out = append(out, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	return out, nil
}

func unquoteSeparator(s string) string { return strings.ReplaceAll(s, `\t`, "\t") }

// lineProducer turns lines into records.
type lineProducer struct {
	cl        *kgo.Client
	key, sep  string
	partition int32
	headers   []kgo.RecordHeader
	// notices is told when nothing has been acknowledged for as long as patience.
	notices  io.Writer
	patience time.Duration

	sent   atomic.Int64
	failed atomic.Pointer[error]
}

// produce connects, in batches that the topic takes, and sends in's lines to it.
func (p *lineProducer) produce(ctx context.Context, brokers, topic string, opts []kgo.Opt, in io.Reader) error {
	limit := int64(0)
	err := withClient(brokers, func(cl *kgo.Client, a *kadm.Client) error {
		err := answers(ctx, cl, brokers)
		if err == nil {
			limit = batchLimit(ctx, a, topic)
		}
		return err
	})
	if err != nil {
		return err
	}
	if limit > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(int32(max(limit, 512)))) // the client allows no less
	}
	p.cl, err = connect(brokers, append(opts, kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation())...)
	if err != nil {
		return err
	}
	defer p.cl.Close()
	err = p.run(ctx, in)
	if isCode(err, "MESSAGE_TOO_LARGE") && limit > 0 {
		err = fmt.Errorf("%w: %s takes a record of at most %d bytes with all that belongs to it (max.message.bytes, segment.bytes)", err, topic, limit)
	}
	return reach(brokers, err)
}

// batchMost bounds a batch below what a request may hold.
const batchMost = 64 << 20

// batchLimit is how large a batch the topic takes, or, if it is yet to be made,
// one with the brokers' defaults; 0: they don't tell.
func batchLimit(ctx context.Context, a *kadm.Client, topic string) int64 {
	rs, _ := a.DescribeTopicConfigs(ctx, topic)
	if limit := smallest(rs, "max.message.bytes", "segment.bytes"); limit > 0 {
		return limit
	}
	m, err := a.BrokerMetadata(ctx)
	if err != nil || len(m.Brokers) == 0 {
		return 0
	}
	rs, _ = a.DescribeBrokerConfigs(ctx, m.Brokers[0].NodeID)
	return smallest(rs, "message.max.bytes", "log.segment.bytes")
}

// smallest is the smallest value of some keys, 0 if there is none.
func smallest(rs kadm.ResourceConfigs, keys ...string) (least int64) {
	for _, r := range rs {
		for _, e := range r.Configs {
			if e.Value == nil || !slices.Contains(keys, e.Key) {
				continue
			}
			if n, err := strconv.ParseInt(*e.Value, 10, 64); err == nil && (least == 0 || n < least) {
				least = n
			}
		}
	}
	return min(least, batchMost)
}

func (p *lineProducer) run(ctx context.Context, in io.Reader) error {
	start := time.Now()
	var telling sync.WaitGroup
	defer telling.Wait()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	telling.Go(func() { p.tellOfWaiting(waiting) })
	lines := bufio.NewReaderSize(in, 1<<20)
	for p.failed.Load() == nil {
		line, err := lines.ReadBytes('\n')
		if n := len(line); n > 0 {
			if line[n-1] == '\n' {
				line = line[:n-1]
			}
			p.cl.Produce(ctx, p.record(line), func(_ *kgo.Record, err error) {
				if err != nil {
					p.failed.CompareAndSwap(nil, &err)
					return
				}
				p.sent.Add(1)
			})
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
	}
	if err := p.cl.Flush(ctx); err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted; %s records were acknowledged", countText(p.sent.Load()))
	} else if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%s records in %.1f s\n", countText(p.sent.Load()), time.Since(start).Seconds())
	if err := p.failed.Load(); err != nil {
		return fmt.Errorf("produce: %w", *err)
	}
	return nil
}

// tellOfWaiting says so when nothing more is acknowledged: the client tries again and
// again what may succeed later, and says nothing.
func (p *lineProducer) tellOfWaiting(ctx context.Context) {
	tick := time.NewTicker(p.patience)
	defer tick.Stop()
	for before := int64(0); ; before = p.sent.Load() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n := p.cl.BufferedProduceRecords(); n > 0 && p.sent.Load() == before {
			fmt.Fprintf(p.notices, "still waiting for the acknowledgement of %s records: `firn cluster health` and the brokers' logs tell why (no leader, too few in sync, a full disk?)\n", countText(n))
		}
	}
}

func (p *lineProducer) record(line []byte) *kgo.Record {
	r := &kgo.Record{Value: line, Partition: p.partition, Headers: p.headers}
	if p.key != "" {
		r.Key = []byte(p.key)
	}
	if p.sep != "" {
		if k, v, ok := strings.Cut(string(line), p.sep); ok {
			r.Key, r.Value = []byte(k), []byte(v)
		}
	}
	return r
}
