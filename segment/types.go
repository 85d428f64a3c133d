package segment

import (
	"errors"
	"slices"

	"firn/segment/vfs"
)

// Offsets is one immutable snapshot of a log's offsets. At any moment
// LogStart ≤ LocalStart ≤ End, LogStart ≤ Stable ≤ HighWatermark ≤ Counted ≤ End.
type Offsets struct {
	// LogStart is the first offset that a client may read.
	LogStart int64
	// LocalStart is the first offset on the local disk.
	LocalStart int64
	// ArchivedEnd is the offset after the last archived one; -1 for a log
	// without an archive.
	ArchivedEnd int64
	// Stable is the last stable offset: below it every transaction is decided.
	Stable int64
	// HighWatermark is the end of what is committed.
	HighWatermark int64
	// Counted is the end of what this replica may vouch for (S6): all of the
	// log, unless flush.messages makes some of it wait for its flush.
	Counted int64
	// End is the log end offset: the one that the next record gets.
	End int64
}

// Until names the end of a read.
type Until uint8

const (
	UntilHighWatermark Until = iota // read_uncommitted
	UntilStable                     // read_committed
	UntilCounted                    // a replica's fetch
)

// Bound is the end that u names.
func (o *Offsets) Bound(u Until) int64 {
	switch u {
	case UntilStable:
		return o.Stable
	case UntilCounted:
		return o.Counted
	}
	return o.HighWatermark
}

// ReadRequest asks for batches from the one that holds Offset on.
type ReadRequest struct {
	Offset   int64
	MaxBytes int
	Until    Until
	// MinOne asks for the first batch whole even where it exceeds MaxBytes.
	MinOne bool
	// Whole leaves out a last batch that MaxBytes would cut, as far as the index
	// tells without a look at the file: who has to read on from there would get it
	// twice.
	Whole bool
}

// ReadResult answers a ReadRequest. The caller must Release Records.
type ReadResult struct {
	// Offsets is the snapshot that the read was made against (E9).
	Offsets Offsets
	Records Records
	// Aborted lists the aborted transactions that overlap Records; only for
	// UntilStable.
	Aborted []AbortedTxn
	// Pending is non-nil when there are records at Offset that are not here
	// yet (they come from the archive): it is closed when it pays to ask
	// again. Records may hold something all the same.
	Pending <-chan struct{}
}

// AbortedTxn is an aborted transaction of a producer: its batches from First on
// are to be skipped, until its abort marker.
type AbortedTxn struct {
	ProducerID int64
	First      int64
}

// Part is a stretch of whole or partial batches: bytes in memory, or a range of
// a file that may be sent without passing through memory.
type Part struct {
	Mem  []byte   // if not nil, the bytes
	File vfs.File // else bytes [Off, Off+Len) of File
	Off  int64
	Len  int
}

// Records is the bytes of whole batches, in parts, pinned until Release.
// The zero value is empty.
type Records struct {
	first Part
	rest  []Part
	n     int
	free  func()
}

// NewRecords makes Records of parts; free, which may be nil, is called once by Release.
func NewRecords(free func(), parts ...Part) Records {
	r := Records{free: free}
	for i, p := range parts {
		r.n += p.Len
		if i == 0 {
			r.first = p
		} else {
			r.rest = append(r.rest, p)
		}
	}
	return r
}

// fileRecords is NewRecords of one file range, without an allocation.
func fileRecords(f vfs.File, off int64, n int, free func()) Records {
	return Records{first: Part{File: f, Off: off, Len: n}, n: n, free: free}
}

// Len is the number of bytes.
func (r *Records) Len() int { return r.n }

// Parts is the number of parts.
func (r *Records) Parts() int {
	if r.n == 0 {
		return 0
	}
	return 1 + len(r.rest)
}

// Part returns the i-th part.
func (r *Records) Part(i int) Part {
	if i == 0 {
		return r.first
	}
	return r.rest[i-1]
}

// AppendTo appends the bytes to dst. With an error it returns those that could be read.
func (r *Records) AppendTo(dst []byte) ([]byte, error) {
	dst = slices.Grow(dst, r.n)
	for i := range r.Parts() {
		p := r.Part(i)
		if p.Mem != nil {
			dst = append(dst, p.Mem...)
			continue
		}
		at := len(dst)
		dst = dst[:at+p.Len]
		if err := readFull(p.File, dst[at:], p.Off); err != nil {
			return dst[:at], err
		}
	}
	return dst, nil
}

