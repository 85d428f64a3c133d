package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
)

// place is where a record lies.
type place struct {
	partition int32
	offset    int64
}

// load is producers that write unique values, each its own numbers in order,
// through whatever happens to the broker: idempotent, acks=all, retried until
// answered. What was acknowledged is compared with what is read.
type load struct {
	t     testing.TB
	addr  string
	topic string
	stop  context.CancelFunc
	wg    sync.WaitGroup
	acks  atomic.Int64

	mu struct {
		sync.Mutex
		acked map[place]string
		errs  []error
	}
}

// loadShape says how a load writes. The zero value writes little.
type loadShape struct {
	name       string // of its producers
	producers  int    // 0 is 3
	partitions int    // 0 is 2; producer p writes to partition p modulo that
	valueBytes int    // 0 is 500
	burst      int    // records at once, 0 is 8
	batchBytes int    // 0 is 16 KiB
	limit      int    // records of each producer, 0 is no limit
	pause      time.Duration
}

func (s loadShape) withDefaults() loadShape {
	for _, d := range []struct {
		field *int
		value int
	}{{&s.producers, 3}, {&s.partitions, 2}, {&s.valueBytes, 500}, {&s.burst, 8}, {&s.batchBytes, 16 << 10}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if s.pause == 0 {
		s.pause = 10 * time.Millisecond
	}
	return s
}

// startLoad starts producers, which go on until finish.
func startLoad(t testing.TB, addr, topic string, s loadShape) *load {
	t.Helper()
	s = s.withDefaults()
	l := &load{t: t, addr: addr, topic: topic}
	l.mu.acked = map[place]string{}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for p := range s.producers {
		cl := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.MaxBufferedRecords(maxUnanswered), kgo.ProducerLinger(0), kgo.MetadataMinAge(50*time.Millisecond),
			kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(int32(s.batchBytes)))
		l.wg.Go(func() {
			defer cl.Close()
			l.produce(ctx, cl, p, int32(p%s.partitions), s)
		})
	}
	t.Cleanup(func() { stop(); l.wg.Wait() })
	return l
}

// maxUnanswered is how far ahead of the broker a producer writes.
const maxUnanswered = 256

// flushTime bounds how long a stopped producer waits for its last answers.
const flushTime = 90 * time.Second

func (l *load) produce(ctx context.Context, cl *kgo.Client, producer int, partition int32, s loadShape) {
	pad := strings.Repeat("x", s.valueBytes)
	slots := make(chan struct{}, maxUnanswered)
	tick := time.NewTicker(s.pause)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil && (s.limit == 0 || n < s.limit); {
		for range s.burst {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				continue
			}
			value := fmt.Sprintf("%s%d/%d/", s.name, producer, n)
			n++
			// The record outlives ctx: it is to be answered, whatever happens.
			cl.Produce(context.Background(), &kgo.Record{Partition: partition, Value: []byte(value + pad[min(len(pad), len(value)):])},
				func(r *kgo.Record, err error) { l.note(value, r, err); <-slots })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	fctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := cl.Flush(fctx); err != nil {
		l.fail(fmt.Errorf("producer %d gets no answer: %w", producer, err))
	}
}

func (l *load) note(value string, r *kgo.Record, err error) {
	if err != nil {
		l.fail(fmt.Errorf("%s: %w", value, err))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := place{r.Partition, r.Offset}
	if other, ok := l.mu.acked[at]; ok {
		l.mu.errs = append(l.mu.errs, fmt.Errorf("%s and %s were both acknowledged at %v", other, value, at))
	}
	l.mu.acked[at] = value
	l.acks.Add(1)
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.errs = append(l.mu.errs, err)
}

// more waits until so many more records are acknowledged.
func (l *load) more(n int64) {
	l.t.Helper()
	limit := time.Now().Add(flushTime)
	for want := l.acks.Load() + n; l.acks.Load() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			l.t.Fatalf("only %d of %d records acknowledged after %v", l.acks.Load()-want+n, n, flushTime)
		}
	}
}

// finish ends the producers; every record has been acknowledged then.
func (l *load) finish() {
	l.t.Helper()
	l.stop()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.errs) > 0 {
		l.t.Fatalf("%d producer errors, the first: %v", len(l.mu.errs), l.mu.errs[0])
	}
}

// check reads the topic from its start: what was acknowledged is there, at its
// offset and once, and each producer's numbers rise by one.
func (l *load) check() {
	l.t.Helper()
	got := l.compare()
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, value := range l.mu.acked {
		p := got[at.partition]
		if at.offset >= p.end() {
			l.t.Fatalf("%s was acknowledged at %v; partition %d ends at %d", value, at, at.partition, p.end())
		}
	}
}

