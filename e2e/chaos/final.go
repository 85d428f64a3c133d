package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/chaos/stand"
	"firn/e2e/chaos/workload"
	"firn/e2e/checker"
	"firn/segment/batch"
	"firn/tiering"
)

// dumpLog reads all of the topic as a client does, hot and cold. Where that
// stands still the dump ends short of what it says, which is an anomaly: what the
// replicas and the archive hold then tells why.
func dumpLog(ctx context.Context, seeds []string, h *workload.Histories, tell func(string, ...any)) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ClientID("final"))
	if err != nil {
		return err
	}
	defer cl.Close()
	a := kadm.NewClient(cl)
	starts, err1 := a.ListStartOffsets(ctx, h.Topic)
	ends, err2 := a.ListEndOffsets(ctx, h.Topic)
	if err := errors.Join(err1, err2, starts.Error(), ends.Error()); err != nil {
		return fmt.Errorf("final offsets: %w", err)
	}
	from, open := map[int32]kgo.Offset{}, map[int32]int64{}
	for p := range h.Partitions {
		start, _ := starts.Lookup(h.Topic, p)
		end, ok := ends.Lookup(h.Topic, p)
		if !ok {
			return fmt.Errorf("final offsets: none for partition %d", p)
		}
		h.Of(p).Dump(checker.SourceLog, start.Offset, end.Offset)
		if start.Offset < end.Offset {
			from[p], open[p] = kgo.NewOffset().At(start.Offset), end.Offset
		}
	}
	if len(open) == 0 {
		return nil
	}
	rd, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ClientID("final"), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{h.Topic: from}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.KeepRetryableFetchErrors())
	if err != nil {
		return err
	}
	defer rd.Close()
	for last := time.Now(); len(open) > 0; {
		pctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		fs := rd.PollFetches(pctx)
		cancel()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("final read: partitions and where they end: %v: %w", open, ctx.Err())
		case time.Since(last) > standstill:
			tell("final read stands still; partitions and where they end: %v; %v", open, fs.Err())
			return nil
		}
		fs.EachPartition(func(t kgo.FetchTopicPartition) {
			if len(t.Records) == 0 {
				return
			}
			last = time.Now()
			var runs []checker.Run
			for _, r := range t.Records {
				if end, ok := open[r.Partition]; !ok || r.Offset >= end {
					continue
				}
				producer, n, ok := workload.Decode(r.Partition, r.Value)
				if !ok {
					producer = ""
				}
				runs = checker.AppendRecord(runs, r.Offset, producer, n)
				if r.Offset+1 >= open[r.Partition] {
					delete(open, r.Partition)
				}
			}
			if len(runs) > 0 {
				h.Of(t.Partition).Has(checker.SourceLog, runs)
			}
		})
	}
	return nil
}

// standstill is how long the final read may get nothing.
const standstill = 30 * time.Second

// dumpReplica reads a stopped broker's own files. A broker without the partition
// is no replica of it.
func dumpReplica(b *stand.Broker, h *workload.Histories) error {
	for p := range h.Partitions {
		dir := filepath.Join(b.Data, "logs", fmt.Sprintf("%s-%d", h.Topic, p))
		names, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil {
			return err
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		d := dumper{source: b.Name, partition: p, end: -1}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			var base int64
			if _, err := fmt.Sscanf(filepath.Base(name), "%d.log", &base); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if d.end < 0 {
				d.start, d.end = base, base
			}
			if err := d.add(data, base); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		d.write(h.Of(p))
	}
	return nil
}

// dumpArchive reads what the bucket alone says, and verifies it. It returns how
// many segments that is.
func dumpArchive(ctx context.Context, url string, h *workload.Histories) (segments int, err error) {
	store, err := tiering.OpenStore(ctx, url, tiering.OpenOptions{})
	if err != nil {
		return 0, err
	}
	if c, ok := store.(io.Closer); ok {
		defer c.Close()
	}
	bucket := tiering.NewBucket(store)
	rep, err := bucket.Verify(ctx, tiering.VerifyOptions{Topic: h.Topic})
	if err != nil {
		return 0, fmt.Errorf("verify the archive: %w", err)
	}
	if len(rep.Problems) > 0 {
		return rep.Segments, fmt.Errorf("verify the archive: %d problems, the first: %v", len(rep.Problems), rep.Problems[0])
	}
	topics, err := bucket.Topics(ctx)
	if err != nil {
		return rep.Segments, err
	}
	for i := range topics {
		t := &topics[i]
		if t.Info.Name != h.Topic || t.Deleted {
			continue
		}
		for _, num := range t.Partitions {
			bp, err := bucket.Partition(ctx, t.Part(num))
			if err != nil {
				return rep.Segments, err
			}
			d := dumper{source: checker.SourceArchive, partition: num, start: bp.Manifest.LogStart, end: -1}
			for e, err := range bucket.Entries(ctx, bp) {
				if err != nil {
					return rep.Segments, err
				}
				r, err := store.GetRange(ctx, e.LogKey(bp.Partition), e.Offset, e.Size)
				if err != nil {
					return rep.Segments, err
				}
				data, err := io.ReadAll(r)
				r.Close()
				if err != nil {
					return rep.Segments, err
				}
				if d.end < 0 {
					d.start = max(d.start, e.Base)
				}
				if err := d.add(data, e.Base); err != nil {
					return rep.Segments, fmt.Errorf("%s: %w", e.LogKey(bp.Partition), err)
				}
				d.end = e.End
			}
			if d.end >= 0 {
				d.write(h.Of(num))
			}
		}
	}
	return rep.Segments, nil
}

// dumper turns segments into the lines of a dump.
type dumper struct {
	source     string
	partition  int32
	start, end int64
	batches    [][]checker.Run
}

// add adds the batches of a segment that hold from or what follows. What is not a
// whole batch at the end is left out: the broker that is killed there cuts it.
func (d *dumper) add(data []byte, from int64) error {
	for len(data) > 0 {
		b, rest, err := batch.Next(data)
		if errors.Is(err, batch.ErrShort) {
			return nil
		}
		if err == nil {
			err = batch.Verify(b)
		}
		if err != nil {
			return err
		}
		data = rest
		if b.LastOffset() < from {
			continue
		}
		var runs []checker.Run
		err = batch.Walk(b, batch.Limit{}, func(r batch.Record) error {
			producer, n, ok := workload.Decode(d.partition, r.Value)
			if !ok {
				producer = ""
			}
			runs = checker.AppendRecord(runs, r.Offset, producer, n)
			return nil
		})
		if err != nil {
			return err
		}
		if len(runs) == 0 || b.IsControl() {
			continue
		}
		runs[0].Epoch, runs[0].CRC = b.LeaderEpoch(), b.CRC()
		d.batches = append(d.batches, runs)
		d.end = b.NextOffset()
	}
	return nil
}

func (d *dumper) write(w *checker.Writer) {
	w.Dump(d.source, d.start, d.end)
	for _, runs := range d.batches {
		w.Has(d.source, runs)
	}
}

// panics are lines of processes' logs that should not be there.
func panics(s *stand.Stand) error {
	var all []string
	for _, b := range s.Brokers {
		all = append(all, b.Panics()...)
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%d bad lines in the logs:\n%s", len(all), strings.Join(all[:min(len(all), 20)], "\n"))
}
