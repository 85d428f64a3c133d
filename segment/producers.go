package segment

import (
	"cmp"
	"fmt"
	"slices"

	"firn/segment/batch"
)

// producers is what a log remembers of idempotent and transactional producers:
// enough to recognise a repeated batch (E1), to refuse gaps and old epochs, and
// to know the open transactions. The log's lock guards it.
type producers struct {
	byID map[int64]*producer
	// open is the open transactions by first offset.
	open []openTxn
	// scratch holds the states that one append makes, until it is written.
	scratch []producer
	markers []marker
}

type openTxn struct{ producer, first int64 }

// remembered is how many batches of a producer are recognised when they are
// repeated: as many as Kafka's clients have in flight at most.
const remembered = 5

type producer struct {
	id               int64
	epoch            int16
	coordinatorEpoch int32
	lastTime         int64
	txnStart         int64
	// batches is the latest n batches, oldest first; of these the latest
	// repeatable ones are answered as duplicates. A transaction's end makes
	// those before it unrepeatable: a client that gives the same sequence
	// numbers to new records after an abort must hear of it (E2).
	n, repeatable uint8
	batches       [remembered]producerBatch
}

type producerBatch struct {
	lastSeq    int32
	delta      int32 // last offset less first offset
	lastOffset int64
	time       int64
}

func (b producerBatch) firstSeq() int32 { return subSequence(b.lastSeq, b.delta) }

func (p *producer) last() producerBatch {
	if p.n == 0 {
		return producerBatch{lastSeq: -1, lastOffset: -1, time: -1}
	}
	return p.batches[p.n-1]
}

func (p *producer) push(b producerBatch) {
	if p.n == remembered {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = b
	p.n++
	p.repeatable = min(p.repeatable+1, p.n)
}

// subSequence takes n off a sequence number, which goes from 0 back to the
// largest int32.
func subSequence(seq, n int32) int32 { return int32((int64(seq) - int64(n)) & 0x7fffffff) }

func cmpInt64(a, b int64) int { return cmp.Compare(a, b) }

func (t *producers) reset() {
	t.byID = map[int64]*producer{}
	t.open = nil
}

// begin starts the check of one append.
func (t *producers) begin() { t.scratch, t.markers = t.scratch[:0], t.markers[:0] }

// working returns the state of id that this append may change.
func (t *producers) working(id int64) *producer {
	for i := range t.scratch {
		if t.scratch[i].id == id {
			return &t.scratch[i]
		}
	}
	if p := t.byID[id]; p != nil {
		t.scratch = append(t.scratch, *p)
	} else {
		t.scratch = append(t.scratch, producer{id: id, epoch: -1, coordinatorEpoch: -1, lastTime: -1, txnStart: -1})
	}
	return &t.scratch[len(t.scratch)-1]
}

// duplicate finds a remembered batch that b repeats: same producer, epoch and
// sequence numbers.
func (t *producers) duplicate(b batch.Batch) (producerBatch, bool) {
	p := t.byID[b.ProducerID()]
	if p == nil || p.epoch != b.ProducerEpoch() {
		return producerBatch{}, false
	}
	first, last := b.BaseSequence(), b.LastSequence()
	for i := int(p.n) - 1; i >= int(p.n-p.repeatable); i-- {
		if p.batches[i].lastSeq == last && p.batches[i].firstSeq() == first {
			return p.batches[i], true
		}
	}
	return producerBatch{}, false
}

// checkSequence refuses a client's batch whose sequence numbers do not go on
// where the producer's last batch ended.
func (p *producer) checkSequence(b batch.Batch) error {
	first := b.BaseSequence()
	switch {
	case p.epoch < 0:
		return nil // all its records are gone: any beginning will do
	case p.epoch != b.ProducerEpoch():
		if first != 0 {
			return fmt.Errorf("%w: producer %d begins epoch %d with sequence %d", ErrOutOfOrderSequence, p.id, b.ProducerEpoch(), first)
		}
		return nil
	case p.n == 0:
		return nil
	}
	last := p.last().lastSeq
	if first == batch.AddSequence(last, 1) {
		return nil
	}
	// Older than all that we remember: it was appended, or its successors
	// could not have been. An error would end the producer for nothing.
	oldest := p.batches[p.n-p.repeatable].firstSeq()
	if p.repeatable > 0 && behind(b.LastSequence(), oldest) {
		return fmt.Errorf("%w: producer %d sequence %d, last is %d", ErrDuplicateSequence, p.id, first, last)
	}
	return fmt.Errorf("%w: producer %d sequence %d, last is %d", ErrOutOfOrderSequence, p.id, first, last)
}

// behind tells that sequence number a comes before b, which may have wrapped.
func behind(a, b int32) bool {
	d := subSequence(b, a)
	return d > 0 && d < 1<<30
}

// note checks b, which is to begin at first and to end with last, and takes note
// of it in the working states. check is false for what a leader has checked.
func (t *producers) note(b batch.Batch, first, last int64, origin Origin, check bool) error {
	if !b.HasProducer() {
		return nil
	}
	if b.IsControl() {
		return t.noteMarker(b, first, check)
	}
	p, epoch := t.working(b.ProducerID()), b.ProducerEpoch()
	if check {
		if epoch < p.epoch {
			return fmt.Errorf("%w: producer %d epoch %d, current is %d", ErrProducerFenced, p.id, epoch, p.epoch)
		}
		if origin == OriginClient {
			if err := p.checkSequence(b); err != nil {
				return err
			}
		}
		if p.txnStart >= 0 && !b.IsTransactional() {
			return fmt.Errorf("%w: producer %d has an open transaction", ErrInvalidTxnState, p.id)
		}
	}
	if p.epoch != epoch {
		p.epoch, p.n, p.repeatable = epoch, 0, 0
	}
	p.push(producerBatch{lastSeq: b.LastSequence(), delta: int32(last - first), lastOffset: last, time: b.MaxTimestamp()})
	p.lastTime = b.MaxTimestamp()
	if b.IsTransactional() && p.txnStart < 0 {
		p.txnStart = first
	}
	return nil
}

// commit makes the working states the states.
func (t *producers) commit() {
	for i := range t.scratch {
		s := &t.scratch[i]
		p := t.byID[s.id]
		if p == nil {
			p = new(producer)
			t.byID[s.id] = p
			p.txnStart = -1
		}
		if s.txnStart >= 0 && p.txnStart != s.txnStart {
			t.openTxn(s.id, s.txnStart)
		}
		*p = *s
	}
}

func (t *producers) openTxn(id, first int64) {
	i, _ := slices.BinarySearchFunc(t.open, first, func(o openTxn, f int64) int { return cmpInt64(o.first, f) })
	t.open = slices.Insert(t.open, i, openTxn{id, first})
}

// expire forgets the producers without an open transaction that have been silent
// for so long (E3: markers count as a sign of life).
func (t *producers) expire(now, after int64) {
	for id, p := range t.byID {
		if p.txnStart < 0 && now-p.lastTime >= after {
			delete(t.byID, id)
		}
	}
}

// list is the states for DescribeProducers, by id.
func (t *producers) list() []ProducerState {
	all := make([]ProducerState, 0, len(t.byID))
	for _, p := range t.byID {
		all = append(all, ProducerState{
			ID: p.id, Epoch: p.epoch, LastSequence: p.last().lastSeq, LastTimestamp: p.lastTime,
			CoordinatorEpoch: p.coordinatorEpoch, TxnStart: p.txnStart,
		})
	}
	slices.SortFunc(all, func(a, b ProducerState) int { return cmpInt64(a.ID, b.ID) })
	return all
}
