package checker

// Kind is a way in which a log breaks its promise.
type Kind string

// The kinds of anomalies.
const (
	// Writes.
	Lost       Kind = "lost"        // acknowledged and not there in the end
	Duplicate  Kind = "duplicate"   // an idempotent producer's record is there twice
	Reordered  Kind = "reordered"   // an idempotent producer's records changed places
	RealTime   Kind = "real-time"   // acknowledged before another was sent, and behind it
	FailedSeen Kind = "failed-seen" // what certainly failed is there
	Phantom    Kind = "phantom"     // what nobody wrote is there
	Garbled    Kind = "garbled"     // a record is damaged, or of another partition
	TwoValues  Kind = "two-values"  // an offset had two values

	// Readers.
	ReadOrder  Kind = "read-order"  // one answer's offsets do not rise
	ReadBack   Kind = "read-back"   // a reader was sent back
	ReadSkip   Kind = "read-skip"   // a reader missed records
	Vanished   Kind = "vanished"    // what was read is gone in the end
	FalseRange Kind = "false-range" // told out of range within the log

	// Offsets.
	LatestBack   Kind = "latest-back"   // the end went back
	LatestBehind Kind = "latest-behind" // the end lies before what was acknowledged
	StartBack    Kind = "start-back"    // the start went back
	StartJump    Kind = "start-jump"    // the start moved further than anybody asked
	ArchiveBack  Kind = "archive-back"  // the archived end went back
	CommitBack   Kind = "commit-back"   // a committed offset went back
	CommitWrong  Kind = "commit-wrong"  // a committed offset that nobody committed
	EpochBack    Kind = "epoch-back"    // a broker's view of the leader epoch went back
	TwoLeaders   Kind = "two-leaders"   // two leaders of one epoch

	// What is left in the end.
	Hole         Kind = "hole"          // a dump lacks offsets within its bounds
	Behind       Kind = "behind"        // a replica lacks the end of the log
	Unreachable  Kind = "unreachable"   // what a replica lacks in front, the archive lacks too
	ArchiveAhead Kind = "archive-ahead" // the archive has what the log does not
	Divergence   Kind = "divergence"    // two copies of a batch differ
	EpochOrder   Kind = "epoch-order"   // leader epochs fall within a log
)

// Kinds lists them all.
func Kinds() []Kind {
	return []Kind{
		Lost, Duplicate, Reordered, RealTime, FailedSeen, Phantom, Garbled, TwoValues,
		ReadOrder, ReadBack, ReadSkip, Vanished, FalseRange,
		LatestBack, LatestBehind, StartBack, StartJump, ArchiveBack, CommitBack, CommitWrong, EpochBack, TwoLeaders,
		Hole, Behind, Unreachable, ArchiveAhead, Divergence, EpochOrder,
	}
}
