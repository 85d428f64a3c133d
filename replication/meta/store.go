package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store is a small tree of versioned nodes, as ZooKeeper has it: what a cluster
// must remember. zkmeta keeps it in ZooKeeper, zkmeta/solo in one file. What
// the nodes mean (paths, values, which checks belong to which write) is this
// package's: both implementations only move bytes, and pass metatest.Run.
type Store interface {
	// Get reads a node; ErrNotFound if there is none.
	Get(ctx context.Context, path string) (Node, error)
	// Children lists the names below path, sorted; ErrNotFound if path is missing.
	Children(ctx context.Context, path string) ([]string, error)
	// Commit applies all ops or none. A check that fails is a *Conflict. Any
	// other error leaves the outcome unknown (Z3): settle it by reading.
	// Operations see what those before them did. At most MaxOps operations, one
	// Announce among them, and MaxBytes bytes of paths and values; more is
	// refused with ErrTooLarge.
	Commit(ctx context.Context, ops ...Op) error
	// Changes returns the notes after the given one, in order, waiting until
	// there is one. ErrGap: some are gone, or the session is new; read
	// everything, then go on from the number that comes with the error. To
	// begin, ask for those after -1, which always is a gap. That ephemeral nodes
	// have gone with another session is told, too: by a note with Brokers set,
	// which may repeat the number of the one before.
	Changes(ctx context.Context, after int64) ([]Note, error)
	// Session identifies the session that holds this store's ephemeral nodes.
	// lost is closed when it has ended: register again (Z1). A store may go on
	// with another session; its calls are then of that one, those too that were
	// begun before.
	Session() (id int64, lost <-chan struct{})
}

// Expiring is a Store whose session ends, though the broker lives, when the
// store has not heard of it for so long: a broker on such a store needs a lease.
type Expiring interface {
	Store
	// SessionTimeout is how long, as granted; 0 while that isn't known.
	SessionTimeout() time.Duration
}

// Current is a Store that can say how far its notes go.
type Current interface {
	Store
	// Newest returns the number of the newest note that stood, for anybody, when
	// it was called (ZooKeeper: after a Sync): who has taken all notes up to it
	// knows what had changed by then, but that brokers have gone.
	Newest(ctx context.Context) (int64, error)
}

// Trimming is a Store that keeps its notes until somebody removes old ones: the
// controller does.
type Trimming interface {
	Store
	// TrimNotes removes notes, the oldest first, until keep are left, and begins
	// to number anew before the numbers run out, which is a gap. Each of its
	// commits checks fence; a refusal by it is a *Conflict.
	TrimNotes(ctx context.Context, fence Op, keep int) error
}

const (
	MaxOps   = 500
	MaxBytes = 256 << 10
)

// Node is a value with its version, which every write of it raises by one.
type Node struct {
	Value   []byte
	Version int32
	// Rev rises over all writes of the store (ZooKeeper: mzxid). A cached node
	// is never replaced by one with a lower Rev (Z1).
	Rev int64
}

// AnyVersion in Op.Version stands for any.
const AnyVersion int32 = -1

// Kind is the kind of an operation.
type Kind uint8

const (
	Create          Kind = iota // fails with ErrExists, or ErrNotFound if the parent is missing
	CreateEphemeral             // the same, and goes when the session ends; has no children
	Set                         // fails with ErrNotFound or ErrVersion
	Delete                      // the same, or with ErrNotEmpty if it has children
	Check                       // as Set, but changes nothing
	Announce                    // adds a note; Value is Note.Encode's
)

// Op is one operation of a Commit.
type Op struct {
	Kind    Kind
	Path    string
	Value   []byte
	Version int32 // for Set, Delete and Check: the version expected, or AnyVersion
}

// Conflict tells which operation of a Commit refused it, and why.
type Conflict struct {
	Index int
	Op    Op
	Err   error // ErrExists, ErrNotFound, ErrVersion or ErrNotEmpty
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("meta: operation %d on %s: %v", c.Index, c.Op.Path, c.Err)
}
func (c *Conflict) Unwrap() error { return c.Err }

var (
	ErrNotFound = errors.New("meta: no such node")
	ErrExists   = errors.New("meta: node exists")
	ErrVersion  = errors.New("meta: node has another version")
	ErrNotEmpty = errors.New("meta: node has children")
	ErrTooLarge = errors.New("meta: commit too large")
	ErrClosed   = errors.New("meta: store closed")
)

// ErrGap is returned by Changes when notes are missing. Last is the newest
// number: after reading everything, go on from it.
type ErrGap struct{ Last int64 }

func (e *ErrGap) Error() string { return fmt.Sprintf("meta: change notes missing before %d", e.Last) }
