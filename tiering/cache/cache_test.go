package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"firn/tiering/objstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is a store with objects in it, its faults, and a count of its GETs.
type shelf struct {
	mem   *objstore.Mem
	store *objstore.Faulty
	fault func(objstore.Op) objstore.Fault
	gets  atomic.Int64
	data  map[string][]byte
}

func newShelf() *shelf {
	s := &shelf{mem: objstore.NewMem(), data: make(map[string][]byte)}
	s.store = objstore.Inject(s.mem, func(op objstore.Op) objstore.Fault {
		if op.Kind == objstore.OpGet {
			s.gets.Add(1)
		}
		if s.fault != nil {
			return s.fault(op)
		}
		return objstore.Fault{}
	})
	return s
}

func always(f objstore.Fault) func(objstore.Op) objstore.Fault {
	return func(objstore.Op) objstore.Fault { return f }
}

// sometimes makes three of n operations fail, each in another way.
func sometimes(n int) func(objstore.Op) objstore.Fault {
	return func(op objstore.Op) objstore.Fault {
		switch rand.N(n) {
		case 0:
			return objstore.Fault{Before: errors.New("500")}
		case 1:
			return objstore.Fault{Cut: errors.New("reset"), CutAt: rand.Int64N(op.N)}
		case 2:
			return objstore.Fault{Corrupt: func(off int64, b []byte) { b[rand.N(len(b))] ^= 4 }}
		}
		return objstore.Fault{}
	}
}

// put stores an object of n bytes, of which no block equals another.
func (s *shelf) put(t testing.TB, key string, n int) *Object {
	t.Helper()
	b := make([]byte, n)
	seed := [32]byte{}
	copy(seed[:], key)
	if _, err := rand.NewChaCha8(seed).Read(b); err != nil {
		t.Fatal(err)
	}
	if err := s.mem.Put(context.Background(), key, bytes.NewReader(b), int64(n)); err != nil {
		t.Fatal(err)
	}
	s.data[key] = b
	o := &Object{Key: key, Size: int64(n)}
	for ; len(b) > 0; b = b[min(len(b), BlockSize):] {
		block := b[:min(len(b), BlockSize)]
		o.Sums = append(o.Sums, Sum(block))
		for ; len(block) > 0; block = block[min(len(block), UnitSize):] {
			o.Units = append(o.Units, Sum(block[:min(len(block), UnitSize)]))
		}
	}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	return o
}

// block is what block i of o must hold.
func (s *shelf) block(o *Object, i int) []byte {
	return s.data[o.Key][i*BlockSize:][:o.blockLen(i)]
}

func open(t testing.TB, cfg Config) *Cache {
	t.Helper()
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.pool.poison = true
	t.Cleanup(func() { c.Close() })
	return c
}

// read is one step of a reader: it waits for block i and checks it.
func (s *shelf) read(st *Stream, o *Object, i int) error {
	st.At(o, i, 1)
	return s.part(st, o, i, 0, o.blockLen(i))
}

// part waits for a part of a block and checks it.
func (s *shelf) part(st *Stream, o *Object, i, from, to int) error {
	for {
		b, wait, err := st.Part(o, i, from, to, true)
		if err != nil {
			return err
		}
		if b == nil {
			<-wait
			continue
		}
		defer b.Release()
		if got, err := content(b, from, to); err != nil || !bytes.Equal(got, s.block(o, i)[from:to]) {
			return fmt.Errorf("block %d of %s has other bytes, or fails with %v", i, o.Key, err)
		}
		return nil
	}
}

// content is bytes [from, to) of b, wherever it lies.
func content(b *Block, from, to int) ([]byte, error) {
	p := make([]byte, to-from)
	return p, b.Copy(p, from)
}

// scan reads all of objs, one after the other.
func (s *shelf) scan(c *Cache, objs []*Object, step func()) error {
	st := c.NewStream()
	defer st.Close()
	for k, o := range objs {
		for i := range o.Blocks() {
			if err := s.read(st, o, i); err != nil {
				return err
			}
			if known, soon := st.NeedsNext(); soon && known < 3 && k+known < len(objs) {
				st.Next(objs[k+known])
			}
			if step != nil {
				step()
			}
		}
	}
	return nil
}

func (s *shelf) fill(t testing.TB, n, mib int) (objs []*Object) {
	for k := range n {
		objs = append(objs, s.put(t, fmt.Sprintf("o%02d.log", k), mib<<20-77))
	}
	return objs
}

// fetch brings block i of o and checks it.
func (s *shelf) fetch(t testing.TB, c *Cache, o *Object, i int) *Block {
	t.Helper()
	b, err := c.Fetch(t.Context(), o, i)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), s.block(o, i)) {
		t.Fatalf("block %d of %s has other bytes", i, o.Key)
	}
	return b
}

