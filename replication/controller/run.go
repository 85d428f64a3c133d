package controller

import (
	"context"
	"maps"
	"time"

	"firn/replication/meta"
)

const (
	// retryAfter is how long Run waits after an error.
	retryAfter = 200 * time.Millisecond
	// lookAgain is how long Run waits without a note before it steps all the
	// same: a refused write is tried again when nobody tells why it was refused.
	lookAgain = 10 * time.Second
	// askAgain is how long after a round of questions the next begins.
	askAgain = time.Second
	// askWait bounds a round of questions.
	askWait = 5 * time.Second
)

// asked is what replicas are asked, and have answered.
type asked struct {
	open []Question // without an answer yet
	ends map[Replica]LogEnd
	// answers brings those of the round under way; nil if there is none.
	answers chan map[Replica]LogEnd
	next    time.Time // when the next round may begin
}

// Run steps whenever something has changed, until ctx or the store's session
// ends.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		cancel(nil)
		if c.asked.answers != nil {
			<-c.asked.answers
		}
	}()
	_, lost := c.cfg.Store.Session()
	for {
		err := c.Step(ctx)
		if err == nil {
			c.ask(ctx, time.Now())
			err = c.await(ctx, c.idle(time.Now()))
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

// idle is how long to wait when there are no notes.
func (c *Controller) idle(now time.Time) time.Duration {
	wait := lookAgain
	if c.refused {
		wait = retryAfter
	}
	if !c.leads {
		return wait
	}
	for _, t := range []*timer{&c.balance, &c.trim, &c.audit} {
		wait = t.in(now, wait)
	}
	if len(c.asked.open) > 0 && c.asked.answers == nil {
		wait = min(wait, max(c.asked.next.Sub(now), 0))
	}
	return wait
}

// ask begins a round of questions, if there are any and none is under way.
func (c *Controller) ask(ctx context.Context, now time.Time) {
	if len(c.asked.open) == 0 || c.asked.answers != nil || c.cfg.Ask == nil || now.Before(c.asked.next) {
		return
	}
	answers := make(chan map[Replica]LogEnd, 1)
	c.asked.answers = answers
	questions := c.asked.open
	go func() {
		ctx, cancel := context.WithTimeout(ctx, askWait)
		defer cancel()
		answers <- c.cfg.Ask(ctx, questions)
	}()
}

// await waits for notes or answers, at most for wait, and takes them.
func (c *Controller) await(ctx context.Context, wait time.Duration) error {
	short, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case ends := <-c.asked.answers: // a nil channel never has any
			c.answered(ends)
			cancel()
		case <-short.Done():
		}
	}()
	notes, err := c.cfg.Store.Changes(short, c.after)
	over := short.Err() != nil
	cancel()
	<-done
	if err != nil && over {
		c.stands = true
		if c.refused {
			c.img = nil
		}
		return nil
	}
	return c.Notes(ctx, notes, err)
}

// answered takes the answers of a round.
func (c *Controller) answered(ends map[Replica]LogEnd) {
	all := maps.Clone(c.asked.ends)
	if all == nil {
		all = map[Replica]LogEnd{}
	}
	maps.Copy(all, ends)
	c.asked.ends, c.asked.answers, c.asked.next = all, nil, time.Now().Add(askAgain)
}
