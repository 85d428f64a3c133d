package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// demo is a year of orders, archived and read back.
type demo struct {
	out     io.Writer
	tty     bool
	brokers string
	topic   string
	events  int64
	from    time.Time
	until   time.Time
}

func demoCommand(_ *global) *cobra.Command {
	var data string
	var events int64
	var keep bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Write a year of events to a broker of its own, archive them, and read them back",
		Long: `Starts a broker on a free port with its data in a directory of its own, writes a
year of back-dated orders over TCP, waits until they are archived and their
local copies are gone, shows where everything is, replays one month by date, and
then the whole year, checking that every event comes back once and in order.

Needs about 1 GB of disk while it runs; --keep leaves the data for a look.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if events < 1000 {
				return errors.New("--events: at least 1000 make a demo")
			}
			made := data == ""
			if made {
				dir, err := os.MkdirTemp("", "firn-demo-")
				if err != nil {
					return fmt.Errorf("demo directory: %w", err)
				}
				data = dir
			}
			if made && !keep {
				defer os.RemoveAll(data)
			}
			now := time.Now().UTC().Truncate(24 * time.Hour)
			d := &demo{out: os.Stdout, tty: isTerminal(os.Stdout), topic: "orders", events: events, from: now.AddDate(-1, 0, 0), until: now}
			if err := d.run(c.Context(), data); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			if keep || !made {
				fmt.Printf("\nthe data is in %s; go on with:  firn serve --data %s\n", data, data)
			}
			return nil
		},
	}
	c.Flags().StringVar(&data, "data", "", "data directory; by default a temporary one that goes at the end")
	c.Flags().Int64Var(&events, "events", 1_200_000, "number of events")
	c.Flags().BoolVar(&keep, "keep", false, "keep the data")
	return c
}

func (d *demo) run(ctx context.Context, data string) error {
	e, err := startEmbedded(ctx, data, map[string]string{
		"log.retention.check.interval.ms":     "1000",
		"remote.log.manager.task.interval.ms": "1000",
		"archive.upload.max.interval.ms":      "2000",
		"log.segment.delete.delay.ms":         "0",
		"archive.upload.min.bytes":            "1",
		"log.initial.task.delay.ms":           "500",
	})
	if err != nil {
		return err
	}
	defer e.stop()
	d.brokers = e.addr
	for _, step := range []func(context.Context) error{d.create, d.write, d.wait, d.drawMap, d.replayMonth, d.replayYear} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return e.stop()
}

func (d *demo) create(ctx context.Context) error {
	fmt.Fprintf(d.out, "creating topic %s   (3 partitions, kept for ever, segments of 4 MiB)\n", d.topic)
	v := func(s string) *string { return &s }
	return admin(d.brokers, func(a *kadm.Client) error {
		r, err := a.CreateTopic(ctx, 3, -1, map[string]*string{
			"segment.bytes": v("4194304"), "retention.ms": v("-1"), "local.retention.ms": v("1000"),
		}, d.topic)
		if err == nil {
			err = r.Err
		}
		return failure("create "+d.topic, err, r.ErrMessage)
	})
}

// progress prints a line that says how far something is: in place on a terminal.
func (d *demo) progress(what string, part float64) {
	if !d.tty {
		return
	}
	const width = 30
	n := int(part * width)
	fmt.Fprintf(d.out, "\r%s %s%s %3.0f %%", what, strings.Repeat("█", n), strings.Repeat("·", width-n), part*100)
}

func (d *demo) done(what, how string) {
	if d.tty {
		fmt.Fprint(d.out, "\r\x1b[2K")
	}
	fmt.Fprintf(d.out, "%s ... %s\n", what, how)
}

func (d *demo) write(ctx context.Context) error {
	what := fmt.Sprintf("writing %s events dated %s .. %s over TCP", countText(d.events), day(d.from), day(d.until))
	cl, err := connect(d.brokers, kgo.DefaultProduceTopic(d.topic), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return err
	}
	defer cl.Close()
	start, bytes := time.Now(), int64(0)
	failed := make(chan error, 1)
	src := newOrders(1, d.events, d.from, d.until)
	for e, ok := src.next(); ok; e, ok = src.next() {
		r := &kgo.Record{Key: e.Key, Value: append([]byte(nil), e.Value...), Timestamp: e.Time}
		bytes += int64(len(r.Key) + len(r.Value))
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
		if e.Number%20_000 == 0 {
			d.progress(what, float64(e.Number)/float64(d.events))
			select {
			case err := <-failed:
				return fmt.Errorf("write: %w", err)
			default:
			}
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	select {
	case err := <-failed:
		return fmt.Errorf("write: %w", err)
	default:
	}
	took := time.Since(start)
	d.done(what, fmt.Sprintf("done in %.1f s (%s/s, %s)", took.Seconds(), countText(int64(float64(d.events)/took.Seconds())), bytesText(bytes)))
	return nil
}

// wait waits until at least 95 % of all records are in the archive only.
func (d *demo) wait(ctx context.Context) error {
	const what = "waiting for the archive"
	start := time.Now()
	for {
		var only, archived, total int64
		vs, err := topicViews(ctx, d.brokers, d.topic)
		if err != nil {
			return err
		}
		for _, v := range vs {
			only += v.LocalStart - v.LogStart
			archived += max(v.Archived, v.LogStart) - v.LogStart
			total += v.End - v.LogStart
		}
		part := float64(only) / float64(max(total, 1))
		d.progress(what, part)
		if part >= 0.95 {
			d.done(what, fmt.Sprintf("%.0f %% archived, %.0f %% of all events only there, after %.1f s",
				100*float64(archived)/float64(total), 100*part, time.Since(start).Seconds()))
			return nil
		}
		if time.Since(start) > 3*time.Minute {
			return fmt.Errorf("only %.0f %% of the events have left the local disk after %v", 100*part, time.Since(start).Round(time.Second))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (d *demo) replayMonth(ctx context.Context) error {
	from := time.Date(d.from.Year(), d.from.Month(), 1, 0, 0, 0, 0, time.UTC).AddDate(0, 2, 0)
	until := from.AddDate(0, 1, 0)
	bad := int64(0)
	r := &replay{brokers: d.brokers, topic: d.topic, partition: -1,
		from: position{set: true, byTime: from}, until: position{set: true, byTime: until},
		each: func(rec *kgo.Record) error {
			if rec.Timestamp.Before(from) || !rec.Timestamp.Before(until) {
				bad++
			}
			return nil
		}}
	sum, err := r.run(ctx)
	if err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("replaying %s: %d events are of another month", from.Format("2006-01"), bad)
	}
	d.done("replaying "+from.Format("2006-01")+" from the archive", fmt.Sprintf("%s events, %s, first after %d ms, %s/s",
		countText(sum.Records), bytesText(sum.Bytes), sum.First.Milliseconds(), bytesText(int64(float64(sum.Bytes)/sum.Total.Seconds()))))
	return nil
}

// replayYear reads everything and checks that each event comes once, and in order.
func (d *demo) replayYear(ctx context.Context) error {
	seen := make([]uint64, (d.events+63)/64)
	last := map[int32]int64{}
	r := &replay{brokers: d.brokers, topic: d.topic, partition: -1, each: func(rec *kgo.Record) error {
		n, err := orderNumber(rec.Value)
		if err != nil {
			return err
		}
		if n < 0 || n >= d.events || seen[n/64]&(1<<(n%64)) != 0 {
			return fmt.Errorf("event %d came twice, or was never written", n)
		}
		seen[n/64] |= 1 << (n % 64)
		if p, ok := last[rec.Partition]; ok && n <= p {
			return fmt.Errorf("event %d came after %d in partition %d", n, p, rec.Partition)
		}
		last[rec.Partition] = n
		return nil
	}}
	sum, err := r.run(ctx)
	if err != nil {
		return err
	}
	if sum.Records != d.events {
		return fmt.Errorf("%d of %d events came back", sum.Records, d.events)
	}
	d.done(fmt.Sprintf("replaying %s .. %s", day(d.from), day(d.until)), fmt.Sprintf("%s events, every one once, in order; %d %% from the archive, %s/s",
		countText(sum.Records), 100*sum.Archived/sum.Records, bytesText(int64(float64(sum.Bytes)/sum.Total.Seconds()))))
	return nil
}

func day(t time.Time) string { return t.Format("2006-01-02") }

func isTerminal(f *os.File) bool {
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}
