package controller

import (
	"context"
	"errors"
	"time"

	"firn/replication/meta"
)

// look gets a picture of the cluster: at the beginning of an office the one that
// this broker has, if it can be brought up to now, else by reading everything.
func (c *Controller) look(ctx context.Context) error {
	begin, how := time.Now(), "taken over"
	fresh := c.fresh
	c.fresh = false
	var v meta.View
	ok := false
	if fresh {
		var err error
		if v, ok, err = c.inherit(ctx); err != nil {
			return err
		}
	}
	if !ok {
		how = "read"
		var err error
		if v.Image, v.After, err = meta.Begin(ctx, c.cfg.Store); err != nil {
			return err
		}
	}
	c.img, c.after, c.refused = v.Image, v.After, false
	c.log.Info("controller has the cluster's metadata", "how", how, "topics", len(c.img.Topics), "took", time.Since(begin))
	return nil
}

// inherit brings what this broker knows up to what stands now. It asks how far the
// notes go after the office was won, and wants each up to there, without a gap, in
// one and the same session (Z1). What comes later comes as to any controller.
func (c *Controller) inherit(ctx context.Context) (v meta.View, ok bool, err error) {
	store, can := c.cfg.Store.(meta.Current)
	if !can || c.cfg.Known == nil {
		return v, false, nil
	}
	session, lost := store.Session()
	newest, err := store.Newest(ctx)
	if err != nil {
		return v, false, err
	}
	if v, ok = c.cfg.Known(); !ok || v.Session != session {
		return v, false, nil
	}
	for v.After < newest {
		notes, err := store.Changes(ctx, v.After)
		if gap := (*meta.ErrGap)(nil); errors.As(err, &gap) {
			return v, false, nil
		}
		if err == nil {
			err = v.Image.Update(ctx, store, notes)
		}
		if err != nil {
			return v, false, err
		}
		v.After = notes[len(notes)-1].Number
	}
	// That brokers have gone no note need have told.
	if err := v.Image.Update(ctx, store, []meta.Note{{Brokers: true}}); err != nil {
		return v, false, err
	}
	select {
	case <-lost:
		return v, false, nil
	default:
		return v, true, nil
	}
}
