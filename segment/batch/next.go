package batch

import (
	"encoding/binary"
	"errors"
)

var (
	// ErrShort: the bytes end before the batch does: a torn tail, or a read
	// that was cut off.
	ErrShort = errors.New("batch: bytes end inside a batch")
	// ErrCorrupt: these bytes are no batch.
	ErrCorrupt = errors.New("batch: corrupt")
	// ErrOldFormat: a message set of format 0 or 1, from before Kafka 0.11.
	ErrOldFormat = errors.New("batch: message format older than v2")
)

// Peek tells the size of the batch that begins with b, of which PeekSize bytes
// suffice; a batch that goes on beyond b is no error here. ErrShort if b is
// smaller than PeekSize, ErrCorrupt or ErrOldFormat if no v2 batch begins here.
func Peek(b []byte) (size int, err error) {
	if len(b) < PeekSize {
		return 0, ErrShort
	}
	n := int32(binary.BigEndian.Uint32(b[atLength:]))
	switch magic := b[atMagic]; {
	case magic == magicV2:
		if n < HeaderSize-lengthOverhead {
			return 0, ErrCorrupt
		}
	case magic < magicV2 && n >= minOldMessage:
		return 0, ErrOldFormat
	default:
		return 0, ErrCorrupt
	}
	return int(n) + lengthOverhead, nil
}

// minOldMessage is the size of an empty message of format 0: CRC, magic,
// attributes, and the lengths of key and value. What claims to be smaller is
// no message (zeros, for one).
const minOldMessage = 14

// Next splits the first batch off b. It checks size and magic and nothing else;
// see Verify. Both results point into b. No allocation.
//
// An empty b is ErrShort; ask len(rest) first.
func Next(b []byte) (first Batch, rest []byte, err error) {
	n, err := Peek(b)
	if err != nil {
		return nil, b, err
	}
	if n > len(b) {
		return nil, b, ErrShort
	}
	return Batch(b[:n:n]), b[n:], nil
}
