package cache

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"firn/tiering/objstore"
)

// TestSeekIsServedBeforeItsBlockIsHere: a jump brings what lies behind it alone,
// and needs no more than its own units to be here.
func TestSeekIsServedBeforeItsBlockIsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		o := s.put(t, "o", 4<<20)
		const from, to = 2<<20 + 300_000, 2<<20 + 400_000
		const skip, need = 4 * UnitSize, 7 * UnitSize // in block 2
		s.fault = func(op objstore.Op) objstore.Fault {
			if op.Off != 2<<20+skip || op.N != BlockSize-skip {
				t.Errorf("a GET of [%d, %d)", op.Off, op.Off+op.N)
			}
			return objstore.Fault{}
		}
		hold := make(chan struct{})
		c := open(t, Config{Store: &slowStore{Store: s.store, after: need - skip, hold: hold}})
		st := c.NewStream()
		defer st.Close()
		st.Seek(o, from, to)
		b, wait, err := st.Part(o, 2, from%BlockSize, to%BlockSize, true)
		if b != nil || err != nil {
			t.Fatalf("here %v, err %v", b != nil, err)
		}
		<-wait
		if b, _, err = st.Part(o, 2, from%BlockSize, to%BlockSize, true); b == nil || err != nil {
			t.Fatalf("here %v, err %v", b != nil, err)
		}
		if !bytes.Equal(b.Bytes()[skip:need], s.block(o, 2)[skip:need]) {
			t.Error("other bytes")
		}
		if b.Has(from%BlockSize, need+1) || b.Has(skip-1, need) {
			t.Error("it has more than has come")
		}
		defer b.Release()
		_, wait, _ = st.Part(o, 2, to%BlockSize, BlockSize, true)
		synctest.Wait()
		select {
		case <-wait:
			t.Error("the rest is said to be here")
		default:
		}
		close(hold)
		<-wait
		rest, _, err := st.Part(o, 2, to%BlockSize, BlockSize, true)
		if rest == nil || err != nil {
			t.Fatalf("the rest: here %v, err %v", rest != nil, err)
		}
		rest.Release()
		if s.gets.Load() != 1 {
			t.Errorf("%d GETs, want 1", s.gets.Load())
		}
		// Who needs the head has the block brought again, and gets it whole.
		s.fault = nil
		if err := s.read(st, o, 2); err != nil {
			t.Error(err)
		}
		if s.gets.Load() != 2 {
			t.Errorf("%d GETs with the head, want 2", s.gets.Load())
		}
	})
}

// TestDamagedUnitIsBroughtAgain: from itself on, and not the ones before it.
func TestDamagedUnitIsBroughtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		o := s.put(t, "o", 1<<20)
		c := open(t, Config{Store: s.store})
		for _, times := range []int64{1, 2} {
			var offs []int64
			s.fault = func(op objstore.Op) objstore.Fault {
				if offs = append(offs, op.Off); int64(len(offs)) > times {
					return objstore.Fault{}
				}
				return objstore.Fault{Corrupt: func(off int64, b []byte) {
					if at := int64(9*UnitSize + 5); at >= off && at < off+int64(len(b)) {
						b[at-off] ^= 1
					}
				}}
			}
			b, err := c.Fetch(t.Context(), o, 0)
			if times == 1 {
				if err != nil || len(offs) != 2 || offs[1] != 9*UnitSize {
					t.Fatalf("GETs from %d, err %v", offs, err)
				}
				b.Release()
				c.Forget(o)
			} else if !errors.Is(err, ErrCorrupt) {
				t.Errorf("damaged twice: %v", err)
			}
		}
	})
}

// TestOldObjectsAreVerifiedByTheBlock: without checksums of units.
func TestOldObjectsAreVerifiedByTheBlock(t *testing.T) {
	s := newShelf()
	o := s.put(t, "o", 3<<20+5)
	o.Units = nil
	c := open(t, Config{Store: s.store})
	if err := s.scan(c, []*Object{o}, nil); err != nil {
		t.Error(err)
	}
	c.Forget(o)
	st := c.NewStream()
	defer st.Close()
	st.Seek(o, 1<<20+300_000, 1<<20+300_100)
	if err := s.part(st, o, 1, 300_000, 300_100); err != nil {
		t.Error(err)
	}
	o.Sums[2]++
	if err := s.read(st, o, 2); !errors.Is(err, ErrCorrupt) {
		t.Errorf("wrong checksum: %v", err)
	}
}

func TestRandomSeeksSeeTheirBytes(t *testing.T) {
	s := newShelf()
	objs := s.fill(t, 2, 6)
	s.fault = sometimes(12)
	c := open(t, Config{Store: s.store, Memory: 8 << 20, Gets: 6})
	var wg sync.WaitGroup
	for r := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(r)))
			for range 40 {
				st := c.NewStream()
				o := objs[rng.IntN(len(objs))]
				from := rng.Int64N(o.Size - 1)
				to := min(from+1+rng.Int64N(2*BlockSize), o.Size)
				st.Seek(o, from, to)
				for i := from / BlockSize; i <= (to-1)/BlockSize; i++ {
					off := i * BlockSize
					err := s.part(st, o, int(i), int(max(0, from-off)), int(min(BlockSize, to-off)))
					if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrCorrupt) {
						t.Error(err)
					}
				}
				st.Close()
			}
		})
	}
	wg.Wait()
	c.Close()
	c.checkAccounts(t)
}
