package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"firn/replication/meta"
)

// lanes is how many commits are under way at once: each is a round trip and a
// sync of the store's log, and what they write is independent.
const lanes = 8

// carryOut writes what was decided.
func (c *Controller) carryOut(ctx context.Context, plan Plan) error {
	if err := c.change(ctx, plan); err != nil {
		return err
	}
	for _, t := range plan.Finish {
		if err := c.finish(ctx, t); err != nil {
			return err
		}
	}
	var granted []meta.Write
	for _, e := range plan.Granted {
		granted = append(granted, meta.DropElection(e).With(c.office.Fence()))
	}
	c.asked.open = plan.Ask
	if len(plan.Ask) == 0 {
		c.asked.ends = nil // what was asked is decided
	}
	return c.outcome(meta.CommitAll(ctx, c.cfg.Store, granted))
}

// change writes the states and the reassignments that end.
func (c *Controller) change(ctx context.Context, plan Plan) error {
	writes := make([]meta.Write, 0, len(plan.Changes)+len(plan.Moves))
	of := make([][]Change, 0, cap(writes)) // what each of them brings about
	for i, ch := range plan.Changes {
		w, err := meta.ChangeState(ch.StateChange)
		if err != nil {
			return err
		}
		writes, of = append(writes, w.With(c.office.Fence())), append(of, plan.Changes[i:i+1])
	}
	for _, m := range plan.Moves {
		states := make([]meta.StateChange, len(m.Ended))
		for i, ch := range m.Ended {
			states[i] = ch.StateChange
		}
		w, n, err := meta.FinishMoves(m.Topic, states)
		if err != nil {
			return err
		}
		// The others follow when the note of this one comes.
		writes, of = append(writes, w.With(c.office.Fence())), append(of, m.Ended[:n])
	}
	if len(writes) == 0 {
		return nil
	}
	begin := time.Now()
	errs := meta.CommitApart(ctx, c.cfg.Store, writes, lanes)
	told := map[Why]int{}
	for i, err := range errs {
		if err != nil {
			continue
		}
		for _, ch := range of[i] {
			told[ch.Why]++
			c.tell(ctx, ch)
		}
	}
	if err := c.outcome(errs); err != nil {
		return err
	}
	c.logChanges(told, time.Since(begin))
	return nil
}

// tell tells of a change that was committed.
func (c *Controller) tell(ctx context.Context, ch Change) {
	level := slog.LevelDebug
	if ch.Why == Furthest {
		level = slog.LevelWarn
	}
	c.log.Log(ctx, level, "partition state written", "why", string(ch.Why), "topic", ch.Topic, "partition", ch.Partition,
		"leader", ch.State.Leader.ID, "epoch", ch.State.LeaderEpoch)
	if c.cfg.Elected != nil {
		c.cfg.Elected(ch)
	}
}

func (c *Controller) logChanges(told map[Why]int, took time.Duration) {
	if len(told) == 0 {
		return
	}
	n, unclean := 0, 0
	var attrs []any
	for _, why := range []Why{Created, Elected, Preferred, Eligible, Unclean, Recovered, Furthest, Moved, Expelled, Leaderless} {
		if told[why] == 0 {
			continue
		}
		n += told[why]
		if why.Unclean() {
			unclean += told[why]
		}
		attrs = append(attrs, slog.Int(string(why), told[why]))
	}
	if unclean > 0 {
		c.log.Warn("leaders elected that may lack committed records", "partitions", unclean)
	}
	c.log.Info("partition states written", "partitions", n, "took", took, slog.Group("why", attrs...))
}

// finish finishes the deletion of a topic.
func (c *Controller) finish(ctx context.Context, t meta.Topic) error {
	writes, err := meta.FinishDelete(ctx, c.cfg.Store, t)
	if err != nil {
		return err
	}
	for i, w := range writes {
		writes[i] = w.With(c.office.Fence())
	}
	errs := meta.CommitAll(ctx, c.cfg.Store, writes)
	if err := c.outcome(errs); err != nil {
		return fmt.Errorf("controller: deleting %s: %w", t.Name, err)
	}
	if errs[len(errs)-1] == nil {
		c.log.Info("topic deleted", "topic", t.Name)
	}
	return nil
}

const (
	// trimEvery is how often old notes are removed, keepNotes how many stay for
	// brokers that are behind.
	trimEvery = 10 * time.Second
	keepNotes = 1000
	// auditEvery is how often a part of everything is read again.
	auditEvery = time.Minute
	// firstBalance is how long a new controller waits before it gives leaderships
	// back: brokers may be on their way back.
	firstBalance = 5 * time.Second
)

// keep does what keeps the store and the image in order.
func (c *Controller) keep(ctx context.Context, now time.Time) error {
	if c.trim.due(now) {
		err := c.cfg.Store.(meta.Trimming).TrimNotes(ctx, c.office.Fence(), keepNotes)
		if refused := (*meta.Conflict)(nil); errors.As(err, &refused) {
			return c.outcome([]error{err})
		}
		if err != nil {
			return fmt.Errorf("controller: removing old change notes: %w", err)
		}
	}
	if c.img != nil && c.audit.due(now) {
		n, err := c.img.Audit(ctx, c.cfg.Store)
		if err != nil {
			c.img = nil
			return err
		}
		if n > 0 {
			c.log.Debug("audit of the metadata found what no note had told yet", "topics", n)
		}
	}
	return nil
}

// timer says when something is due again.
type timer struct {
	every time.Duration // 0: never
	at    time.Time
}

func (t *timer) begin(now time.Time, after time.Duration) { t.at = now.Add(min(after, t.every)) }

// due: it is, and then not for another round.
func (t *timer) due(now time.Time) bool {
	if t.every == 0 || now.Before(t.at) {
		return false
	}
	t.at = now.Add(t.every)
	return true
}

// in is how long until it is due, at most limit.
func (t *timer) in(now time.Time, limit time.Duration) time.Duration {
	if t.every == 0 {
		return limit
	}
	return max(min(t.at.Sub(now), limit), 0)
}
