package segment

import (
	"encoding/binary"
	"errors"
)

// abortedEntry is an entry of the .txnindex file: an aborted transaction whose
// abort marker lies in the segment, and the last stable offset that the marker
// made, by which a reader knows when to stop looking.
type abortedEntry struct {
	producerID  int64
	first, last int64
	lastStable  int64
}

// abortedEntrySize: version, an int16, and the four fields.
const abortedEntrySize = 2 + 4*8

var errTxnIndex = errors.New("segment: transaction index is damaged")

func appendAborted(dst []byte, entries []abortedEntry) []byte {
	for _, e := range entries {
		dst = binary.BigEndian.AppendUint16(dst, 0)
		for _, v := range [...]int64{e.producerID, e.first, e.last, e.lastStable} {
			dst = binary.BigEndian.AppendUint64(dst, uint64(v))
		}
	}
	return dst
}

// parseAborted reads a .txnindex file.
func parseAborted(b []byte) ([]abortedEntry, error) {
	if len(b)%abortedEntrySize != 0 {
		return nil, errTxnIndex
	}
	entries := make([]abortedEntry, 0, len(b)/abortedEntrySize)
	for ; len(b) > 0; b = b[abortedEntrySize:] {
		if binary.BigEndian.Uint16(b) != 0 {
			return nil, errTxnIndex
		}
		field := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[2+8*i:])) }
		e := abortedEntry{field(0), field(1), field(2), field(3)}
		if e.first < 0 || e.last < e.first {
			return nil, errTxnIndex
		}
		entries = append(entries, e)
	}
	return entries, nil
}
