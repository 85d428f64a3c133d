package segment

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// The files of a segment are named by its base offset and these.
const (
	logSuffix      = ".log"
	offsetSuffix   = ".index"
	timeSuffix     = ".timeindex"
	txnSuffix      = ".txnindex"
	snapshotSuffix = ".snapshot"
	deletedSuffix  = ".deleted"
)

// segment is one segment of a log. What is sealed never changes (S3); of the
// active one, the log's lock guards what changes, and readers take size and end
// from the log's state.
type segment struct {
	dir  string // of the partition
	base int64

	handle  atomic.Pointer[handle]
	opening sync.Mutex           // held while the file is being opened; guards gone
	gone    bool                 // no part of the log any more
	ring    atomic.Pointer[ring] // of the active segment

	// index is in memory for the active segment and for a sealed one until its
	// index files are written; else nil until a lookup loads it.
	index   atomic.Pointer[index]
	loading sync.Mutex // held while the index is loaded or rebuilt

	// Set before the segment is published as sealed.
	end  int64
	size int64
	// synced tells that all files of the sealed segment are durable.
	synced atomic.Bool

	// Guarded by the log's lock.
	jitter    int64 // taken off segment.ms
	firstTime int64 // timestamp of the first batch, by which segment.ms counts; -1 without one
	firstWall int64 // wall time of the first append by this process, 0 if there was none
	aborted   []abortedEntry
	snapshot  []byte // producer state at end, not yet written
	hasTxns   atomic.Bool
	maxTime   atomic.Int64 // largest timestamp of a sealed segment plus one; 0 if unknown
	baseTime  atomic.Int64 // timestamp of its first batch plus two; 0 if unknown
}

func (s *segment) path(suffix string) string {
	return filepath.Join(s.dir, baseName(s.base)+suffix)
}

func baseName(offset int64) string { return fmt.Sprintf("%020d", offset) }

// parseName splits a file name into offset and suffix.
func parseName(name string) (offset int64, suffix string, ok bool) {
	digits, rest, found := strings.Cut(name, ".")
	if !found || len(digits) != 20 {
		return 0, "", false
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || offset < 0 {
		return 0, "", false
	}
	return offset, "." + rest, true
}
