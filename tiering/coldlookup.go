package tiering

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"firn/segment"
	"firn/segment/batch"
)

// FirstAt finds the first record in [from, below) whose timestamp is at least ts.
// Entries are tried in order of offset, by their own maximum: the first that
// reaches ts is where the running maximum of the whole archive does, and where
// that record lies before from, the search goes on from there by record and then
// by each later entry's maximum (D11). One entry costs its index and, as a rule,
// one GET of its segment.
func (c *coldReads) FirstAt(ctx context.Context, s *source, ts, from, below int64) (segment.TimeOffset, error) {
	l := c.lookup(ctx, s)
	defer l.close()
	for from < below {
		m, err := l.manifest()
		if err != nil {
			return segment.TimeOffset{}, err
		}
		from = max(from, m.LogStart)
		ref, e := m.FirstAtTime(ts, from)
		if ref != nil {
			page, err := l.page(m, ref)
			if err == errColdAgain {
				continue
			}
			if err != nil {
				return segment.TimeOffset{}, err
			}
			if e = page.FirstAtTime(ts, from); e == nil {
				from = ref.End
				continue
			}
		}
		if e == nil || e.Base >= below {
			break
		}
		found, err := l.firstIn(m, e, ts, max(from, e.Base), min(below, e.End))
		if err == errColdAgain {
			continue
		}
		if err != nil || found.Offset >= 0 {
			return found, err
		}
		from = e.End
	}
	return segment.TimeOffset{Timestamp: -1, Offset: -1, Epoch: -1}, nil
}

// MaxAt finds the first record in [from, below) with the largest timestamp there.
// What the manifest says of an entry is the maximum of its file; the records that
// it serves, or that lie in the range, may have a lower one. So entries and pages
// are looked into from the highest promise down, until none left can hold more.
func (c *coldReads) MaxAt(ctx context.Context, s *source, from, below int64) (segment.TimeOffset, error) {
	l := c.lookup(ctx, s)
	defer l.close()
	for {
		best, err := l.maxIn(from, below)
		if err != errColdAgain {
			return best, err
		}
	}
}

// promise is an entry or a page, and the maximum that it may hold.
type promise struct {
	ts, base int64
	ref      *PageRef
	entry    *Entry
}

func (l *coldLookup) maxIn(from, below int64) (segment.TimeOffset, error) {
	best := segment.TimeOffset{Timestamp: -1, Offset: -1, Epoch: -1}
	m, err := l.manifest()
	if err != nil {
		return best, err
	}
	from = max(from, m.LogStart)
	var list []promise
	for i := range m.Pages {
		if p := &m.Pages[i]; p.End > from && p.Base < below {
			list = append(list, promise{ts: p.MaxTime, base: p.Base, ref: p})
		}
	}
	list = addPromises(list, m.Entries, from, below)
	highest := func(a, b promise) int { return cmp.Or(cmp.Compare(b.ts, a.ts), cmp.Compare(a.base, b.base)) }
	slices.SortFunc(list, highest)
	for len(list) > 0 {
		p := list[0]
		list = list[1:]
		if best.Offset >= 0 && (p.ts < best.Timestamp || p.ts == best.Timestamp && p.base > best.Offset) {
			if p.ts < best.Timestamp {
				break
			}
			continue
		}
		if p.ref != nil {
			page, err := l.page(m, p.ref)
			if err != nil {
				return best, err
			}
			list = addPromises(list, page.Entries, from, below)
			slices.SortFunc(list, highest)
			continue
		}
		found, err := l.maxOf(m, p.entry, max(from, p.entry.Base), min(below, p.entry.End))
		if err != nil {
			return best, err
		}
		if found.Offset >= 0 && (best.Offset < 0 || found.Timestamp > best.Timestamp ||
			found.Timestamp == best.Timestamp && found.Offset < best.Offset) {
			best = found
		}
	}
	return best, nil
}

