package replication

import "errors"

// Errors that callers branch on; broker's table maps each to a Kafka code.
var (
	// ErrNotLeader: this replica doesn't lead the partition, or no longer in the
	// epoch that the caller relies on.
	ErrNotLeader = errors.New("replication: not the leader")
	// ErrFencedEpoch: the caller knows an older leader epoch than this replica (R2).
	ErrFencedEpoch = errors.New("replication: leader epoch is older than ours")
	// ErrUnknownEpoch: the caller knows a newer one.
	ErrUnknownEpoch = errors.New("replication: leader epoch is newer than ours")
	// ErrNotEnoughReplicas: the ISR is too small for acks=all; nothing was appended.
	ErrNotEnoughReplicas = errors.New("replication: fewer in sync than min.insync.replicas")
	// ErrNotEnoughReplicasAfterAppend: the ISR became too small between append
	// and ack; the records are there, and may or may not stay.
	ErrNotEnoughReplicasAfterAppend = errors.New("replication: fewer in sync than min.insync.replicas after the append")
	// ErrOffsetNotAvailable: a new leader's high watermark has not reached the
	// start of its epoch yet, so it may be behind one that clients have seen.
	ErrOffsetNotAvailable = errors.New("replication: high watermark below the start of the leader epoch")
	// ErrMovedToArchive: a replica has asked for what its leader has only in the
	// archive. It starts again at the archived end.
	ErrMovedToArchive = errors.New("replication: the records are in the archive alone")
)