// checkAccounts checks that memory, slots and queue of a closed cache are what
// its blocks account for.
func (c *Cache) checkAccounts(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	held := int64(0)
	for _, o := range c.mu.objects {
		for _, e := range o.blocks {
			if e.state == ready {
				held += bufferSize(e.blk.n)
			}
		}
	}
	if c.mu.used != held || c.mu.gets != 0 || len(c.mu.waiting) != 0 {
		t.Errorf("%d bytes in use, %d held; %d slots taken; %d waiting", c.mu.used, held, c.mu.gets, len(c.mu.waiting))
	}
}

func TestScanTakesFewGetsPerObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		objs := s.fill(t, 2, 64)
		c := open(t, Config{Store: s.store})
		if err := s.scan(c, objs, nil); err != nil {
			t.Fatal(err)
		}
		// 1, 3, 8, 20 and the rest of the first, then two each.
		if got, want := s.gets.Load(), int64(5+2); got > want {
			t.Errorf("%d GETs, want at most %d", got, want)
		}
	})
}

func TestGetsEndAtBordersThatAllReadersShare(t *testing.T) {
	for _, tt := range []struct {
		name                    string
		from, first, most, size int
		want                    []int // where the GETs end
	}{
		{"from the start", 0, 1, 32, 64, []int{1, 4, 12, 32, 64}},
		{"a replay", 0, 8, 32, 64, []int{8, 32, 64}},
		{"from the middle", 41, 1, 32, 64, []int{42, 44, 48, 64}},
		{"from before a border", 31, 2, 32, 64, []int{33, 36, 44, 64}},
		{"an odd size", 0, 8, 32, 33, []int{8, 17, 33}},
		{"a small one", 0, 8, 32, 5, []int{5}},
		{"a slow reader", 3, 1, 4, 16, []int{4, 6, 8, 12, 16}},
		{"the same, somewhere else", 4, 1, 4, 16, []int{5, 8, 12, 16}},
	} {
		i := min(tt.from+tt.first, tt.size)
		got := []int{i}
		for i < tt.size {
			i += getLen(i, i-tt.from+1, tt.most, tt.size, 32)
			got = append(got, i)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: GETs end at %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestReadersOfTheSameDataShareItsLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		objs := s.fill(t, 2, 32)
		c := open(t, Config{Store: s.store})
		if err := s.scan(c, objs, nil); err != nil {
			t.Fatal(err)
		}
		alone := s.gets.Swap(0)

		c = open(t, Config{Store: s.store})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := s.scan(c, objs, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := s.gets.Load(); got > alone {
			t.Errorf("4 readers took %d GETs, one takes %d", got, alone)
		}
	})
}

func TestBlockIsServedBeforeItsGetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		o := s.put(t, "o", 16<<20)
		hold := make(chan struct{})
		store := &slowStore{Store: s.store, after: 3 * BlockSize, hold: hold}
		c := open(t, Config{Store: store})
		st := c.NewStream()
		defer st.Close()
		c.mu.Lock()
		c.startLocked(c.objectLocked(o), 0, 16, 0)
		st.window = 16
		c.mu.Unlock()
		c.mu.Lock()
		for _, l := range c.mu.waiting {
			l.demandTo = 16
		}
		c.admitLocked()
		c.mu.Unlock()
		synctest.Wait()
		for i := range 4 {
			b, wait, err := st.Get(o, i, true)
			if err != nil || (b != nil) != (i < 3) || (wait != nil) != (i == 3) {
				t.Fatalf("block %d: here %v, wait %v, err %v", i, b != nil, wait != nil, err)
			}
			if b != nil {
				b.Release()
			}
		}
		close(hold)
	})
}

func TestDownloadOutlivesWhoAskedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		o := s.put(t, "o", 2<<20)
		s.fault = always(objstore.Fault{Delay: 3 * time.Second})
		c := open(t, Config{Store: s.store})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := c.Fetch(ctx, o, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want the deadline's error", err)
		}
		time.Sleep(3 * time.Second)
		s.fetch(t, c, o, 1).Release()
		if s.gets.Load() != 1 {
			t.Errorf("%d GETs, want 1", s.gets.Load())
		}
	})
}

