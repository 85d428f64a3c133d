package meta

import (
	"context"
	"errors"
)

// RenewLease writes to the broker's own node, under its registration, and returns
// when that is committed: at that moment nobody could have been elected in its
// place. It is no note's business.
func RenewLease(ctx context.Context, s Store, self Registration) error {
	write := func(o Op) error {
		o.Path, o.Value = leasePath(self.ID), encode(leaseJSON{1, self.Epoch})
		return Write{Checks: self.Fence(), Ops: []Op{o}}.Commit(ctx, s)
	}
	err := write(Op{Kind: Set, Version: AnyVersion})
	missing := (*Conflict)(nil)
	if errors.As(err, &missing) && missing.Op.Path == leasePath(self.ID) { // the first of a session
		return write(Op{Kind: CreateEphemeral})
	}
	return err
}

type leaseJSON struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"broker_epoch"`
}
