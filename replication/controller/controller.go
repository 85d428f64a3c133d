package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"firn/replication/meta"
)

// Config sets up a Controller.
type Config struct {
	Store meta.Store
	// Self is the registration under which this broker campaigns. It ends with
	// the store's session; so does the Controller.
	Self meta.Registration
	// Rules are a topic's rules for elections; nil means those of its own
	// configs alone, with Kafka's defaults.
	Rules func(*meta.TopicImage) Rules
	// Log is the logger; nil discards.
	Log *slog.Logger
	// Elected, if set, is told of each change that was committed, for metrics.
	Elected func(Change)
}

// Controller is the loop around Decide. It is used by one goroutine.
type Controller struct {
	cfg Config
	log *slog.Logger

	office meta.Controllership
	leads  bool
	img    *meta.Image // nil: everything is to be read
	after  int64       // the last note that img knows
	// refused: a write was, so that img is behind. The note that says why is
	// there, or on its way; if none comes, everything is read again.
	refused bool
}

// New makes a Controller, which does nothing until Step or Run.
func New(cfg Config) *Controller {
	c := &Controller{cfg: cfg, log: cfg.Log}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Leads: this broker is the controller, as far as it knows.
func (c *Controller) Leads() bool { return c.leads }

// Step does what is due: campaign, read everything, or decide and write. It
// waits for nothing but the store, and changes nothing when all is as it should be.
func (c *Controller) Step(ctx context.Context) error {
	if !c.leads {
		if err := c.campaign(ctx); err != nil || !c.leads {
			return err
		}
	}
	if c.img == nil {
		img, after, err := meta.Begin(ctx, c.cfg.Store)
		if err != nil {
			return err
		}
		c.img, c.after, c.refused = img, after, false
	}
	plan := Decide(Snapshot{Image: c.img, Epoch: c.office.Epoch, Rules: c.cfg.Rules})
	if err := c.change(ctx, plan.Changes); err != nil {
		return err
	}
	for _, t := range plan.Finish {
		if err := c.finish(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// campaign tries to become controller. That somebody else is is no error.
func (c *Controller) campaign(ctx context.Context) error {
	office, err := meta.Campaign(ctx, c.cfg.Store, c.cfg.Self)
	if errors.Is(err, meta.ErrNotController) {
		return nil
	}
	if err != nil {
		return err
	}
	c.office, c.leads, c.img = office, true, nil
	c.log.Info("controller elected", "broker", c.cfg.Self.ID, "epoch", office.Epoch)
	return nil
}

// change writes changes of state.
func (c *Controller) change(ctx context.Context, changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	writes := make([]meta.Write, len(changes))
	for i, ch := range changes {
		w, err := meta.ChangeState(ch.StateChange)
		if err != nil {
			return err
		}
		writes[i] = w.With(c.office.Fence())
	}
	begin := time.Now()
	errs := meta.CommitAll(ctx, c.cfg.Store, writes)
	unclean := 0
	for i, ch := range changes {
		if errs[i] != nil {
			continue
		}
		if ch.Why.Unclean() {
			unclean++
			c.log.Debug("unclean leader elected", "topic", ch.Topic, "partition", ch.Partition,
				"broker", ch.State.Leader.ID, "epoch", ch.State.LeaderEpoch)
		}
		if c.cfg.Elected != nil {
			c.cfg.Elected(ch)
		}
	}
	if unclean > 0 {
		c.log.Warn("leaders elected that may lack committed records", "partitions", unclean)
	}
	if err := c.outcome(errs); err != nil {
		return err
	}
	c.log.Info("partition states written", "partitions", len(changes), "took", time.Since(begin))
	return nil
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

// outcome judges how writes went. One that was refused because what it rests on
// has changed is no error. A refusal by the fence ends the office. An unknown
// outcome is settled by reading everything again (Z3).
func (c *Controller) outcome(errs []error) error {
	fence := c.office.Fence()
	for _, err := range errs {
		refused := (*meta.Conflict)(nil)
		switch {
		case err == nil:
		case !errors.As(err, &refused):
			c.img = nil
			return err
		case refused.Op.Path == fence.Path:
			c.leads, c.img = false, nil
			c.log.Warn("another broker has become controller", "epoch", c.office.Epoch)
			return nil
		default:
			c.refused = true
		}
	}
	return nil
}

// Notes takes what the store's Changes has answered, so that the next Step
// decides on it. An error other than a gap is returned.
func (c *Controller) Notes(ctx context.Context, notes []meta.Note, err error) error {
	gap := (*meta.ErrGap)(nil)
	switch {
	case errors.As(err, &gap):
		c.img, c.after = nil, gap.Last
		return nil
	case err != nil:
		return err
	case len(notes) == 0:
		return nil
	}
	c.after, c.refused = notes[len(notes)-1].Number, false
	if c.img == nil {
		return nil
	}
	if err := c.img.Update(ctx, c.cfg.Store, notes); err != nil {
		c.img = nil
		return err
	}
	return nil
}

const (
	// retryAfter is how long Run waits after an error.
	retryAfter = 200 * time.Millisecond
	// lookAgain is how long Run waits without a note before it steps all the
	// same: a refused write is tried again when nobody tells why it was refused.
	lookAgain = 10 * time.Second
)

// Run steps whenever something has changed, until ctx or the store's session
// ends.
func (c *Controller) Run(ctx context.Context) error {
	_, lost := c.cfg.Store.Session()
	for {
		err := c.Step(ctx)
		wait := lookAgain
		if c.refused {
			wait = retryAfter
		}
		if err == nil {
			err = c.await(ctx, wait)
		}
		if err != nil {
			if ctx.Err() == nil {
				c.log.Warn("controller failed; will retry", "err", err)
			}
			select {
			case <-time.After(retryAfter):
			case <-lost:
			case <-ctx.Done():
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-lost:
			return meta.ErrClosed
		default:
		}
	}
}

// await waits for notes, at most for wait, and takes them.
func (c *Controller) await(ctx context.Context, wait time.Duration) error {
	short, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	notes, err := c.cfg.Store.Changes(short, c.after)
	if err != nil && short.Err() != nil {
		if c.refused {
			c.img = nil
		}
		return nil
	}
	return c.Notes(ctx, notes, err)
}
