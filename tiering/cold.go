package tiering

import (
	"context"
	"errors"

	"firn/segment"
)

// Errors of reads from the archive; the broker's table maps each to a code (T7).
var (
	// ErrUnavailable: the store fails, or what we know is incomplete. Try again.
	ErrUnavailable = errors.New("tiering: archive can't be read now")
	// ErrLost: an object is missing or damaged, and the manifest, resolved anew,
	// still names it (D24).
	ErrLost = errors.New("tiering: archived data is lost or damaged")
)

// coldReader reads what is on the archive alone. There is one per Archive, for
// all partitions; it has its own pool and budget.
type coldReader interface {
	// Read answers r, whose Offset lies in [at.LogStart, at.LocalStart), from
	// the archive: as ReadResult has it, it never waits, and what must be fetched
	// first is started and announced by Pending. It ends at at.LocalStart at the
	// latest: local data is the next call's. Aborted is complete for what it returns.
	Read(s *source, r segment.ReadRequest, at segment.Offsets) (segment.ReadResult, error)
	// FirstAt finds the first record in [from, below) whose timestamp is at
	// least ts; Offset -1 if there is none. It waits for the store until ctx ends.
	FirstAt(ctx context.Context, s *source, ts, from, below int64) (segment.TimeOffset, error)
	// MaxAt finds the first record in [from, below) with the largest timestamp
	// there; Offset -1 if there is none.
	MaxAt(ctx context.Context, s *source, from, below int64) (segment.TimeOffset, error)
	// Close stops it; nothing of it runs afterwards.
	Close()
}

// source is one partition as the cold path sees it. Its address identifies
// the partition for as long as its Log is open.
type source struct {
	Part Partition
	// resolver names the bytes; it is the partition's *Log, but in tests.
	resolver
}

// resolver finds manifests and pages. No method waits: where something isn't in
// memory, it is on its way (once, whoever asks, and whether or not they wait),
// and the channel is closed when it pays to ask again. An error is ErrUnavailable
// or ErrLost, and was the answer to the last attempt; asking again starts another
// one, not before a while.
type resolver interface {
	// manifest is the one that the newest pointer known here names. Its archived
	// end is never below the local start that Log.Offsets returned before.
	manifest() (*Manifest, <-chan struct{}, error)
	// page resolves a reference that is part of m.
	page(m *Manifest, ref *PageRef) (*Page, <-chan struct{}, error)
	// reload reads the pointer anew because an object that m names is missing or
	// damaged: m is not to be trusted any more. When it is done without an error,
	// ask manifest: the same m again means that the object is lost (D24).
	reload(m *Manifest) *load
	// aborted lists the aborted transactions that overlap [first, below), as far
	// as the local log knows them.
	aborted(first, below int64) ([]segment.AbortedTxn, error)
}

// await asks until there is an answer or ctx ends.
func await[T any](ctx context.Context, try func() (T, <-chan struct{}, error)) (T, error) {
	for {
		v, pending, err := try()
		if err != nil || pending == nil {
			return v, err
		}
		select {
		case <-pending:
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
	}
}
