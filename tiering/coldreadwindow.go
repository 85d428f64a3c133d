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
	seek    bool // what is asked for is enough, else a block must be whole behind it
	first   int  // the block that blocks[0] is
	blocks  []*cache.Block
	array   [4]*cache.Block // blocks, as a rule
	wait    <-chan struct{} // of the first needed block that is not here
	scratch [batch.HeaderSize]byte
}

// block returns block i if bytes [from, to) of it are here; blocks come in order.
// A needed one that is not is started.
func (w *coldWindow) block(i, from, to int, need bool) (*cache.Block, error) {
	if !w.seek {
		to = w.len(i)
	}
	if k := i - w.first; k < len(w.blocks) && w.blocks[k].Has(from, to) {
		return w.blocks[k], nil
	}
	b, wait, err := w.cs.Part(&w.ix.Object, i, from, to, need)
	if err != nil {
		return nil, err
	}
	if b == nil {
		if w.wait == nil {
			w.wait = wait
		}
		return nil, nil
	}
	switch k := i - w.first; {
	case k < len(w.blocks): // more of it has come, or it is another one by now
		w.blocks[k].Release()
		w.blocks[k] = b
	case k == len(w.blocks):
		if w.blocks == nil {
			w.blocks = w.array[:0]
		}
		w.blocks = append(w.blocks, b)
	default: // one before it is missing: it was worth asking
		b.Release()
		return nil, nil
	}
	return b, nil
}

// len is the length of block i.
func (w *coldWindow) len(i int) int { return int(min(BlockSize, w.ix.Size-int64(i)*BlockSize)) }

// header is the header of the batch at pos, nil if it is not all here. It is good
// until the next call.
func (w *coldWindow) header(pos int64, need bool) ([]byte, error) {
	if pos+batch.HeaderSize > w.ix.Size {
		return nil, errColdAstray
	}
	if ok, err := w.whole(pos, batch.HeaderSize, need); !ok {
		return nil, err
	}
	i, at := int(pos/BlockSize)-w.first, int(pos%BlockSize)
	if b := w.blocks[i]; b.Bytes() != nil && at+batch.HeaderSize <= b.Len() {
		return b.Bytes()[at:][:batch.HeaderSize], nil
	}
	if err := w.copy(w.scratch[:], pos); err != nil {
		return nil, err
	}
	return w.scratch[:], nil
}

// whole tells whether size bytes from pos are here. All needed blocks that are
// not are started at once.
func (w *coldWindow) whole(pos, size int64, need bool) (bool, error) {
	here, end := true, pos+size
	for i := int(pos / BlockSize); i <= int((end-1)/BlockSize); i++ {
		off := int64(i) * BlockSize
		b, err := w.block(i, int(max(0, pos-off)), int(min(BlockSize, end-off)), need)
		if err != nil {
			return false, err
		}
		if here = here && b != nil; !here && !need {
			return false, nil
		}
	}
	return here, nil
}

// copy fills p with what is at pos, which is here.
func (w *coldWindow) copy(p []byte, pos int64) error {
	for len(p) > 0 {
		b, at := w.blocks[int(pos/BlockSize)-w.first], int(pos%BlockSize)
		n := min(len(p), b.Len()-at)
		if err := b.Copy(p[:n], at); err != nil {
			return err
		}
		p, pos = p[n:], pos+int64(n)
	}
	return nil
}

// more is what to wait for to read on at pos; nil if that is here, or if there is
// nothing more.
func (w *coldWindow) more(pos int64) <-chan struct{} {
	if pos >= w.ix.Size {
		return nil
	}
	i := int(pos / BlockSize)
	for _, need := range []bool{false, true} {
		b, wait, err := w.cs.Part(&w.ix.Object, i, int(pos%BlockSize), w.len(i), need)
		if b != nil {
			b.Release()
		}
		if b != nil || err != nil || need {
			return wait
		}
	}
	return nil
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
		parts = addPart(parts, b, int(max(0, from-off)), int(min(BlockSize, to-off)))
	}
	return segment.NewRecords(func() {
		for _, b := range pins {
			b.Release()
		}
	}, parts...)
}

// addPart adds bytes [from, to) of b: to the last part, where they go on in the
// same file.
func addPart(parts []segment.Part, b *cache.Block, from, to int) []segment.Part {
	f, off := b.File()
	if f == nil {
		return append(parts, segment.Part{Mem: b.Bytes()[from:to], Len: to - from})
	}
	off += int64(from)
	if k := len(parts) - 1; k >= 0 && parts[k].File == f && parts[k].Off+int64(parts[k].Len) == off {
		parts[k].Len += to - from
		return parts
	}
	return append(parts, segment.Part{File: f, Off: off, Len: to - from})
}
