package segment

import (
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

// noteMarker checks and notes a control batch. What is no end of a transaction
// is left alone.
func (t *producers) noteMarker(b batch.Batch, at int64, check bool) error {
	if b.Count() == 0 {
		return nil // compaction took the marker: the whole transaction is gone
	}
	m, err := batch.ParseMarker(b)
	if err != nil {
		return wrapBatch(err)
	}
	if m.Type != batch.Abort && m.Type != batch.Commit {
		return nil
	}
	p := t.working(b.ProducerID())
	if check && b.ProducerEpoch() < p.epoch {
		return fmt.Errorf("%w: marker for producer %d epoch %d, current is %d", ErrProducerFenced, p.id, b.ProducerEpoch(), p.epoch)
	}
	if check && m.CoordinatorEpoch < p.coordinatorEpoch {
		return fmt.Errorf("%w: %d, current is %d", ErrCoordinatorFenced, m.CoordinatorEpoch, p.coordinatorEpoch)
	}
	if p.epoch != b.ProducerEpoch() {
		p.epoch, p.n = b.ProducerEpoch(), 0
	}
	t.markers = append(t.markers, marker{producer: p.id, first: p.txnStart, at: at, aborted: m.Type == batch.Abort})
	p.repeatable = 0
	p.txnStart = -1
	p.lastTime = b.MaxTimestamp() // E3
	p.coordinatorEpoch = m.CoordinatorEpoch
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
