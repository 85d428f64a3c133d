package batch

import (
	"encoding/binary"
	"fmt"
)

// MarkerType is the type of a control record.
type MarkerType int16

const (
	Abort  MarkerType = 0
	Commit MarkerType = 1
)

func (t MarkerType) String() string {
	switch t {
	case Abort:
		return "abort"
	case Commit:
		return "commit"
	}
	return fmt.Sprintf("marker(%d)", int16(t))
}

// Marker is the record of a control batch: the end of a transaction.
//
//	key    version int16 = 0, type int16
//	value  version int16 = 0, coordinator epoch int32
type Marker struct {
	Type MarkerType
	// CoordinatorEpoch is that of the transaction coordinator, and -1 if Type
	// is neither Abort nor Commit.
	CoordinatorEpoch int32
}

const (
	markerKeySize   = 4
	markerValueSize = 6
)

// Batch makes the control batch that ends the transaction of producer id, in
// its epoch, at timestamp, in Unix milliseconds.
func (m Marker) Batch(id int64, epoch int16, timestamp int64) Batch {
	key := binary.BigEndian.AppendUint16(make([]byte, 0, markerKeySize), 0)
	key = binary.BigEndian.AppendUint16(key, uint16(m.Type))
	value := binary.BigEndian.AppendUint16(make([]byte, 0, markerValueSize), 0)
	value = binary.BigEndian.AppendUint32(value, uint32(m.CoordinatorEpoch))
	b := NewBuilder(Spec{Producer: &Producer{ID: id, Epoch: epoch, Sequence: -1}, Transactional: true, Control: true})
	b.Add(timestamp, key, value)
	batch, err := b.Build()
	if err != nil {
		panic(fmt.Sprintf("batch: a marker of %d bytes: %v", b.Size(), err))
	}
	return batch
}

// ParseMarker reads the marker of a control batch. Later versions of key and
// value add at the end, so they are read like the first. A type that it does
// not know is no error: nobody who reads a log needs more than to skip it.
func ParseMarker(b Batch) (Marker, error) {
	m, found := Marker{CoordinatorEpoch: -1}, false
	err := Walk(b, Limit{}, func(r Record) error {
		if len(r.Key) < markerKeySize || int16(binary.BigEndian.Uint16(r.Key)) < 0 {
			return fmt.Errorf("%w: control record without a type", ErrInvalid)
		}
		m.Type, found = MarkerType(binary.BigEndian.Uint16(r.Key[2:])), true
		if m.Type != Abort && m.Type != Commit {
			return Stop
		}
		if len(r.Value) < markerValueSize || int16(binary.BigEndian.Uint16(r.Value)) < 0 {
			return fmt.Errorf("%w: transaction marker without a coordinator epoch", ErrInvalid)
		}
		m.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
		return Stop
	})
	if err == nil && !(found && b.IsControl()) {
		err = fmt.Errorf("%w: no control batch", ErrInvalid)
	}
	return m, err
}