// compare is check, but that the end of partitions may be missing.
func (l *load) compare() map[int32]contents {
	l.t.Helper()
	got := readAll(l.t, l.addr, l.topic)
	l.mu.Lock()
	defer l.mu.Unlock()
	last := map[string]int{}
	for part, p := range got {
		for i, value := range p.values {
			at := place{part, p.start + int64(i)}
			if want, ok := l.mu.acked[at]; !ok || want != value {
				l.t.Fatalf("%v holds %q; acknowledged there: %q", at, value, want)
			}
			producer, number, _ := strings.Cut(strings.TrimSuffix(value, "/"), "/")
			n, err := strconv.Atoi(number)
			if err != nil {
				l.t.Fatalf("%v holds %q", at, value)
			}
			if before, ok := last[producer]; ok && n != before+1 || !ok && p.start == 0 && n != 0 {
				l.t.Fatalf("%v: producer %s number %d after %d", at, producer, n, before)
			}
			last[producer] = n
		}
	}
	return got
}

// goOn is another load on the topic, or on what has become of it below the given
// ends, with producers of another name.
func (l *load) goOn(addr, name string, ends map[int32]contents) *load {
	l.t.Helper()
	next := startLoad(l.t, addr, l.topic, loadShape{name: name})
	next.mu.Lock()
	defer next.mu.Unlock()
	for at, value := range l.mu.acked {
		if ends == nil || at.offset < ends[at.partition].end() {
			next.mu.acked[at] = value
		}
	}
	return next
}

// ledByAnother: who was asked doesn't lead, or no longer in that epoch; the client asks
// who does.
func ledByAnother(err error) bool {
	return errors.Is(err, kerr.NotLeaderForPartition) || errors.Is(err, kerr.FencedLeaderEpoch) || errors.Is(err, kerr.UnknownLeaderEpoch)
}

// contents is what a partition holds: values without their padding, from its start.
type contents struct {
	start  int64
	values []string
}

func (c contents) end() int64 { return c.start + int64(len(c.values)) }

// ended is how many records a topic has ever had.
func ended(t testing.TB, addr, topic string) (n int64) {
	t.Helper()
	a := newAdmin(t, addr)
	defer a.Close()
	ends, err := a.ListEndOffsets(t.Context(), topic)
	if err != nil || ends.Error() != nil {
		t.Fatal(err, ends.Error())
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// readAll reads a topic from its log start to its end.
func readAll(t testing.TB, addr, topic string) map[int32]contents {
	t.Helper()
	a := newAdmin(t, addr)
	defer a.Close()
	var starts, ends kadm.ListedOffsets
	var err error
	harness.Eventually(t, time.Minute, "the offsets of "+topic+" are told", func() bool { // a leader may be being elected
		var err1, err2 error
		starts, err1 = a.ListStartOffsets(t.Context(), topic)
		ends, err2 = a.ListEndOffsets(t.Context(), topic)
		err = errors.Join(err1, err2, starts.Error(), ends.Error())
		return err == nil
	}, func() string { return fmt.Sprint(" ", err) })
	got, from, open := map[int32]contents{}, map[int32]kgo.Offset{}, map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(topic, end.Partition)
		got[end.Partition] = contents{start: start.Offset}
		if start.Offset < end.Offset {
			from[end.Partition], open[end.Partition] = kgo.NewOffset().At(start.Offset), end.Offset
		}
	})
	if len(open) == 0 {
		return got
	}
	rd := newClient(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.KeepRetryableFetchErrors(), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer rd.Close()
	ctx, cancel := context.WithTimeout(t.Context(), flushTime)
	defer cancel()
	for len(open) > 0 {
		fs := rd.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("reading stands still; partitions and where they end: %v", open)
		}
		for _, e := range fs.Errors() {
			if !ledByAnother(e.Err) {
				t.Fatalf("reading partition %d: %v", e.Partition, e.Err)
			}
		}
		fs.EachRecord(func(r *kgo.Record) {
			p := got[r.Partition]
			if next := p.start + int64(len(p.values)); r.Offset != next {
				t.Fatalf("partition %d: offset %d where %d is due", r.Partition, r.Offset, next)
			}
			p.values = append(p.values, strings.TrimRight(string(r.Value), "x"))
			got[r.Partition] = p
			if r.Offset+1 >= open[r.Partition] {
				delete(open, r.Partition)
			}
		})
	}
	return got
}
