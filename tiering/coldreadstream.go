package tiering

import (
	"fmt"
	"time"

	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/cache"
)

// coldStream is one reader of a partition, as far as we can tell: whoever asks
// for the offset that the last answer ended at. It belongs to one read at a time.
type coldStream struct {
	p    *coldPartition
	c    *coldReads
	s    *source
	cs   *cache.Stream
	seen time.Time

	want int64 // the offset that the reader asks for next
	next int64 // the same, or further where no records are

	// Where that is, as far as it is known.
	m     *Manifest  // that names entry
	entry *Entry     // that serves next
	ix    *coldIndex // of entry
	pos   int64      // in its file: a batch begins here, and next is in it or after it
	// plain: the marks have led astray once, positions are counted from the start
	// of the file (S2).
	plain bool

	replay bool // it begins at the log start
	// fresh: it has had no answer yet. The first one is what a reader that jumped
	// here waits for: it goes out as soon as its own bytes are here, and whether
	// the reader goes on is seen when it comes back (moved).
	fresh, moved bool
	covered      int64 // what the jump brings ends here

	ahead []coldAhead // entries that follow, which cs has been told of
}

type coldAhead struct {
	m     *Manifest
	entry *Entry
	ix    *coldIndex
}

// coldMaxBlocks bounds the blocks that one answer pins, but for a larger first
// batch.
const coldMaxBlocks = 8

// read answers r; res.Offsets is the caller's to fill in.
func (st *coldStream) read(r segment.ReadRequest, at segment.Offsets) (segment.ReadResult, error) {
	st.replay = st.replay || st.m == nil && st.next == at.LogStart
	if st.moved && st.ix != nil {
		st.cs.At(&st.ix.Object, int(st.pos/BlockSize), 1)
	}
	st.moved = false
	below := min(at.LocalStart, at.Bound(r.Until))
	for st.next < below {
		if wait, err := st.find(); wait != nil || err != nil {
			return segment.ReadResult{Pending: wait}, err
		}
		if st.entry.Base >= below {
			break
		}
		w := coldWindow{cs: st.cs, ix: st.ix, first: int(st.pos / BlockSize), seek: st.fresh}
		run, err := st.collect(&w, r, min(below, st.entry.End))
		if err != nil {
			w.release()
			wait, err := st.failed(st.ix.Key, err)
			return segment.ReadResult{Pending: wait}, err
		}
		if run.ended {
			w.release()
			st.entryEnds()
			continue
		}
		res, err := st.answer(&w, run, r)
		w.release()
		return res, err
	}
	return segment.ReadResult{}, nil
}

// coldRun is what collect found: whole batches at [start, end) of the file.
type coldRun struct {
	start, end  int64 // equal if there are none
	first, last int64 // their first offset, and their last + 1
	txn         bool  // some belong to transactions
	// ended: the entry holds nothing at or after next; go on with the next one.
	ended bool
}

// answer makes a result of run, and moves on behind it.
func (st *coldStream) answer(w *coldWindow, run coldRun, r segment.ReadRequest) (res segment.ReadResult, err error) {
	if run.start == run.end {
		return segment.ReadResult{Pending: w.wait}, nil
	}
	if r.Until == segment.UntilStable && run.txn {
		list, wait, err := st.aborted(run.first, run.last)
		if wait != nil || err != nil {
			return segment.ReadResult{Pending: wait}, err
		}
		res.Aborted = list
	}
	res.Records = w.records(run.start, run.end)
	if run.end-run.start < int64(r.MaxBytes) {
		res.Pending = w.more(run.end)
	}
	st.next, st.pos = run.last, run.end
	switch {
	case run.last >= st.entry.End || run.end >= st.ix.Size:
		st.entryEnds()
	case st.fresh:
		st.moved = true
	default:
		st.cs.At(&st.ix.Object, int(run.end/BlockSize), 1)
	}
	st.fresh = false
	return res, nil
}

