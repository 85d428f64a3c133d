package tiering

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/cache"
)

// txnModel is the transactions of a log: what each segment's index says of them
// follows from it.
type txnModel struct{ txns []modelTxn }

type modelTxn struct {
	producer      int64
	first, marker int64
	aborted       bool
}

func (m *txnModel) index(base, end int64) (index, producers []byte) {
	count := uint32(0)
	for _, x := range m.txns {
		open := int64(-1)
		if x.first < end && x.marker >= end {
			open = x.first
		}
		if x.aborted && x.marker >= base && x.marker < end {
			stable := x.marker + 1
			for _, y := range m.txns {
				if y.first <= x.marker && y.marker > x.marker {
					stable = min(stable, y.first)
				}
			}
			index = append(index, 0, 0)
			for _, v := range []int64{x.producer, x.first, x.marker, stable} {
				index = binary.BigEndian.AppendUint64(index, uint64(v))
			}
		}
		count++
		producers = binary.BigEndian.AppendUint64(producers, uint64(x.producer))
		producers = append(producers, make([]byte, snapshotEntry-16)...)
		producers = binary.BigEndian.AppendUint64(producers, uint64(open))
	}
	head := append(make([]byte, 6), 0, 0, 0, 0)
	binary.BigEndian.PutUint16(head, 1)
	binary.BigEndian.PutUint32(head[6:], count)
	return index, append(head, producers...)
}

// TestColdReadCommittedKnowsEveryAbortedTransaction has transactions whose
// markers lie up to several segments behind their records (D13).
func TestColdReadCommittedKnowsEveryAbortedTransaction(t *testing.T) {
	for seed := range uint64(20) {
		rng := testRNG(100 + seed)
		var list []batch.Batch
		model := &txnModel{}
		open := map[int64]int{}
		offset := int64(0)
		add := func(b batch.Batch) {
			b.SetBaseOffset(offset)
			list = append(list, b)
			offset = b.NextOffset()
		}
		for range 200 {
			id := rng.Int64N(5)
			k, isOpen := open[id]
			switch {
			case isOpen && rng.IntN(4) == 0:
				model.txns[k].marker = offset
				typ := batch.Commit
				if model.txns[k].aborted {
					typ = batch.Abort
				}
				delete(open, id)
				add(batch.Marker{Type: typ}.Batch(id, 1, 1))
			case id == 4:
				bd := batch.NewBuilder(batch.Spec{})
				bd.Add(1, nil, make([]byte, 200))
				b, _ := bd.Build()
				add(b)
			default:
				if !isOpen {
					open[id] = len(model.txns)
					model.txns = append(model.txns, modelTxn{producer: id, first: offset, marker: 1 << 40, aborted: rng.IntN(2) == 0})
				}
				bd := batch.NewBuilder(batch.Spec{Producer: &batch.Producer{ID: id, Epoch: 1}, Transactional: true})
				bd.Add(1, nil, make([]byte, 200))
				b, _ := bd.Build()
				add(b)
			}
		}
		w := newColdWorld(t, list, rolled(list, 1500), 0, model)
		for _, x := range model.txns {
			if x.aborted && x.marker >= w.end() { // its marker is on the disk
				w.openLocal = append(w.openLocal, segment.AbortedTxn{ProducerID: x.producer, First: x.first})
			}
		}
		w.paged(len(w.entries)/2, 3)
		c := w.reader(t, cache.Config{})
		for range 40 {
			r := segment.ReadRequest{Offset: rng.Int64N(w.end()), MaxBytes: 1 + rng.IntN(4000), MinOne: true, Until: segment.UntilStable}
			res, err := w.read(c, r)
			if err != nil {
				t.Fatal(err)
			}
			for b := joined(&res.Records); len(b) > 0; {
				x, rest, err := batch.Next(b)
				if err != nil {
					t.Fatal(err)
				}
				b = rest
				if !x.IsTransactional() || x.IsControl() {
					continue
				}
				var want bool
				var first int64
				for _, m := range model.txns {
					if m.producer == x.ProducerID() && m.first <= x.BaseOffset() && x.BaseOffset() < m.marker {
						want, first = m.aborted, m.first
					}
				}
				if got := slices.Contains(res.Aborted, segment.AbortedTxn{ProducerID: x.ProducerID(), First: first}); got != want {
					t.Fatalf("seed %d: batch at %d of producer %d: aborted %v, want %v", seed, x.BaseOffset(), x.ProducerID(), got, want)
				}
			}
			res.Records.Release()
		}
	}
}

func TestOldestOpenTxnBelievesNoDamagedSnapshot(t *testing.T) {
	for _, b := range [][]byte{{1}, make([]byte, snapshotHeader+1), make([]byte, snapshotHeader+snapshotEntry-1)} {
		if got := oldestOpenTxn(b); got != 0 {
			t.Error(fmt.Sprint(len(b)), got)
		}
	}
}
