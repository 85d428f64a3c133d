package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firn/broker/group"
	"firn/replication"
	"firn/segment"
	"firn/segment/batch"
)

// groupBatchBytes is about how large a batch of records becomes: below every
// sensible max.message.bytes.
const groupBatchBytes = 256 << 10

// groupBatches puts records into batches.
func groupBatches(records []group.Record, now int64) ([]byte, error) {
	var all []byte
	for len(records) > 0 {
		b := batch.NewBuilder(batch.Spec{})
		n := 0
		for n < len(records) && (n == 0 || b.Size()+len(records[n].Key)+len(records[n].Value) < groupBatchBytes) {
			b.Add(now, records[n].Key, records[n].Value)
			n++
		}
		one, err := b.Build()
		if err != nil {
			return nil, err
		}
		if n == len(records) && all == nil {
			return one, nil
		}
		all = append(all, one...)
		records = records[n:]
	}
	return all, nil
}

const (
	// loadBytes is how much of the log is read at once.
	loadBytes = 1 << 20
	// loadRetry is how long a load that failed waits for its next try.
	loadRetry = time.Second
)

// load makes the shard active once all of the partition is read; it is tried
// again until it succeeds or the leadership ends.
func (s *shard) load(ctx context.Context) {
	for ctx.Err() == nil && s.leads() {
		began := time.Now()
		groups, n, err := s.read(ctx)
		if err == nil {
			s.activate(groups)
			if n > 0 {
				s.c.log.Info("groups loaded", "partition", s.index, "epoch", s.epoch, "groups", len(groups), "records", n, "seconds", time.Since(began).Seconds())
			}
			return
		}
		if ctx.Err() == nil && s.leads() {
			s.c.log.Warn("groups can't be loaded; will retry", "partition", s.index, "epoch", s.epoch, "err", err)
			sleep(ctx, loadRetry)
		}
	}
	s.unload()
}

func (s *shard) activate(groups map[string]*group.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.state != shardLoading {
		return
	}
	for _, g := range groups {
		s.c.timers.schedule(s.hostLocked(g))
	}
	s.mu.state = shardActive
	close(s.ready)
}

// read takes every record up to where the log ended when it began, as soon as
// they are committed: what isn't yet, may still go (F2).
func (s *shard) read(ctx context.Context) (map[string]*group.Group, int, error) {
	view := replication.View{Epoch: s.epoch}
	o, err := s.part.Offsets(view)
	if err != nil {
		return nil, 0, err
	}
	end := o.End
	w := replication.NewWaiter()
	defer w.Reset(0)
	l := loading{into: group.NewLoader(&s.c.config)}
	for at := o.LogStart; at < end; {
		w.Reset(0)
		w.Add(s.part, at, segment.UntilHighWatermark)
		res, err := s.part.Read(segment.ReadRequest{Offset: at, MaxBytes: loadBytes, MinOne: true}, view)
		if err != nil {
			return nil, 0, err
		}
		next, err := l.take(&res.Records, at)
		if err != nil {
			return nil, 0, err
		}
		if next > at {
			at = next
			continue
		}
		if res.Offsets.HighWatermark >= end {
			break // nothing more comes, whatever lies in between (E12)
		}
		select {
		case <-w.C():
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
	if l.bad > 0 {
		s.c.log.Warn("records of groups that can't be read were left out", "partition", s.index, "records", l.bad, "err", l.err)
	}
	return l.into.Groups(s.c.now()), l.records, nil
}

// loading reads batches into groups. What can't be read is counted and left out.
type loading struct {
	into    *group.Loader
	buf     []byte
	records int
	bad     int
	err     error // of the first that was bad
}

// take reads records, and returns the offset after them.
func (l *loading) take(r *segment.Records, at int64) (next int64, err error) {
	defer r.Release()
	if l.buf, err = r.AppendTo(l.buf[:0]); err != nil {
		return 0, fmt.Errorf("broker: read of groups: %w", err)
	}
	next = at
	for rest := l.buf; len(rest) > 0; {
		b, more, err := batch.Next(rest)
		if errors.Is(err, batch.ErrShort) {
			break // the last one is cut off: it comes whole next time
		}
		if err != nil {
			return 0, fmt.Errorf("broker: groups from offset %d on: %w", next, err)
		}
		rest = more
		if b.NextOffset() <= at {
			continue
		}
		next = max(next, b.NextOffset())
		if b.IsControl() {
			continue
		}
		if err := batch.Walk(b, batch.Limit{}, l.record); err != nil {
			l.spoilt(err)
		}
	}
	return next, nil
}

func (l *loading) record(r batch.Record) error {
	l.records++
	switch e, err := group.Decode(r.Key, r.Value); {
	case err == nil:
		l.into.Take(e)
	case !errors.Is(err, group.ErrForeign):
		l.spoilt(err)
	}
	return nil
}

func (l *loading) spoilt(err error) {
	l.bad++
	if l.err == nil {
		l.err = err
	}
}
