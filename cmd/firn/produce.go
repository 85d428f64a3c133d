package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
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
			cl, err := connect(brokers, append(opts, kgo.DefaultProduceTopic(args[0]), kgo.AllowAutoTopicCreation())...)
			if err != nil {
				return err
			}
			defer cl.Close()
			if err := answers(c.Context(), cl, brokers); err != nil {
				return err
			}
			hs, err := parseHeaders(headers)
			if err != nil {
				return err
			}
			p := &lineProducer{cl: cl, key: key, sep: unquoteSeparator(keySep), partition: partition, headers: hs}
			return reach(brokers, p.run(c.Context(), os.Stdin))
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

	sent   atomic.Int64
	failed atomic.Pointer[error]
}

func (p *lineProducer) run(ctx context.Context, in io.Reader) error {
	start := time.Now()
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
	if err := p.cl.Flush(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%s records in %.1f s\n", countText(p.sent.Load()), time.Since(start).Seconds())
	if err := p.failed.Load(); err != nil {
		return fmt.Errorf("produce: %w", *err)
	}
	return nil
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