// find works out entry, index and position for next.
func (st *coldStream) find() (<-chan struct{}, error) {
	if st.entry == nil {
		m, wait, err := st.s.manifest()
		if wait != nil || err != nil {
			return wait, coldError(err)
		}
		if st.next < m.LogStart {
			return nil, fmt.Errorf("%w: %d, the log starts at %d", segment.ErrOffsetOutOfRange, st.next, m.LogStart)
		}
		e, wait, err := st.locate(m, st.next)
		if wait != nil || err != nil {
			return wait, err
		}
		if e == nil {
			return nil, fmt.Errorf("%w: the manifest ends at %d, wanted is %d", ErrUnavailable, m.ArchivedEnd, st.next)
		}
		st.m, st.entry = m, e
	}
	if st.ix == nil {
		key := st.entry.IndexKey(st.s.Part)
		if wait, err := st.p.known(key); wait != nil || err != nil {
			return wait, err
		}
		ix, wait, err := st.c.indexes.index(st.s.Part, st.entry)
		if err != nil {
			return st.failed(key, err)
		}
		if wait != nil {
			return wait, nil
		}
		st.p.fine(key)
		st.ix = ix
		st.pos = ix.position(max(st.next, st.entry.Base))
		if st.plain {
			st.pos = 0
		}
		if st.replay {
			st.cs.At(&ix.Object, int(st.pos/BlockSize), coldReplay)
			st.replay, st.fresh = false, false
		} else {
			st.covered = st.reach()
			st.cs.Seek(&ix.Object, st.pos, st.covered)
		}
	}
	return st.p.known(st.ix.Key)
}

// coldReplay is how many blocks a reader gets at once that begins where the log
// does: that is what a replay looks like, and it saves the first small GETs.
const coldReplay = 8

// reach is what a jump may have to read to have its first batch whole: with
// batches of a block and more, one at a time would cost a round trip each.
func (st *coldStream) reach() int64 {
	to := st.ix.reach(max(st.next, st.entry.Base))
	if !st.ix.exact { // it may begin far behind the mark
		to = max(to, st.pos+coldMarkBytes+coldMarkBytes/2)
	}
	return min(to, (st.pos/BlockSize+coldReplay)*BlockSize, st.ix.Size)
}

// locate finds the entry of m that serves offset, or the first after it.
func (st *coldStream) locate(m *Manifest, offset int64) (*Entry, <-chan struct{}, error) {
	ref, e := m.Locate(offset)
	if ref == nil {
		return e, nil, nil
	}
	key := ref.Key(st.s.Part)
	if wait, err := st.p.known(key); wait != nil || err != nil {
		return nil, wait, err
	}
	page, wait, err := st.s.page(m, ref)
	switch {
	case err != nil && gone(err):
		wait, err := st.p.missing(m, key, ref.Base, ref.End, err)
		return nil, wait, err
	case err != nil:
		return nil, nil, coldError(err)
	case wait != nil:
		return nil, wait, nil
	}
	st.p.fine(key)
	return page.Find(offset), nil, nil
}

// failed settles an error in reading the entry's objects: what to wait for, or
// what to tell the reader. The stream finds its way anew after it.
func (st *coldStream) failed(key string, err error) (<-chan struct{}, error) {
	m, e, ix := st.m, st.entry, st.ix
	plain := !st.plain && ix != nil && err == errColdAstray
	st.m, st.entry, st.ix, st.ahead = nil, nil, nil, nil
	if plain {
		// The bytes are the archived ones, so it is the marks that are wrong.
		st.plain = true
		ch := make(chan struct{})
		close(ch)
		return ch, nil
	}
	if !gone(err) {
		return nil, coldError(err)
	}
	if ix != nil {
		st.c.cfg.Cache.Forget(&ix.Object)
	}
	st.c.indexes.forget(st.s.Part, e)
	return st.p.missing(m, key, e.Base, e.End, err)
}

// errColdAstray: there is no batch where one should begin, or one that can't be
// there.
var errColdAstray = fmt.Errorf("%w: no batch where one should begin", ErrCorrupt)

