package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// budget is a Budget that counts.
type budget struct {
	mu   sync.Mutex
	free int
	most int // taken at the same time
	used int
	more *sync.Cond
}

func newBudget(n int) *budget {
	b := &budget{free: n}
	b.more = sync.NewCond(&b.mu)
	return b
}

func (b *budget) Acquire(_ context.Context, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.free < n {
		b.more.Wait()
	}
	b.free -= n
	b.used += n
	b.most = max(b.most, b.used)
	return nil
}

func (b *budget) Release(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.used -= n
	b.more.Broadcast()
}

// tcpPair is both ends of a connection.
func tcpPair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func pipe(testing.TB) (net.Conn, net.Conn) { return net.Pipe() }

var pairs = map[string]func(testing.TB) (net.Conn, net.Conn){"tcp": tcpPair, "pipe": pipe}

func frameOf(n int, tag byte) []byte {
	return append(be.AppendUint32(nil, uint32(n)), bytes.Repeat([]byte{tag}, n)...)
}

func nothing() error { return nil }

// Frames of all sizes, in pieces of all sizes, come out as they went in.
func TestFramesArriveWhole(t *testing.T) {
	for name, pair := range pairs {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t)
			defer client.Close()
			rng := rand.New(rand.NewPCG(1, 1))
			sizes := []int{0, 1, 3, 100, 4 << 10, 16<<10 - 4, 64<<10 - 4, 64<<10 - 3, 256<<10 - 4, 256<<10 - 3, 1 << 20, 2<<20 - 4, 2<<20 - 3, 5 << 20}
			for range 200 {
				sizes = append(sizes, rng.IntN(1<<(4+rng.IntN(16))))
			}
			rng.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
			sent := make(chan error, 1)
			go func() {
				var all []byte
				for i, n := range sizes {
					all = append(all, frameOf(n, byte(i))...)
				}
				r := rand.New(rand.NewPCG(2, 2))
				for len(all) > 0 {
					n := min(len(all), 1+r.IntN(1<<r.IntN(21)))
					if _, err := client.Write(all[:n]); err != nil {
						sent <- err
						return
					}
					all = all[n:]
				}
				sent <- nil
			}()
			b := newBudget(1 << 30)
			pool := &Pool{Poison: true}
			f := NewFrameReader(server, pool, b, 100<<20, nothing)
			f.Trust()
			for i, n := range sizes {
				got, err := f.Next(t.Context())
				if err != nil || len(got) != n {
					t.Fatalf("frame %d: %d bytes, %v; want %d", i, len(got), err, n)
				}
				for _, c := range got {
					if c != byte(i) {
						t.Fatalf("frame %d holds %x", i, c)
					}
				}
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			f.Close()
			pool.Close()
			if b.used != 0 {
				t.Errorf("%d bytes of the budget are not given back", b.used)
			}
		})
	}
}

func TestFrameLengthsAreCapped(t *testing.T) {
	for _, n := range []uint32{FirstLimit + 1, 1 << 31, 1<<32 - 1, 'G'<<24 | 'E'<<16 | 'T'<<8 | ' '} {
		client, server := tcpPair(t)
		_, _ = client.Write(append(be.AppendUint32(nil, n), 0, 3, 0, 9)) // Metadata v9
		f := NewFrameReader(server, &Pool{}, newBudget(1<<20), 100<<20, nothing)
		if _, err := f.Next(t.Context()); !errors.Is(err, ErrFrameSize) {
			t.Errorf("length %d: %v", n, err)
		}
		f.Close()
	}
}

func TestConnectionEndsWithinAFrame(t *testing.T) {
	client, server := tcpPair(t)
	_, _ = client.Write(frameOf(100, 1)[:50])
	client.Close()
	f := NewFrameReader(server, &Pool{}, newBudget(1<<20), 100<<20, nothing)
	defer f.Close()
	if _, err := f.Next(t.Context()); err != io.EOF {
		t.Errorf("got %v, want EOF", err)
	}
}