func TestFailuresAreToldApart(t *testing.T) {
	outage := errors.New("503 slow down")
	times := func(n int64, f objstore.Fault) func(objstore.Op) objstore.Fault {
		var k atomic.Int64
		return func(objstore.Op) objstore.Fault {
			if k.Add(1) <= n {
				return f
			}
			return objstore.Fault{}
		}
	}
	flip := func(off int64, b []byte) {
		if off == 0 {
			b[0] ^= 1
		}
	}
	for _, tt := range []struct {
		name  string
		fault func(objstore.Op) objstore.Fault
		want  error
	}{
		{"two 5xx", times(2, objstore.Fault{Before: outage}), nil},
		{"store down", times(1000, objstore.Fault{Before: outage}), ErrUnavailable},
		{"one short reply", times(1, objstore.Fault{Cut: errors.New("reset"), CutAt: 1000}), nil},
		{"short replies", times(1000, objstore.Fault{Cut: errors.New("reset"), CutAt: 1000}), ErrUnavailable},
		{"corrupt once", times(1, objstore.Fault{Corrupt: flip}), nil},
		{"corrupt", times(1000, objstore.Fault{Corrupt: flip}), ErrCorrupt},
		{"not found", times(1000, objstore.Fault{Before: objstore.ErrNotFound}), objstore.ErrNotFound},
		{"too short", times(1000, objstore.Fault{Before: objstore.ErrRange}), ErrCorrupt},
		{"stalls once", times(1, objstore.Fault{Delay: time.Hour}), nil},
		{"stalls", times(1000, objstore.Fault{Delay: time.Hour}), ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf()
				o := s.put(t, "o", BlockSize+5)
				s.fault = tt.fault
				c := open(t, Config{Store: s.store})
				b, err := c.Fetch(t.Context(), o, 0)
				if !errors.Is(err, tt.want) {
					t.Fatalf("got %v, want %v", err, tt.want)
				}
				if b != nil {
					if !bytes.Equal(b.Bytes(), s.block(o, 0)) {
						t.Error("wrong bytes")
					}
					b.Release()
				}
				s.fault = nil
				time.Sleep(breakMax + failedFor + 2*time.Second)
				s.fetch(t, c, o, 0).Release()
				if _, err := c.Getter().Read(t.Context(), "o", BlockSize, 5, o.Sums[1]); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestStoreThatFailsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		o := s.put(t, "o", 8<<20)
		s.fault = always(objstore.Fault{Before: errors.New("down")})
		c := open(t, Config{Store: s.store})
		for i := range 2 {
			if _, err := c.Fetch(t.Context(), o, i); !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
		}
		asked := s.gets.Load()
		for i := range 100 {
			if _, err := c.Fetch(t.Context(), o, i%8); !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if got := s.gets.Load() - asked; got > 4 {
			t.Errorf("%d GETs to a store that is known to fail", got)
		}
	})
}

func TestLateAnswerIsAskedForTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		o := s.put(t, "o", 5)
		var n atomic.Int64
		s.fault = func(objstore.Op) objstore.Fault {
			if n.Add(1) == 101 {
				return objstore.Fault{Delay: 5 * time.Second}
			}
			return objstore.Fault{Delay: 30 * time.Millisecond}
		}
		c := open(t, Config{Store: s.store})
		for i := range 101 {
			start := time.Now()
			if _, err := c.Getter().Read(t.Context(), "o", 0, 5, o.Sums[0]); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d > 200*time.Millisecond {
				t.Errorf("GET %d took %v", i, d)
			}
		}
		if n.Load() != 102 {
			t.Errorf("%d GETs, want 102", n.Load())
		}
	})
}

// TestMemoryStaysWithinItsBudget has sixty slow readers, each somewhere else.
func TestMemoryStaysWithinItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const readers, budget = 60, 16 << 20
		s := newShelf()
		s.fault = always(objstore.Fault{Delay: 30 * time.Millisecond})
		o := s.put(t, "o", readers*3<<20)
		c := open(t, Config{Store: s.store, Memory: budget})
		var most atomic.Int64
		var wg sync.WaitGroup
		for r := range readers {
			wg.Go(func() {
				st := c.NewStream()
				defer st.Close()
				for i := r * 3; i < r*3+3; i++ {
					if err := s.read(st, o, i); err != nil {
						t.Error(err)
						return
					}
					c.mu.Lock()
					for u := c.mu.used; u > most.Load(); {
						most.Store(u)
					}
					c.mu.Unlock()
					time.Sleep(10 * time.Second)
				}
			})
		}
		wg.Wait()
		if got := most.Load(); got > budget*5/4 {
			t.Errorf("%d bytes in use, budget %d", got, budget)
		}
		if s.gets.Load() > readers*3*11/10 {
			t.Errorf("%d GETs for %d blocks", s.gets.Load(), readers*3)
		}
	})
}

