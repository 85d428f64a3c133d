package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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
	// Known offers the picture that this broker keeps of the cluster anyway, a copy;
	// false, or Known nil: there is none. A new controller goes on from it rather
	// than reading everything.
	Known func() (meta.View, bool)
	// Ask finds out where replicas end, as far as they answer in time; nil means
	// that none does. It is called from one goroutine at a time.
	Ask func(context.Context, []Question) map[Replica]LogEnd
	// BalanceEvery is how often it is looked whether leaderships are to be given
	// back, 0 for never; Balance says when they are.
	BalanceEvery time.Duration
	Balance      Balance
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
	// stands: it is to campaign, for the office may be vacant.
	stands bool
	img    *meta.Image // nil: everything is to be read
	after  int64       // the last note that img knows
	// fresh: the office is new, so that what this broker knows will do.
	fresh bool
	// refused: a write was, so that img is behind. The note that says why is
	// there, or on its way; if none comes, everything is read again.
	refused bool

	balance, trim, audit timer
	asked                asked
}

// New makes a Controller, which does nothing until Step or Run.
func New(cfg Config) *Controller {
	c := &Controller{cfg: cfg, log: cfg.Log, stands: true}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.balance.every, c.trim.every, c.audit.every = cfg.BalanceEvery, trimEvery, auditEvery
	if _, ok := cfg.Store.(meta.Trimming); !ok {
		c.trim.every = 0
	}
	return c
}

// Step does what is due: campaign, read everything, or decide and write. It
// waits for nothing but the store, and changes nothing when all is as it should be.
func (c *Controller) Step(ctx context.Context) error {
	now := time.Now()
	if !c.leads && c.stands {
		if err := c.campaign(ctx, now); err != nil {
			return err
		}
	}
	if !c.leads {
		return nil
	}
	if c.img == nil {
		if err := c.look(ctx); err != nil {
			return err
		}
	}
	s := Snapshot{Image: c.img, Epoch: c.office.Epoch, Rules: c.cfg.Rules, Ends: c.asked.ends}
	if c.balance.due(now) {
		s.Balance = &c.cfg.Balance
	}
	if err := c.carryOut(ctx, Decide(s)); err != nil || !c.leads {
		return err
	}
	return c.keep(ctx, now)
}

// campaign tries to become controller. That somebody else is is no error.
func (c *Controller) campaign(ctx context.Context, now time.Time) error {
	office, err := meta.Campaign(ctx, c.cfg.Store, c.cfg.Self)
	if errors.Is(err, meta.ErrNotController) {
		c.stands = false
		return nil
	}
	if err != nil {
		return err
	}
	c.office, c.leads, c.img, c.asked.ends, c.fresh = office, true, nil, nil, true
	c.balance.begin(now, firstBalance)
	c.trim.begin(now, 0)
	c.audit.begin(now, auditEvery)
	c.log.Info("controller elected", "broker", c.cfg.Self.ID, "epoch", office.Epoch)
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
			c.leads, c.stands, c.img = false, true, nil
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
		c.img, c.after, c.stands = nil, gap.Last, true
		return nil
	case err != nil:
		return err
	case len(notes) == 0:
		return nil
	}
	c.after, c.refused = notes[len(notes)-1].Number, false
	c.stands = c.stands || slices.ContainsFunc(notes, func(n meta.Note) bool { return n.Brokers })
	if c.img == nil {
		return nil
	}
	if err := c.img.Update(ctx, c.cfg.Store, notes); err != nil {
		c.img = nil
		return err
	}
	return nil
}
