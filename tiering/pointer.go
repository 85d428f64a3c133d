package tiering

import (
	"context"
	"errors"
)

// Pointer names the newest manifest of a partition. It is kept in the metadata
// store, and moving it is what makes a segment archived (T3).
type Pointer struct {
	ManifestKey  string
	ManifestSize int64
	ManifestCRC  uint32
	Sequence     int64
	// LastEpoch is the leader epoch of offset ArchivedEnd-1, -1 for none.
	LastEpoch   int32
	LogStart    int64
	ArchivedEnd int64
	// Version is the node's version, which every write raises by one;
	// NoPointer if there is no node.
	Version int32
}

// NoPointer is the version of the pointer of a partition that has none.
const NoPointer int32 = -1

// Exists reports whether there is a pointer.
func (p Pointer) Exists() bool { return p.Version != NoPointer }

// Pointers keeps the pointers of all partitions. The broker makes one of the
// metadata store in a few lines.
type Pointers interface {
	// LoadPointer reads the pointer of p; Version is NoPointer if there is none.
	LoadPointer(ctx context.Context, p Partition) (Pointer, error)
	// SwapPointer writes next if the pointer's version is still next.Version
	// (NoPointer: creates it), this broker still leads p in epoch under its
	// present registration, and the topic id still exists: all in one atomic
	// write. It returns what it wrote, with its new version.
	//
	// ErrFenced: we don't lead in that epoch any more, or the topic is gone.
	// ErrMoved: the pointer has another version. Nothing was written then.
	// Any other error leaves the outcome unknown, and the write may even land
	// later (Z3).
	SwapPointer(ctx context.Context, p Partition, epoch int32, next Pointer) (Pointer, error)
}

var (
	// ErrFenced: another leads the partition, or its topic is gone.
	ErrFenced = errors.New("tiering: not the leader of that epoch any more")
	// ErrMoved: the pointer is not at the version that was expected.
	ErrMoved = errors.New("tiering: pointer has another version")
	// ErrRolledBack: the metadata store names an older manifest than this
	// replica has seen: it was restored from a backup, or is another one (Z1).
	ErrRolledBack = errors.New("tiering: pointer is older than one already seen: the metadata store was rolled back")
)
