package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func consumeCommand(g *global) *cobra.Command {
	var brokers, from, until string
	var follow, keys bool
	var max int64
	c := &cobra.Command{
		Use:   "consume TOPIC[:PARTITION]",
		Short: "Print a topic's records, by offset or by date, and stop at the end",
		Example: `  firn consume events
  firn consume orders --from 2026-01-31T08:00 --until 2026-01-31T08:10 -o json
  firn consume orders:0 --from 100 --until 200
  firn consume events --from end --follow`,
		Long: `Prints records of a topic and stops at what was its end when it began, unless
--follow. --from and --until take an offset, a date such as 2026-01-31T08:00
(UTC unless it names a zone), @milliseconds, or a time ago such as -48h; --until
is exclusive. A date stands for an offset in each partition: that of the first
record from then on, as Kafka finds it. A partition's records come in order.

With -o json a record is one line: topic, partition, offset, timestamp, key,
value, headers. Keys and values that aren't UTF-8 are base64, as keyBase64 and
valueBase64. What was read, and how much of it from the archive, goes to
standard error. Where a batch can't be decoded it ends with an error that says at
which offset, and where to go on.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			now := time.Now()
			f, err := parsePosition(from, now)
			if err != nil {
				return fmt.Errorf("--from: %w", err)
			}
			u, err := parsePosition(until, now)
			if err != nil {
				return fmt.Errorf("--until: %w", err)
			}
			w := bufio.NewWriterSize(os.Stdout, 1<<16)
			r := &replay{brokers: brokers, topic: args[0], partition: -1, from: f, until: u, follow: follow, max: max}
			if t, p, ok := strings.Cut(args[0], ":"); ok {
				n, err := strconv.ParseInt(p, 10, 32)
				if err != nil {
					return fmt.Errorf("%q: write TOPIC:PARTITION", args[0])
				}
				r.topic, r.partition = t, int32(n)
			}
			r.each = func(rec *kgo.Record) error { return printRecord(w, g, keys, rec) }
			r.idle = w.Flush
			sum, err := r.run(c.Context())
			if ferr := w.Flush(); err == nil {
				err = ferr
			}
			if err == nil || sum.Records > 0 {
				sum.print(os.Stderr)
			}
			if errors.Is(err, context.Canceled) && follow {
				return nil
			}
			return reach(brokers, err)
		},
	}
	brokersFlag(c, &brokers)
	c.Flags().StringVar(&from, "from", "start", "where to begin: offset, date, -48h, start or end")
	c.Flags().StringVar(&until, "until", "", "where to stop, exclusive; the end by default")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	c.Flags().BoolVarP(&keys, "keys", "k", false, "print the key and a tab before the value")
	c.Flags().Int64VarP(&max, "max", "n", 0, "stop after this many records")
	return c
}

// replay reads a stretch of a topic: the heart of consume and demo.
type replay struct {
	brokers, topic string
	id             kadm.TopicID // once planned
	partition      int32        // -1: all
	from, until    position
	follow         bool
	max            int64
	each           func(*kgo.Record) error
	idle           func() error // called when there is nothing to print right now
}

// summary tells what a replay read.
type summary struct {
	Records, Bytes, Archived int64
	First, Total             time.Duration
}

func (s summary) print(w io.Writer) {
	share := int64(0)
	if s.Records > 0 {
		share = 100 * s.Archived / s.Records
	}
	fmt.Fprintf(w, "%s records, %s, %d %% from the archive", countText(s.Records), bytesText(s.Bytes), share)
	if s.Records > 0 {
		fmt.Fprintf(w, "; first after %d ms", s.First.Milliseconds())
	}
	if sec := s.Total.Seconds(); sec > 0.05 {
		fmt.Fprintf(w, "; %s/s", bytesText(int64(float64(s.Bytes)/sec)))
	}
	fmt.Fprintln(w)
}

// stretch is what is to be read of one partition: [next, end), with local the
// first offset that is on the broker's disk.
type stretch struct {
	next, end, local int64
	moved            time.Time // when next did, or was looked at
	decodable        int64     // where it was looked at, up to here
}

func (r *replay) run(ctx context.Context) (summary, error) {
	parts, err := r.plan(ctx)
	if err != nil {
		return summary{}, err
	}
	start := map[int32]kgo.Offset{}
	for p, s := range parts {
		if s.next >= s.end && !r.follow {
			delete(parts, p)
			continue
		}
		start[p] = kgo.NewOffset().At(s.next)
	}
	var sum summary
	if len(parts) == 0 {
		return sum, nil
	}
	cl, err := connect(r.brokers,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: start}),
		kgo.FetchMaxBytes(64<<20), kgo.FetchMaxPartitionBytes(8<<20),
		// Without this a lost object (CORRUPT_MESSAGE) would be retried silently, for ever.
		kgo.KeepRetryableFetchErrors(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)
	if err != nil {
		return sum, err
	}
	defer cl.Close()
	began := time.Now()
	defer func() { sum.Total = time.Since(began) }()
	err = r.poll(ctx, cl, parts, &sum, began)
	sum.Total = time.Since(began)
	return sum, err
}

func (r *replay) poll(ctx context.Context, cl *kgo.Client, parts map[int32]*stretch, sum *summary, began time.Time) error {
	w := waits{out: os.Stderr, topic: r.topic, reason: func(p int32, s *stretch, err error) string { return reason(ctx, cl, r.topic, p, s, err) }}
	for _, s := range parts {
		s.moved = began
	}
	for len(parts) > 0 {
		look, cancel := context.WithTimeout(ctx, time.Second)
		fs := cl.PollFetches(look)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		now := time.Now()
		if p, err := fatal(fs); err != nil {
			return r.failed(ctx, cl, p, parts[p], err)
		}
		for it := fs.RecordIter(); !it.Done(); {
			rec := it.Next()
			s := parts[rec.Partition]
			if s == nil || rec.Offset >= s.end && !r.follow {
				continue
			}
			if rec.Offset > s.next && s.next >= s.decodable {
				if err := r.lookAt(ctx, cl, rec.Partition, s); err != nil {
					return err
				}
			}
			if sum.Records == 0 {
				sum.First = time.Since(began)
			}
			sum.Records++
			sum.Bytes += int64(len(rec.Key) + len(rec.Value))
			if rec.Offset < s.local {
				sum.Archived++
			}
			if err := r.each(rec); err != nil {
				return err
			}
			s.next, s.moved = rec.Offset+1, now
			if r.max > 0 && sum.Records >= r.max {
				return nil
			}
		}
		if err := r.lookAround(ctx, cl, parts, now); err != nil {
			return err
		}
		failed := map[int32]error{}
		fs.EachError(func(_ string, p int32, err error) { failed[p] = err })
		w.look(time.Now(), parts, failed)
		r.finish(cl, fs, parts)
		if r.idle != nil {
			if err := r.idle(); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish lets go of the partitions that are read to their end. The last records
// below an end may be control records that nobody gets to see, so the position
// tells, not the record.
func (r *replay) finish(cl *kgo.Client, fs kgo.Fetches, parts map[int32]*stretch) {
	if r.follow {
		return
	}
	var done []int32
	fs.EachPartition(func(p kgo.FetchTopicPartition) {
		s := parts[p.Partition]
		// Below the end there may be nothing but control records. An answer with an
		// error says nothing: its high watermark is not one.
		if s != nil && (s.next >= s.end || p.Err == nil && len(p.Records) == 0 && p.HighWatermark >= 0 && p.HighWatermark <= s.next) {
			done = append(done, p.Partition)
		}
	})
	for _, p := range done {
		delete(parts, p)
	}
	if len(done) > 0 && len(parts) > 0 {
		cl.RemoveConsumePartitions(map[string][]int32{r.topic: done})
	}
}

// fatal is the first error of a poll that trying again won't mend, and where.
func fatal(fs kgo.Fetches) (partition int32, err error) {
	fs.EachError(func(topic string, p int32, e error) {
		nothing := topic == "" && errors.Is(e, context.DeadlineExceeded) // came while we looked
		if err == nil && !nothing && (isCode(e, "CORRUPT_MESSAGE") || !retriable(e)) {
			if partition, err = p, e; topic == "" {
				partition = -1 // of the client
			}
		}
	})
	return partition, err
}

// plan finds offsets for the positions asked for.
func (r *replay) plan(ctx context.Context) (map[int32]*stretch, error) {
	parts := map[int32]*stretch{}
	err := admin(r.brokers, func(a *kadm.Client) error {
		ts, err := a.ListTopicsWithInternal(ctx, r.topic)
		if err != nil {
			return failure("look up "+r.topic, err, "")
		}
		d := ts[r.topic]
		if d.Err != nil {
			return failure("look up "+r.topic, d.Err, "")
		}
		r.id = d.ID
		want := numbers(d)
		if r.partition >= 0 {
			if !slices.Contains(want, r.partition) {
				return fmt.Errorf("%s has no partition %d", r.topic, r.partition)
			}
			want = []int32{r.partition}
		}
		views, err := tiers(ctx, a, d, want, true)
		if err != nil {
			return err
		}
		for _, v := range views {
			parts[v.Partition] = &stretch{next: v.LogStart, end: v.End, local: v.LocalStart}
			if words := r.from.outside(v.Partition, v.LogStart, v.End); words != "" {
				fmt.Fprintln(os.Stderr, words)
			}
		}
		if err := r.place(ctx, a, r.from, parts, func(s *stretch, o int64) { s.next = max(s.next, o) }); err != nil {
			return err
		}
		if !r.until.set {
			return nil
		}
		return r.place(ctx, a, r.until, parts, func(s *stretch, o int64) { s.end = min(s.end, o) })
	})
	return parts, err
}

func (r *replay) place(ctx context.Context, a *kadm.Client, at position, parts map[int32]*stretch, put func(*stretch, int64)) error {
	switch {
	case !at.set, at.start:
	case at.end:
		for _, s := range parts {
			put(s, s.end)
		}
	case at.byTime.IsZero():
		for _, s := range parts {
			put(s, at.offset)
		}
	default:
		l, err := offsets(ctx, r.topic, slices.Sorted(maps.Keys(parts)), true, func(ctx context.Context) (kadm.ListedOffsets, error) {
			return a.ListOffsetsAfterMilli(ctx, at.byTime.UnixMilli(), r.topic)
		})
		if err != nil {
			return fmt.Errorf("at %s: %w", at.byTime.UTC().Format(time.RFC3339), err)
		}
		for p, s := range parts {
			if o, ok := l.Lookup(r.topic, p); ok && o.Offset >= 0 {
				put(s, o.Offset)
			} else {
				put(s, s.end)
			}
		}
	}
	return nil
}

// recordView is a record as -o json prints it.
type recordView struct {
	Topic       string            `json:"topic"`
	Partition   int32             `json:"partition"`
	Offset      int64             `json:"offset"`
	Timestamp   string            `json:"timestamp"`
	Key         *string           `json:"key"`
	KeyBase64   string            `json:"keyBase64,omitempty"`
	Value       *string           `json:"value"`
	ValueBase64 string            `json:"valueBase64,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
}

func printRecord(w io.Writer, g *global, keys bool, r *kgo.Record) error {
	if !g.json() {
		if keys {
			if _, err := fmt.Fprintf(w, "%s\t", r.Key); err != nil {
				return err
			}
		}
		_, err := w.Write(append(slices.Clip(r.Value), '\n'))
		return err
	}
	v := recordView{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z")}
	v.Key, v.KeyBase64 = textOrBase64(r.Key)
	v.Value, v.ValueBase64 = textOrBase64(r.Value)
	for _, h := range r.Headers {
		if v.Headers == nil {
			v.Headers = map[string]string{}
		}
		v.Headers[h.Key] = string(h.Value)
	}
	return printJSON(w, v)
}

func textOrBase64(b []byte) (*string, string) {
	if b == nil {
		return nil, ""
	}
	if utf8.Valid(b) {
		s := string(b)
		return &s, ""
	}
	return nil, base64.StdEncoding.EncodeToString(b)
}