func addPromises(list []promise, entries []Entry, from, below int64) []promise {
	for i := range entries {
		if e := &entries[i]; e.End > from && e.Base < below {
			list = append(list, promise{ts: e.MaxTime, base: e.Base, entry: e})
		}
	}
	return list
}

// coldLookup is one lookup by time. It may wait, until its caller's ctx ends.
type coldLookup struct {
	ctx context.Context // the caller's: a lookup lives inside one call
	c   *coldReads
	s   *source
	st  *coldStream

	covered int // the block up to which the scan has asked for blocks
}

// errColdAgain: an object was not what the manifest says; the manifest has been
// resolved anew, begin again with it.
var errColdAgain = errors.New("tiering: manifest was resolved anew")

func (c *coldReads) lookup(ctx context.Context, s *source) *coldLookup {
	p := c.partition(s)
	st := &coldStream{p: p, c: c, s: s, cs: c.cfg.Cache.NewStream()}
	return &coldLookup{ctx: ctx, c: c, s: s, st: st}
}

func (l *coldLookup) close() { l.st.cs.Close() }

func (l *coldLookup) manifest() (*Manifest, error) {
	m, err := await(l.ctx, l.s.manifest)
	return m, coldError(err)
}

func (l *coldLookup) page(m *Manifest, ref *PageRef) (*Page, error) {
	page, err := await(l.ctx, func() (*Page, <-chan struct{}, error) { return l.s.page(m, ref) })
	if err == nil || !gone(err) {
		return page, coldError(err)
	}
	wait, err := l.st.p.missing(m, ref.Key(l.s.Part), ref.Base, ref.End, err)
	if err == nil {
		err = l.wait(wait)
	}
	if err == nil {
		err = errColdAgain
	}
	return nil, err
}

// open makes the stream read entry e.
func (l *coldLookup) open(m *Manifest, e *Entry) error {
	st := l.st
	st.m, st.entry, st.ix, st.next = m, e, nil, e.Base
	for {
		wait, err := st.find()
		if err != nil {
			return err
		}
		if wait == nil {
			return nil
		}
		if err := l.wait(wait); err != nil {
			return err
		}
		if st.entry == nil {
			return errColdAgain
		}
	}
}