// TestPinnedBlocksDoNotStarveReaders pins all the budget, as slow connections do.
func TestPinnedBlocksDoNotStarveReaders(t *testing.T) {
	s := newShelf()
	o := s.put(t, "o", 32<<20)
	c := open(t, Config{Store: s.store, Memory: 8 << 20})
	var pins []*Block
	for i := range 8 {
		pins = append(pins, s.fetch(t, c, o, i))
	}
	for i := 8; i < 32; i++ { // from the reserve
		s.fetch(t, c, o, i).Release()
		for k, p := range pins {
			if !bytes.Equal(p.Bytes(), s.block(o, k)) {
				t.Fatalf("pinned block %d changed", k)
			}
		}
	}
	for _, p := range pins {
		p.Release()
	}
}

func TestReaderThatPausesLetsItsGetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		objs := s.fill(t, 2, 64)
		c := open(t, Config{Store: s.store, Memory: 16 << 20})
		steps := 0
		err := s.scan(c, objs, func() {
			if steps++; steps == 40 {
				time.Sleep(time.Minute)
				synctest.Wait()
				c.mu.Lock()
				gets, waiting := c.mu.gets, len(c.mu.waiting)
				c.mu.Unlock()
				if gets != 0 || waiting != 0 {
					t.Errorf("a minute later %d GETs are open, %d loads wait", gets, waiting)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestReadAheadStaysWithinTheWindow has GETs that are twice as large as it.
func TestReadAheadStaysWithinTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		objs := s.fill(t, 1, 64)
		c := open(t, Config{Store: s.store, Window: 8 << 20})
		err := s.scan(c, objs, func() {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			n := 0
			for e := c.mu.fresh.head; e != nil; e = e.next {
				n++
			}
			if n > 8+1 { // and the one that is being read
				t.Errorf("%d blocks ahead", n)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestNewReaderKeepsWhatAnotherHasLeft: what lies before it is not the next to
// be evicted.
func TestNewReaderKeepsWhatAnotherHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		objs := s.fill(t, 2, 6)
		c := open(t, Config{Store: s.store, Memory: 8 << 20})
		if err := s.scan(c, objs[:1], nil); err != nil {
			t.Fatal(err)
		}
		s.gets.Store(0)
		st := c.NewStream()
		defer st.Close()
		st.At(objs[0], 0, 6)
		if b, _, err := st.Get(objs[0], 0, true); err != nil || b == nil {
			t.Fatal("block 0 is not here", err)
		} else {
			b.Release()
		}
		st.At(objs[0], 0, 6) // plans for what is here
		for i := range 5 {
			s.fetch(t, c, objs[1], i).Release()
		}
		s.gets.Store(0)
		for i := range 6 {
			if err := s.read(st, objs[0], i); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.gets.Load(); n != 0 {
			t.Errorf("%d GETs for what was here", n)
		}
	})
}

// TestStalledReadAheadDoesNotKeepReadersFromTheirGets: each reader pauses with a
// GET open that brings more than it will read.
func TestStalledReadAheadDoesNotKeepReadersFromTheirGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		s.fault = always(objstore.Fault{Delay: 20 * time.Millisecond})
		objs := s.fill(t, 10, 14)
		c := open(t, Config{Store: s.store, Memory: 128 << 20, Gets: 4})
		var wg sync.WaitGroup
		for k, o := range objs {
			wg.Go(func() {
				time.Sleep(time.Duration(k) * 7 * time.Millisecond)
				st := c.NewStream()
				defer st.Close()
				for i := range 8 {
					start := time.Now()
					if err := s.read(st, o, i); err != nil {
						t.Error(err)
						return
					}
					if d := time.Since(start); d > time.Second {
						t.Errorf("block %d took %v", i, d)
					}
					if i%4 == 3 {
						time.Sleep(2 * time.Second)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestRandomReadersSeeTheirBytes has readers jump and scan over a cache that is
// far too small, with a store that fails at times.
func TestRandomReadersSeeTheirBytes(t *testing.T) {
	s := newShelf()
	objs := s.fill(t, 3, 12)
	s.fault = sometimes(20)
	c := open(t, Config{Store: s.store, Memory: 8 << 20, Gets: 6})
	var wg sync.WaitGroup
	for r := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(r)))
			st := c.NewStream()
			defer st.Close()
			for range 12 {
				k := rng.IntN(len(objs))
				for i := rng.IntN(12); i < 12 && rng.IntN(8) > 0; i++ {
					err := s.read(st, objs[k], i)
					if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrCorrupt) {
						t.Error(err)
						return
					}
					if rng.IntN(3) == 0 && k+1 < len(objs) {
						st.Next(objs[k+1])
					}
				}
			}
		})
	}
	wg.Wait()
	c.Close()
	c.checkAccounts(t)
}
