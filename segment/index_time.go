package segment

import (
	"encoding/binary"
	"fmt"
)

// timeEntrySize is an entry of the .timeindex file: timestamp, an int64, and
// relative offset, an int32.
const timeEntrySize = 12

// appendTimes appends the bytes of the .timeindex file to dst.
func (x *index) appendTimes(dst []byte) []byte {
	for i, n := 0, x.times.Len(); i < n; i++ {
		e := x.times.At(i)
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.Time))
		dst = binary.BigEndian.AppendUint32(dst, e.Rel)
	}
	return dst
}

// loadTimes reads a .timeindex file, with zeros at its end as loadOffsets.
func (x *index) loadTimes(b []byte) error {
	last := timeEntry{Time: -1}
	for i := 0; i+timeEntrySize <= len(b); i += timeEntrySize {
		e := timeEntry{Time: int64(binary.BigEndian.Uint64(b[i:])), Rel: binary.BigEndian.Uint32(b[i+8:])}
		if e.Time <= last.Time || e.Rel < last.Rel {
			return zeros(b[i:])
		}
		if e == (timeEntry{}) && len(b) > timeEntrySize && zeros(b[i:]) == nil {
			return nil // an empty, preallocated index, not a first record of 1970
		}
		if e.Rel > 1<<31-1 {
			return fmt.Errorf("segment: time index entry %d points beyond the segment", i/timeEntrySize)
		}
		x.times.Append(e)
		last = e
	}
	if n := x.times.Len(); n > 0 {
		e := x.times.At(n - 1)
		x.maxTime, x.maxTimeAt = e.Time, x.base+int64(e.Rel)
	}
	return zeros(b[len(b)-len(b)%timeEntrySize:])
}