func (l *coldLookup) wait(ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// firstIn finds the first record of e in [from, below) with a timestamp of at
// least ts.
func (l *coldLookup) firstIn(m *Manifest, e *Entry, ts, from, below int64) (segment.TimeOffset, error) {
	found := segment.TimeOffset{Timestamp: -1, Offset: -1, Epoch: -1}
	if err := l.open(m, e); err != nil {
		return found, err
	}
	ix := l.st.ix
	start := max(from, ix.timeFloor(ts))
	err := l.scan(start, below, ix.timeCeiling(ts), func(b batch.Batch) bool { return b.MaxTimestamp() >= ts }, func(b batch.Batch) bool {
		walkTimes(b, from, below, func(offset, t int64) bool {
			if t >= ts {
				found = segment.TimeOffset{Timestamp: t, Offset: offset, Epoch: b.LeaderEpoch()}
			}
			return t >= ts
		})
		return found.Offset >= 0
	})
	return found, err
}

// walkTimes visits offset and timestamp of b's records in [from, below), until
// visit returns true. Records that can't be decoded are their producer's mistake
// and their consumer's trouble: here the batch counts as one record, as its
// header tells it.
func walkTimes(b batch.Batch, from, below int64, visit func(offset, ts int64) bool) {
	any := false
	err := batch.Walk(b, batch.Limit{}, func(r batch.Record) error {
		if r.Offset < from || r.Offset >= below {
			return nil
		}
		any = true
		if visit(r.Offset, r.Timestamp) {
			return batch.Stop
		}
		return nil
	})
	if err != nil && !any {
		visit(max(from, b.BaseOffset()), b.MaxTimestamp())
	}
}

// maxOf finds the first record of e in [from, below) with the largest timestamp
// there. Nearly always that is what the manifest promises; if it lies outside the
// range, all of the range is looked through.
func (l *coldLookup) maxOf(m *Manifest, e *Entry, from, below int64) (segment.TimeOffset, error) {
	found, err := l.firstIn(m, e, e.MaxTime, from, below)
	if err != nil || found.Offset >= 0 {
		return found, err
	}
	err = l.scan(from, below, below, func(b batch.Batch) bool {
		return found.Offset < 0 || b.MaxTimestamp() > found.Timestamp
	}, func(b batch.Batch) bool {
		walkTimes(b, from, below, func(offset, t int64) bool {
			if found.Offset < 0 || t > found.Timestamp {
				found = segment.TimeOffset{Timestamp: t, Offset: offset, Epoch: b.LeaderEpoch()}
			}
			return false
		})
		return false
	})
	return found, err
}

// scanBlocks bounds what a lookup asks for with its first GET.
const scanBlocks = 16

// scan goes through the batches of the open entry that hold offsets in
// [from, below): those of which want says so by their header are handed to visit
// whole, until it returns true, which is expected by offset likely: what lies
// before that is brought by one GET.
func (l *coldLookup) scan(from, below, likely int64, want, visit func(batch.Batch) bool) error {
	st := l.st
	st.next, st.pos = from, st.ix.position(from)
	if st.plain {
		st.pos = 0
	}
	width := l.width(min(below, likely))
	st.cs.At(&st.ix.Object, int(st.pos/BlockSize), width)
	l.covered = int(st.pos/BlockSize) + width
	var buf []byte
	for st.pos < st.ix.Size {
		w := coldWindow{cs: st.cs, ix: st.ix, first: int(st.pos / BlockSize)}
		done, err := l.step(&w, below, &buf, want, visit)
		wait := w.wait
		w.release()
		again := error(nil)
		if err != nil {
			if wait, err = st.failed(st.ix.Key, err); err != nil {
				return err
			}
			again = errColdAgain
		}
		if done {
			return nil
		}
		if wait != nil {
			if err := l.wait(wait); err != nil {
				return err
			}
		}
		if again != nil {
			return again
		}
	}
	return nil
}

// width is how many blocks it takes from the stream's position to offset.
func (l *coldLookup) width(offset int64) int {
	ix := l.st.ix
	to := min(ix.position(offset)+coldMarkBytes+coldMarkBytes/2, ix.Size-1)
	return min(max(int(to/BlockSize-l.st.pos/BlockSize)+1, 1), scanBlocks)
}

// step looks at the batch at the stream's position, and moves on behind it if it
// is here. It reports whether the scan is over.
func (l *coldLookup) step(w *coldWindow, below int64, buf *[]byte, want, visit func(batch.Batch) bool) (done bool, err error) {
	st := l.st
	h, err := w.header(st.pos, true)
	if h == nil {
		return false, err
	}
	size, next, err := st.check(h, st.pos)
	if err != nil {
		return false, err
	}
	b := batch.Batch(h)
	if b.BaseOffset() >= below {
		return true, nil
	}
	if next > st.next && want(b) {
		if whole, err := w.whole(st.pos, size, true); !whole {
			return false, err
		}
		b, err := w.join(st.pos, size, buf)
		if err != nil {
			return false, err
		}
		if visit(batch.Batch(b)) {
			return true, nil
		}
	}
	st.pos += size
	if st.pos < st.ix.Size && int(st.pos/BlockSize) >= l.covered { // no read-ahead before
		st.cs.At(&st.ix.Object, int(st.pos/BlockSize), 1)
	}
	return false, nil
}

// join is the bytes of [pos, pos+size), which are here, in one piece: in place or
// in buf.
func (w *coldWindow) join(pos, size int64, buf *[]byte) ([]byte, error) {
	at := pos % BlockSize
	if b := w.blocks[int(pos/BlockSize)-w.first]; b.Bytes() != nil && at+size <= int64(b.Len()) {
		return b.Bytes()[at : at+size : at+size], nil
	}
	*buf = slices.Grow((*buf)[:0], int(size))[:size]
	return *buf, w.copy(*buf, pos)
}
