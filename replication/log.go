package replication

import (
	"context"

	"firn/segment"
)

// Log is what replication needs of a partition's log. *segment.Log is one, and
// so is *tiering.Log, which keeps the old part in an object store: replication
// and clients can't tell the two apart.
type Log interface {
	Appender
	Reader
	Lookup
	Positions
	Leading
	Following
}

// Appender writes. No method waits for replicas.
type Appender interface {
	// Append appends the batches in b as the leader of o.Epoch. It verifies
	// them (T5's twin for clients), stamps base offsets, epoch and, under
	// LogAppendTime, timestamps into b in place, and writes b with one write.
	// b is not kept. All of b is appended or nothing.
	Append(b []byte, o segment.AppendOptions) (segment.Appended, error)
	// AppendReplica appends batches as their leader sent them: offsets and
	// epochs are kept, and must go on where the log ends.
	AppendReplica(b []byte) (segment.Appended, error)
	// TruncateTo cuts the log so that it ends at end (R5: found by epoch).
	TruncateTo(end int64) error
}

// Reader reads.
type Reader interface {
	// Read never waits for the network: what must come from the archive is
	// started, and announced by ReadResult.Pending.
	Read(r segment.ReadRequest) (segment.ReadResult, error)
}

// Lookup finds offsets. The lookups by time may read the archive, until ctx ends.
type Lookup interface {
	// OffsetForTime finds the first record from the log start on, below the
	// end that until names, whose timestamp is at least ts (Unix milliseconds).
	OffsetForTime(ctx context.Context, ts int64, until segment.Until) (segment.TimeOffset, error)
	// OffsetOfMaxTime finds the first record with the largest timestamp (ListOffsets −3).
	OffsetOfMaxTime(ctx context.Context, until segment.Until) (segment.TimeOffset, error)
	// EpochEnd answers OffsetForLeaderEpoch from the whole epoch chain (KIP-279).
	EpochEnd(epoch int32) segment.EpochEnd
	// EpochAt is the leader epoch of the record at offset; -1 if unknown.
	EpochAt(offset int64) int32
	// LatestEpoch is the last epoch of the chain, -1 for none.
	LatestEpoch() int32
}

// Positions are the log's offsets and who moves them.
type Positions interface {
	Offsets() segment.Offsets
	// SetHighWatermark moves the high watermark up to at most the counted
	// offset; it never goes back, but by TruncateTo.
	SetHighWatermark(hw int64)
	// SetLogStart moves the log start up (DeleteRecords, retention), durably
	// before it returns; with an archive, in the pointer first (T4). It is an
	// error to pass the high watermark: ErrOffsetOutOfRange.
	SetLogStart(ctx context.Context, offset int64) error
	// OnCounted sets what is called after Counted has moved by itself, because
	// a flush completed that was due (S6), which nobody has to ask for, and after
	// the log has failed; not after an append that moved it. The call comes without the log's lock, so f may use the
	// log. It is set once, before the first append.
	OnCounted(f func())
	// Err is why nothing more will ever be counted (S4, S5), nil while all is well.
	Err() error
}

// Leading is the change of roles.
type Leading interface {
	// Lead makes ready to lead in epoch: checks the log against the archive
	// (T8; the one thing that may wait for the store), then notes the epoch's
	// start, written even if no record follows.
	Lead(ctx context.Context, epoch int32) error
	// StopLeading ends what only a leader does (uploads, retention).
	StopLeading()
	// RestartAtArchivedEnd drops the local log and starts it again at the
	// archived end, with epochs and producer state from the archive. A plain
	// log answers segment.ErrNotArchived.
	RestartAtArchivedEnd(ctx context.Context) error
}

// Following is what only a replica asks for that follows.
type Following interface {
	// BeginAt drops the local log and starts it again, empty, at offset: there
	// its leader's log begins, and what was here lies before that. A log of which
	// some is archived refuses: see RestartAtArchivedEnd.
	BeginAt(offset int64) error
}
