package broker

import (
	"context"
	"errors"

	"firn/replication/meta"
	"firn/tiering"
)

// Pointers keeps the archive's pointers in the metadata store, and is the fence
// against a leader of the past (D2). It is exported for the simulation, which is
// to run this code and not a copy.
type Pointers struct {
	Store meta.Store
	// Self is the registration under which this broker leads, nil for none.
	Self func() *meta.Registration
}

var _ tiering.Pointers = Pointers{}

// LoadPointer reads a partition's pointer.
func (s Pointers) LoadPointer(ctx context.Context, p tiering.Partition) (tiering.Pointer, error) {
	ptr, ok, err := meta.LoadPointer(ctx, s.Store, meta.TopicID(p.ID), p.Num)
	if err != nil {
		return tiering.Pointer{}, err
	}
	if !ok {
		return tiering.Pointer{Version: tiering.NoPointer, LastEpoch: -1}, nil
	}
	return tiering.Pointer{
		ManifestKey: ptr.ManifestKey, ManifestSize: ptr.ManifestSize, ManifestCRC: ptr.ManifestCRC, Sequence: ptr.Sequence,
		LastEpoch: ptr.LastEpoch, LogStart: ptr.LogStart, ArchivedEnd: ptr.ArchivedEnd, Version: ptr.Version,
	}, nil
}

// swapTries bounds how often a swap begins anew because the partition's state
// has changed under the same leader.
const swapTries = 10

// SwapPointer moves a pointer, fenced by the state under which this broker leads
// (D2). The state is read from the store: the picture may be older than the
// leadership, which begins before it is published.
func (s Pointers) SwapPointer(ctx context.Context, p tiering.Partition, epoch int32, next tiering.Pointer) (tiering.Pointer, error) {
	self := s.Self()
	if self == nil {
		return next, tiering.ErrFenced
	}
	id := meta.TopicID(p.ID)
	move := meta.PointerMove{Topic: p.Topic, ID: id, Partition: p.Num, Self: *self, Pointer: meta.Pointer{
		ManifestKey: next.ManifestKey, ManifestSize: next.ManifestSize, ManifestCRC: next.ManifestCRC, Sequence: next.Sequence,
		LastEpoch: next.LastEpoch, LogStart: next.LogStart, ArchivedEnd: next.ArchivedEnd, Version: next.Version,
	}}
	if !next.Exists() {
		move.Pointer.Version = meta.Missing
	}
	for range swapTries {
		state, err := meta.LoadState(ctx, s.Store, p.Topic, p.Num)
		if err != nil {
			return next, err
		}
		if state.LeaderEpoch != epoch || state.Leader != self.Member() {
			return next, tiering.ErrFenced
		}
		move.StateVersion = state.Version
		err = meta.MovePointer(move).Commit(ctx, s.Store)
		refused := (*meta.Conflict)(nil)
		switch {
		case err == nil:
			next.Version++ // NoPointer + 1 is 0
			return next, nil
		case !errors.As(err, &refused):
			return next, err
		case refused.Op.Path == meta.PointerPath(id, p.Num):
			return next, tiering.ErrMoved
		case refused.Op.Path != meta.StatePath(p.Topic, p.Num):
			return next, tiering.ErrFenced // our registration, or the topic
		}
	}
	return next, tiering.ErrFenced
}
