package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"firn/segment/batch"
)

// ErrInvalidTxnState: a batch outside the transaction that its producer has open.
var ErrInvalidTxnState = errors.New("segment: batch does not fit the producer's transaction")

// marker is a transaction's end that an append brings.
type marker struct {
	producer, first int64 // first offset of the transaction, -1 if it has none here
	at              int64 // offset of the marker
	aborted         bool
}

// Control record types, as their keys tell.
const (
	controlAbort  = 0
	controlCommit = 1
)

// noteMarker checks and notes a control batch. What is no end of a transaction
// is left alone.
func (t *producers) noteMarker(b batch.Batch, at int64, check bool) error {
	if b.Count() == 0 {
		return nil // compaction took the marker: the whole transaction is gone
	}
	kind, coordinator, err := parseMarker(b)
	if err != nil {
		return err
	}
	if kind != controlAbort && kind != controlCommit {
		return nil
	}
	p := t.working(b.ProducerID())
	if check && b.ProducerEpoch() < p.epoch {
		return fmt.Errorf("%w: marker for producer %d epoch %d, current is %d", ErrProducerFenced, p.id, b.ProducerEpoch(), p.epoch)
	}
	if check && coordinator < p.coordinatorEpoch {
		return fmt.Errorf("%w: %d, current is %d", ErrCoordinatorFenced, coordinator, p.coordinatorEpoch)
	}
	if p.epoch != b.ProducerEpoch() {
		p.epoch, p.n = b.ProducerEpoch(), 0
	}
	t.markers = append(t.markers, marker{producer: p.id, first: p.txnStart, at: at, aborted: kind == controlAbort})
	p.repeatable = 0
	p.txnStart = -1
	p.lastTime = b.MaxTimestamp() // E3
	p.coordinatorEpoch = coordinator
	return nil
}

// decide ends the transactions that the committed append has brought the markers
// of. It appends them to decided, and the index entries of the aborted ones to
// aborted.
func (t *producers) decide(decided []decidedTxn, aborted []abortedEntry) ([]decidedTxn, []abortedEntry) {
	for _, m := range t.markers {
		if m.first < 0 {
			continue
		}
		for i, o := range t.open {
			if o.producer == m.producer {
				t.open = append(t.open[:i], t.open[i+1:]...)
				break
			}
		}
		decided = append(decided, decidedTxn{m.first, m.at})
		if m.aborted {
			stable := min(t.firstOpen(), m.at+1)
			aborted = append(aborted, abortedEntry{producerID: m.producer, first: m.first, last: m.at, lastStable: stable})
		}
	}
	t.markers = t.markers[:0]
	return decided, aborted
}

// firstOpen is the first offset of an open transaction, the largest int64
// without one.
func (t *producers) firstOpen() int64 {
	if len(t.open) == 0 {
		return math.MaxInt64
	}
	return t.open[0].first
}

var errMarker = fmt.Errorf("%w: control record", ErrInvalidRecord)

// parseMarker reads the one record of a control batch. Its key is version and
// type, its value version and coordinator epoch.
func parseMarker(b batch.Batch) (kind int16, coordinator int32, err error) {
	if b.Codec() != batch.None {
		return 0, 0, errMarker
	}
	r := b.Records()
	varint := func() int64 {
		v, n := binary.Varint(r)
		if n <= 0 {
			err, r = errMarker, nil
			return 0
		}
		r = r[n:]
		return v
	}
	field := func() []byte {
		n := varint()
		if n < 0 || n > int64(len(r)) {
			err, r = errMarker, nil
			return nil
		}
		f := r[:n]
		r = r[n:]
		return f
	}
	varint() // length
	if len(r) == 0 {
		return 0, 0, errMarker
	}
	r = r[1:] // attributes
	varint()  // timestamp delta
	varint()  // offset delta
	key := field()
	if err != nil || len(key) < 4 {
		return 0, 0, errMarker
	}
	kind = int16(binary.BigEndian.Uint16(key[2:]))
	if kind != controlAbort && kind != controlCommit {
		return kind, 0, nil
	}
	value := field()
	if err != nil || len(value) < 6 {
		return 0, 0, errMarker
	}
	return kind, int32(binary.BigEndian.Uint32(value[2:])), nil
}
