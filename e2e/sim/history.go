package main

import (
	"sort"
	"sync"
	"time"

	"firn/segment/batch"
)

// history is what was written, and what became of it: the one truth that every
// log, archive and answer is held against.
type history struct {
	w     *world
	mu    sync.Mutex
	parts []partHistory
}

// partHistory is the history of one partition.
type partHistory struct {
	// committed[i] is the record at offset i, once some leader has said that it
	// is committed. It never changes.
	committed []record
	// at is where a value was first committed; sent holds those that were written.
	at   map[string]int64
	sent map[string]bool
	// acks are the ends of what was acknowledged, rising, and since when.
	acks []ackedAt
}

type ackedAt struct {
	at  time.Time
	end int64
}

type record struct {
	value string
	epoch int32
}

func newHistory(w *world, parts int) *history {
	h := &history{w: w, parts: make([]partHistory, parts)}
	for i := range h.parts {
		h.parts[i] = partHistory{at: map[string]int64{}, sent: map[string]bool{}}
	}
	return h
}

// sent notes what is about to be written.
func (h *history) sent(part int32, values []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range values {
		h.parts[part].sent[v] = true
	}
}

// end is the end of what is committed.
func (h *history) end(part int32) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return int64(len(h.parts[part].committed))
}

// commit enters what who shows as committed: it must be what was committed
// before, or go on where that ends, be something that was written, and be there
// once (E1).
func (h *history) commit(who string, part int32, offset int64, r record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.parts[part]
	end := int64(len(p.committed))
	switch {
	case offset < end:
		if p.committed[offset] != r {
			h.w.fail("R1: %s has %+v at %d-%d, committed was %+v", who, r, part, offset, p.committed[offset])
		}
	case offset > end:
		h.w.fail("R1: %s shows offset %d of partition %d as committed, known is only up to %d", who, offset, part, end)
	default:
		if !p.sent[r.value] {
			h.w.fail("R1: %s has %+v at %d-%d, which nobody has written", who, r, part, offset)
		}
		if at, twice := p.at[r.value]; twice {
			h.w.fail("E1: %s has %q at %d-%d, which is at %d already", who, r.value, part, offset, at)
		}
		p.at[r.value] = offset
		p.committed = append(p.committed, r)
	}
}

// acked enters an acknowledgement: what it is about must be committed (R1).
func (h *history) acked(part int32, first int64, values []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.parts[part]
	for i, v := range values {
		at := first + int64(i)
		if at >= int64(len(p.committed)) || p.committed[at].value != v {
			h.w.fail("R1: %q was acknowledged at %d-%d and isn't committed there (end %d)", v, part, at, len(p.committed))
			return
		}
	}
	if end := first + int64(len(values)); len(p.acks) == 0 || p.acks[len(p.acks)-1].end < end {
		p.acks = append(p.acks, ackedAt{time.Now(), end})
	}
}

// ackedEnd is the end of what had been acknowledged to clients at a moment.
func (h *history) ackedEnd(part int32, at time.Time) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	acks := h.parts[part].acks
	n := sort.Search(len(acks), func(i int) bool { return acks[i].at.After(at) })
	if n == 0 {
		return 0
	}
	return acks[n-1].end
}

// read checks what a consumer has got, and returns where it goes on.
func (h *history) read(who string, part int32, at int64, records []byte) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.parts[part]
	next := at
	h.w.decode(who, records, func(offset int64, r record) {
		if offset < at {
			return // the batch begins before
		}
		if offset != next {
			h.w.fail("%s: read offset %d of partition %d where %d is next", who, offset, part, next)
		}
		if offset >= int64(len(p.committed)) || p.committed[offset] != r {
			h.w.fail("%s: read %+v at %d-%d, which is not what is committed there (end %d)", who, r, part, offset, len(p.committed))
		}
		next = offset + 1
	})
	return next
}

// decode visits all records in whole batches; a last one that is cut off is left out.
func (w *world) decode(who string, b []byte, visit func(offset int64, r record)) {
	for len(b) > 0 {
		bt, rest, err := batch.Next(b)
		if err == batch.ErrShort {
			return
		}
		if err == nil {
			err = batch.Verify(bt)
		}
		if err != nil {
			w.fail("%s: a damaged batch (T5): %v", who, err)
			return
		}
		epoch := bt.LeaderEpoch()
		if err := batch.Walk(bt, batch.Limit{}, func(r batch.Record) error {
			visit(r.Offset, record{string(r.Value), epoch})
			return nil
		}); err != nil {
			w.fail("%s: a damaged batch (T5): %v", who, err)
			return
		}
		b = rest
	}
}