// collect gathers the batches from next to below that are here.
func (st *coldStream) collect(w *coldWindow, r segment.ReadRequest, below int64) (run coldRun, err error) {
	pos, need := st.pos, true // needed: the first batch
	for pos < st.ix.Size {
		h, err := w.header(pos, need)
		if h == nil {
			return run, err
		}
		size, next, err := st.check(h, pos)
		if err != nil {
			return run, err
		}
		b := batch.Batch(h)
		if next <= max(st.next, st.entry.Base) {
			// Before what is asked for, or another entry's to serve (D28).
			pos += size
			st.pos = pos
			if i := int(pos / BlockSize); i != w.first && pos < st.ix.Size {
				w.drop(i)
				if !st.fresh || pos >= st.covered { // else it is the jump that goes on
					st.cs.At(&st.ix.Object, i, 1)
				}
			}
			continue
		}
		if b.BaseOffset() >= below {
			run.ended = need && below == st.entry.End
			return run, nil
		}
		if have := run.end - run.start; have+size > int64(r.MaxBytes) && !(need && r.MinOne) ||
			!need && (pos+size-1)/BlockSize-run.start/BlockSize >= coldMaxBlocks {
			return run, nil
		}
		base, txn := b.BaseOffset(), b.IsTransactional() && !b.IsControl()
		whole, err := w.whole(pos, size, need)
		if !whole {
			return run, err
		}
		if need {
			run.start, run.first, need = pos, base, false
		}
		run.txn = run.txn || txn
		pos += size
		run.end, run.last = pos, next
	}
	run.ended = need
	return run, nil
}

// check checks the header of the batch at pos: that it can be there (T5).
func (st *coldStream) check(h []byte, pos int64) (size, next int64, err error) {
	n, err := batch.Peek(h)
	if err != nil {
		return 0, 0, errColdAstray
	}
	b := batch.Batch(h)
	size, next = int64(n), b.NextOffset()
	if pos+size > st.ix.Size || b.BaseOffset() < st.ix.fileBase || b.LastOffsetDelta() < 0 || next > st.ix.end {
		return 0, 0, errColdAstray
	}
	return size, next, nil
}

// entryEnds moves on to the entry that follows, which read-ahead may know.
func (st *coldStream) entryEnds() {
	end := st.entry.End
	st.next = max(st.next, end)
	st.m, st.entry, st.ix, st.plain = nil, nil, nil, false
	if len(st.ahead) > 0 && st.ahead[0].entry.Base == end {
		a := st.ahead[0]
		st.m, st.entry, st.ix = a.m, a.entry, a.ix
		st.pos = a.ix.position(a.entry.Base)
		st.cs.At(&a.ix.Object, int(st.pos/BlockSize), 1)
		st.ahead = st.ahead[1:]
	} else {
		st.ahead = nil
	}
}

// readAhead tells the cache which objects follow, as far as the reader will soon
// want them, and fetches their indexes. It never waits and fails silently: the
// read that needs them will not.
func (st *coldStream) readAhead(localStart int64) {
	if st.entry == nil || st.ix == nil {
		return
	}
	for len(st.ahead) < 2 {
		known, soon := st.cs.NeedsNext()
		if known == 0 || !soon {
			return
		}
		end := st.entry.End
		if n := len(st.ahead); n > 0 {
			end = st.ahead[n-1].entry.End
		}
		if end >= localStart {
			return
		}
		m, _, err := st.s.manifest()
		if m == nil || err != nil {
			return
		}
		ref, e := m.Locate(end)
		if ref != nil {
			page, _, err := st.s.page(m, ref)
			if page == nil || err != nil {
				return
			}
			e = page.Find(end)
		}
		if e == nil || e.Base != end {
			return
		}
		ix, _, err := st.c.indexes.index(st.s.Part, e)
		if ix == nil || err != nil {
			return
		}
		st.ahead = append(st.ahead, coldAhead{m, e, ix})
		st.cs.Next(&ix.Object)
	}
}
