package segment

import (
	"encoding/binary"
	"fmt"
)

// offsetEntrySize is an entry of the .index file: relative offset and position,
// each an int32.
const offsetEntrySize = 8

// appendOffsets appends the bytes of the .index file to dst.
func (x *index) appendOffsets(dst []byte) []byte {
	for i, n := 0, x.offsets.Len(); i < n; i++ {
		e := x.offsets.At(i)
		dst = binary.BigEndian.AppendUint32(dst, e.Rel)
		dst = binary.BigEndian.AppendUint32(dst, e.Pos)
	}
	return dst
}

// loadOffsets reads an .index file. Kafka preallocates the file of an active
// segment and leaves zeros at its end: what does not rise ends it. It is an error
// if that leaves bytes which are no zeros, or an entry lies beyond logSize.
func (x *index) loadOffsets(b []byte, logSize int64) error {
	last := offsetEntry{}
	for i := 0; i+offsetEntrySize <= len(b); i += offsetEntrySize {
		e := offsetEntry{Rel: binary.BigEndian.Uint32(b[i:]), Pos: binary.BigEndian.Uint32(b[i+4:])}
		if e.Pos <= last.Pos || x.offsets.Len() > 0 && e.Rel <= last.Rel {
			return zeros(b[i:])
		}
		if int64(e.Pos) >= logSize || e.Rel > 1<<31-1 {
			return fmt.Errorf("segment: offset index entry %d points beyond the segment", i/offsetEntrySize)
		}
		x.offsets.Append(e)
		last = e
	}
	return zeros(b[len(b)-len(b)%offsetEntrySize:])
}

// zeros is an error if b holds anything else.
func zeros(b []byte) error {
	for _, c := range b {
		if c != 0 {
			return fmt.Errorf("segment: index entries that do not rise")
		}
	}
	return nil
}
