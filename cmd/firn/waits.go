package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// noticeEvery is how long nothing may happen before a verb says what it waits for.
const noticeEvery = 5 * time.Second

// waits says once of each partition that it has to be waited for, and when it goes
// on. The client tries for ever, and a store that hangs is no error.
type waits struct {
	out    io.Writer
	topic  string
	reason func(p int32, s *stretch, err error) string
	all    map[int32]*wait
}

// wait is a partition that is read.
type wait struct {
	at     int64     // where it was when it last moved
	since  time.Time // when that was
	err    error     // what a fetch failed of
	failed time.Time // when that was
	told   bool
}

// look takes note of where the partitions are now, and of what has failed since.
func (w *waits) look(now time.Time, parts map[int32]*stretch, failed map[int32]error) {
	if w.all == nil {
		w.all = map[int32]*wait{}
	}
	var silent, again []int32
	for _, p := range slices.Sorted(maps.Keys(parts)) {
		s, x := parts[p], w.all[p]
		if x == nil {
			x = &wait{at: s.next, since: now}
			w.all[p] = x
		}
		if err := failed[p]; err != nil {
			x.err, x.failed = err, now
		} else if now.Sub(x.failed) > noticeEvery {
			x.err = nil
		}
		switch moved := s.next > x.at; {
		case moved, s.next >= s.end && x.err == nil: // at the end there may be nothing more
			if x.told {
				again = append(again, p)
			}
			*x = wait{at: s.next, since: now, told: x.told}
		case !x.told && now.Sub(x.since) >= noticeEvery:
			x.told = true
			silent = append(silent, p)
		}
	}
	if len(silent) > 0 {
		p := silent[0]
		fmt.Fprintf(w.out, "waiting for %s-%d at offset %d%s: %s\n", w.topic, p, parts[p].next, besides(silent), w.reason(p, parts[p], w.all[p].err))
	}
	if len(again) > 0 {
		fmt.Fprintf(w.out, "%s-%d%s goes on\n", w.topic, again[0], besides(again))
	}
	for _, p := range again {
		w.all[p].told = false
	}
}

// besides counts all but the first.
func besides(ps []int32) string {
	if len(ps) == 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d more)", len(ps)-1)
}

// reason looks for why nothing comes of a partition; err is what fetches fail of, if
// they do.
func reason(ctx context.Context, cl *kgo.Client, topic string, p int32, s *stretch, err error) string {
	ctx, cancel := context.WithTimeout(ctx, noticeEvery)
	defer cancel()
	a := kadm.NewClient(cl)
	ts, lost := a.ListTopicsWithInternal(ctx, topic)
	if lost != nil {
		return "no broker answers: " + ourWords(lost).Error()
	}
	d := ts[topic].Partitions[p]
	if d.Leader < 0 {
		return fmt.Sprintf("it has no leader; its replicas are on brokers %v (`firn cluster health` tells more)", d.Replicas)
	}
	l, lost := a.ListEndOffsets(ctx, topic)
	if _, lost = lacking(l, lost, topic, []int32{p}); lost != nil {
		return fmt.Sprintf("its leader, broker %d, does not answer: %v", d.Leader, ourWords(lost))
	}
	switch {
	case s.next < s.local:
		return fmt.Sprintf("these records are in the archive, which its leader, broker %d, can't read now (`firn cluster health` tells more)", d.Leader)
	case err != nil:
		return fmt.Sprintf("its leader, broker %d, answers %v", d.Leader, ourWords(err))
	}
	return fmt.Sprintf("its leader, broker %d, sends nothing", d.Leader)
}
