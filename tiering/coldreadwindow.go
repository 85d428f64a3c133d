package tiering

import (
	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/cache"
)

// coldWindow is the run of pinned blocks that one read looks through.
type coldWindow struct {
	cs      *cache.Stream
	ix      *coldIndex
	first   int // the block that blocks[0] is
	blocks  []*cache.Block
	array   [4]*cache.Block // blocks, as a rule
	wait    <-chan struct{} // of the first needed block that is not here
	scratch [batch.HeaderSize]byte
}

// block returns block i if it is here; blocks come in order. A needed one that
// is not is started.
func (w *coldWindow) block(i int, need bool) (*cache.Block, error) {
	for w.first+len(w.blocks) <= i {
		b, wait, err := w.cs.Get(&w.ix.Object, w.first+len(w.blocks), need)
		if err != nil {
			return nil, err
		}
		if b == nil {
			if w.wait == nil {
				w.wait = wait
			}
			return nil, nil
		}
		if w.blocks == nil {
			w.blocks = w.array[:0]
		}
		w.blocks = append(w.blocks, b)
	}
	return w.blocks[i-w.first], nil
}

// header is the header of the batch at pos, nil if it is not all here. It is good
// until the next call.
func (w *coldWindow) header(pos int64, need bool) ([]byte, error) {
	end := pos + batch.HeaderSize
	if end > w.ix.Size {
		return nil, errColdAstray
	}
	b, err := w.block(int(pos/BlockSize), need)
	if b == nil {
		return nil, err
	}
	at := int(pos % BlockSize)
	if h := b.Bytes()[at:]; len(h) >= batch.HeaderSize {
		return h[:batch.HeaderSize], nil
	} else if rest, err := w.block(int(end-1)/BlockSize, need); rest == nil {
		return nil, err
	} else {
		n := copy(w.scratch[:], h)
		copy(w.scratch[n:], rest.Bytes())
		return w.scratch[:], nil
	}
}

// whole tells whether size bytes from pos are here. All needed blocks that are
// not are started at once.
func (w *coldWindow) whole(pos, size int64, need bool) (bool, error) {
	last := int((pos + size - 1) / BlockSize)
	b, err := w.block(last, need)
	if b != nil || err != nil || !need {
		return b != nil, err
	}
	for i := w.first + len(w.blocks) + 1; i <= last; i++ {
		if b, _, err := w.cs.Get(&w.ix.Object, i, true); err != nil {
			return false, err
		} else if b != nil {
			b.Release()
		}
	}
	return false, nil
}

// more is what to wait for to read on at pos; nil if that is here, or if there is
// nothing more.
func (w *coldWindow) more(pos int64) <-chan struct{} {
	if pos >= w.ix.Size {
		return nil
	}
	b, wait, err := w.cs.Get(&w.ix.Object, int(pos/BlockSize), false)
	if err == nil && b == nil {
		_, wait, _ = w.cs.Get(&w.ix.Object, int(pos/BlockSize), true)
	}
	if b != nil {
		b.Release()
	}
	return wait
}

// drop unpins the blocks before block i.
func (w *coldWindow) drop(i int) {
	for w.first < i && len(w.blocks) > 0 {
		w.blocks[0].Release()
		w.blocks = w.blocks[1:]
		w.first++
	}
	w.first = i
}

func (w *coldWindow) release() {
	for _, b := range w.blocks {
		b.Release()
	}
	w.blocks = nil
}

// records makes Records of [from, to), which keep their blocks pinned.
func (w *coldWindow) records(from, to int64) segment.Records {
	i, last := int(from/BlockSize), int((to-1)/BlockSize)
	pins := make([]*cache.Block, 0, last-i+1)
	parts := make([]segment.Part, 0, last-i+1)
	for ; i <= last; i++ {
		b := w.blocks[i-w.first]
		b.Retain()
		pins = append(pins, b)
		off := int64(i) * BlockSize
		mem := b.Bytes()[max(0, from-off):min(BlockSize, to-off)]
		parts = append(parts, segment.Part{Mem: mem, Len: len(mem)})
	}
	return segment.NewRecords(func() {
		for _, b := range pins {
			b.Release()
		}
	}, parts...)
}