// Release gives back what pins the bytes; they must not be used after it.
func (r *Records) Release() {
	if r.free != nil {
		r.free()
	}
	*r = Records{}
}

// Origin says who made the batches of an append: what a client must not do,
// the broker's own coordinators may.
type Origin uint8

const (
	OriginClient      Origin = iota
	OriginCoordinator        // groups, transaction markers
)

// AppendOptions goes with an append as leader.
type AppendOptions struct {
	// Epoch is the leader epoch that the append belongs to and is stamped with.
	// The log refuses one lower than its latest (R2).
	Epoch  int32
	Origin Origin
	// Now is the broker's wall clock in Unix milliseconds: LogAppendTime, and
	// what message.timestamp.*.max.ms is measured against.
	Now int64
}

// Appended tells where batches went.
type Appended struct {
	// First and Last are the offsets of the first and last record; for a
	// duplicate, those of the append that it repeats.
	First, Last int64
	// AppendTime is the LogAppendTime in Unix milliseconds, -1 under CreateTime.
	AppendTime int64
	LogStart   int64
	// Duplicate: nothing was appended, a producer repeated itself (E1).
	Duplicate bool
}

// TimeOffset is an offset found by time; Offset is -1 if there is none.
type TimeOffset struct {
	Timestamp int64
	Offset    int64
	Epoch     int32
}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch not above the asked
// one, and the offset after its last record; -1, -1 if the log knows none.
type EpochEnd struct {
	Epoch int32
	End   int64
}

// EpochStart is a link of the epoch chain: from Start on, the records were
// written by the leader of Epoch.
type EpochStart struct {
	Epoch int32
	Start int64
}

// ProducerState is what a log remembers of a producer.
type ProducerState struct {
	ID               int64
	Epoch            int16
	LastSequence     int32
	LastTimestamp    int64
	CoordinatorEpoch int32
	TxnStart         int64 // first offset of the open transaction, -1 if none
}

// Errors that callers branch on; broker's table maps each to a Kafka code.
var (
	ErrOffsetOutOfRange = errors.New("segment: offset out of range")
	ErrFenced           = errors.New("segment: leader epoch below the log's own")
	// ErrFailed: an earlier I/O error ended this log until restart (S4).
	ErrFailed = errors.New("segment: log failed")
	// ErrNoSpace: the disk is below its reserve, or full; the log comes back by itself.
	ErrNoSpace = errors.New("segment: no space left")
	// ErrQuarantined: damage below the recovery point (S5).
	ErrQuarantined = errors.New("segment: log quarantined")
	ErrClosed      = errors.New("segment: log closed")
	// ErrOtherHistory: the log and what is archived of it have different
	// histories; nothing is cut off by itself (T8).
	ErrOtherHistory = errors.New("segment: log and archive have different histories")
	// ErrNotArchived: a plain log was asked to start again at an archived end.
	ErrNotArchived = errors.New("segment: log is not archived")

	// Refusals of an append as leader.
	ErrCorrupt            = errors.New("segment: corrupt batch")
	ErrUnsupportedFormat  = errors.New("segment: unsupported message format")
	ErrTooLarge           = errors.New("segment: batch larger than max.message.bytes")
	ErrTooLargeForSegment = errors.New("segment: batch larger than segment.bytes")
	ErrInvalidRecord      = errors.New("segment: invalid record")
	ErrInvalidTimestamp   = errors.New("segment: timestamp out of bounds")
	ErrUnsupportedCodec   = errors.New("segment: unsupported compression type")
	ErrOutOfOrderSequence = errors.New("segment: out of order sequence number")
	ErrDuplicateSequence  = errors.New("segment: duplicate sequence number")
	ErrProducerFenced     = errors.New("segment: producer epoch below the producer's current")
	ErrUnknownProducer    = errors.New("segment: unknown producer id")
	ErrTransactionDenied  = errors.New("segment: transactional batch without a transaction")
	ErrCoordinatorFenced  = errors.New("segment: transaction coordinator epoch below the current")
)