// Before the reader may wait, what is held back leaves; while whole frames are
// buffered it doesn't.
func TestBeforeIsCalledWhenNoWholeFrameIsLeft(t *testing.T) {
	client, server := tcpPair(t)
	calls := 0
	f := NewFrameReader(server, &Pool{}, newBudget(1<<30), 100<<20, func() error { calls++; return nil })
	defer f.Close()
	_, _ = client.Write(append(append(frameOf(10, 1), frameOf(10, 2)...), frameOf(10, 3)...))
	for range 3 {
		if _, err := f.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 1 {
		t.Errorf("called %d times, want once, before the first frame", calls)
	}
	wantErr := errors.New("write failed")
	f.before = func() error { return wantErr }
	if _, err := f.Next(t.Context()); err != wantErr {
		t.Errorf("got %v, want %v", err, wantErr)
	}
}

// What a waiting connection holds is what it has sent, whatever it announced.
func TestWaitingCostsWhatWasSent(t *testing.T) {
	for _, c := range []struct{ sent, most int }{{0, 0}, {1, size4K}, {5000, size16K}, {60 << 10, size64K}} {
		client, server := tcpPair(t)
		f := NewFrameReader(server, &Pool{}, newBudget(256<<20), 100<<20, nothing)
		f.Trust()
		_, _ = client.Write(frameOf(50, 1)) // a frame before
		if _, err := f.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c.sent > 0 {
			_, _ = client.Write(append(be.AppendUint32(nil, 100<<20), make([]byte, c.sent)...)[:c.sent])
		}
		// Time out instead of looking at a running reader.
		_ = server.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := f.Next(t.Context()); err == nil {
			t.Fatal("a frame")
		}
		if len(f.buf) > c.most || f.reserved != 0 {
			t.Errorf("sent %d bytes: holds %d, reserved %d; want at most %d, 0", c.sent, len(f.buf), f.reserved, c.most)
		}
		f.Close()
	}
}

// Large frames wait for the budget, each for all of its own, so that they come
// through one after another.
func TestLargeFramesShareTheBudget(t *testing.T) {
	const size, n = 3 << 20, 8
	b := newBudget(2*size + size/2)
	pool := &Pool{Poison: true}
	defer pool.Close()
	var got atomic.Int32
	var wg sync.WaitGroup
	for range n {
		client, server := tcpPair(t)
		wg.Go(func() { _, _ = client.Write(frameOf(size, 0)) /* key 0: Produce */ })
		wg.Go(func() {
			f := NewFrameReader(server, pool, b, 100<<20, nothing)
			f.Trust()
			defer f.Close()
			frame, err := f.Next(t.Context())
			if err == nil && len(frame) == size && frame[size-1] == 0 {
				got.Add(1)
			}
		})
	}
	wg.Wait()
	if got.Load() != n || b.most > 2*size+size/2 || b.used != 0 {
		t.Errorf("%d of %d frames; at most %d bytes at a time, %d left", got.Load(), n, b.most, b.used)
	}
}

// What kmsg will decode counts for what it may take then.
func TestDecodedMessagesWeighMore(t *testing.T) {
	client, server := tcpPair(t)
	b := newBudget(64 << 20)
	f := NewFrameReader(server, &Pool{}, b, 100<<20, nothing)
	defer f.Close()
	frame := frameOf(200<<10, 0)
	frame[5] = 11 // JoinGroup
	go func() { _, _ = client.Write(frame) }()
	if _, err := f.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := decodeFactor * size256K; b.most != want {
		t.Errorf("took %d, want %d", b.most, want)
	}
}

func TestReadingFramesAllocatesNothing(t *testing.T) {
	client, server := tcpPair(t)
	f := NewFrameReader(server, &Pool{}, newBudget(64<<20), 100<<20, nothing)
	defer f.Close()
	one := frameOf(1000, 3)
	if n := testing.AllocsPerRun(200, func() {
		_, _ = client.Write(one)
		if _, err := f.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(append(frameOf(5, 1), frameOf(0, 2)...), uint8(3))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 1, 2, 3}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		client, server := net.Pipe()
		go func() {
			for len(b) > 0 {
				n := min(len(b), int(step)+1)
				if _, err := client.Write(b[:n]); err != nil {
					break
				}
				b = b[n:]
			}
			client.Close()
		}()
		r := NewFrameReader(server, &Pool{Poison: true}, newBudget(1<<30), 100<<20, nothing)
		defer r.Close()
		defer server.Close()
		for {
			if _, err := r.Next(t.Context()); err != nil {
				return
			}
		}
	})
}
