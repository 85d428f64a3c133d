//go:build scale

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firn/replication/controller"
	"firn/replication/meta"
	"firn/zkmeta"
	"firn/zkmeta/zktest"
)

// The controller and the metadata store at scale: brokers are registrations
// without logs. Not part of CI:
//
//	go test -tags scale -run TestScale ./e2e -v -scale.store zookeeper
var (
	scaleStore      = flag.String("scale.store", "memory", "memory or zookeeper")
	scalePartitions = flag.Int("scale.partitions", 100_000, "partitions")
	scaleTopics     = flag.Int("scale.topics", 100, "topics")
	scaleBrokers    = flag.Int("scale.brokers", 6, "brokers")
	scaleFollow     = flag.Bool("scale.follow", true, "each broker follows the changes, as real ones do")
	scaleProfile    = flag.String("scale.cpuprofile", "", "write a CPU profile of the elections to this file")
)

// scaled is a broker that has no logs.
type scaled struct {
	id    int32
	store meta.Store
	close func()
	self  meta.Registration
	end   context.CancelFunc
	done  sync.WaitGroup
	// notes counts the notes that it has seen.
	notes atomic.Int64

	mu   sync.Mutex
	view meta.View
}

// elections counts what controllers have written.
type elections struct {
	mu    sync.Mutex
	count map[controller.Why]int
	last  time.Time
	more  chan struct{}
}

func (e *elections) tell(c controller.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count[c.Why]++
	e.last = time.Now()
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// await waits until n changes of one kind are written, and says when the last was.
func (e *elections) await(t *testing.T, why controller.Why, n int) time.Time {
	t.Helper()
	for limit := time.After(5 * time.Minute); ; {
		e.mu.Lock()
		got, last := e.count[why], e.last
		e.mu.Unlock()
		if got >= n {
			return last
		}
		select {
		case <-e.more:
		case <-limit:
			t.Fatalf("%d of %d partitions %s after 5 minutes", got, n, why)
		}
	}
}

func TestScale(t *testing.T) {
	open := func() (meta.Store, func()) { return nil, nil }
	switch *scaleStore {
	case "memory":
		tree := meta.NewMemory()
		open = func() (meta.Store, func()) {
			s := tree.Begin()
			return s, s.End
		}
	case "zookeeper":
		connect := zktest.StartN(t, 1, zktest.Options{Heap: "2g"}).Chroot()
		open = func() (meta.Store, func()) {
			s, err := zkmeta.Open(t.Context(), zkmeta.Config{Connect: connect, SessionTimeout: 6 * time.Second, ConnectTimeout: 30 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return s, func() { s.Close() }
		}
	default:
		t.Fatalf("-scale.store %s", *scaleStore)
	}

	told := &elections{count: map[controller.Why]int{}, more: make(chan struct{}, 1)}
	var brokers []*scaled
	for id := range int32(*scaleBrokers) {
		brokers = append(brokers, startScaled(t, id, open, told))
		if id == 0 {
			time.Sleep(time.Second) // it becomes the controller
		}
	}

	begin := time.Now()
	per := *scalePartitions / *scaleTopics
	var nodes []meta.Broker
	for _, b := range brokers {
		nodes = append(nodes, meta.Broker{ID: b.id})
	}
	leads := map[int32]int{}
	for i := range *scaleTopics {
		topic := meta.Topic{Name: fmt.Sprintf("topic-%04d", i), ID: meta.TopicID{1, byte(i >> 8), byte(i)}, Replicas: controller.Place(nodes, 0, per, 3, rand.New(rand.NewPCG(uint64(i), 1)))}
		for _, ids := range topic.Replicas {
			leads[ids[0]]++
		}
		if err := meta.CreateTopic(topic, nil).With(brokers[1].self.Fence()...).Commit(t.Context(), brokers[1].store); err != nil {
			t.Fatal(err)
		}
	}
	created := told.await(t, controller.Created, *scaleTopics*per)
	t.Logf("%d partitions of %d topics created in %v", *scaleTopics*per, *scaleTopics, created.Sub(begin).Round(time.Millisecond))
	settle(t, brokers)

	if *scaleProfile != "" {
		f, err := os.Create(*scaleProfile)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			t.Fatal(err)
		}
		defer pprof.StopCPUProfile()
	}

	victim := brokers[len(brokers)-1]
	begin = time.Now()
	victim.stop()
	last := told.await(t, controller.Elected, leads[victim.id])
	expiry := last.Sub(begin)
	t.Logf("broker expiry → last of %d states written: %v", leads[victim.id], expiry.Round(time.Millisecond))
	settle(t, brokers)

	begin = time.Now()
	first := brokers[0]
	before := func() int { told.mu.Lock(); defer told.mu.Unlock(); return told.count[controller.Elected] }()
	lost := ledBy(t, brokers[1].store, first.self.Member())
	begin = time.Now()
	first.stop()
	last = told.await(t, controller.Elected, before+lost)
	failover := last.Sub(begin)
	t.Logf("controller expiry → everything read by the next, last of %d states written: %v", lost, failover.Round(time.Millisecond))
	for _, b := range brokers[1 : len(brokers)-1] {
		b.stop()
	}
	if expiry > 10*time.Second {
		t.Errorf("broker expiry took %v, want at most 10 s", expiry)
	}
	if failover > 15*time.Second {
		t.Errorf("controller failover took %v, want at most 15 s", failover)
	}
}

func startScaled(t *testing.T, id int32, open func() (meta.Store, func()), told *elections) *scaled {
	t.Helper()
	b := &scaled{id: id}
	b.store, b.close = open()
	ctx, cancel := context.WithCancel(context.Background())
	b.end = cancel
	if err := meta.Init(ctx, b.store); err != nil {
		t.Fatal(err)
	}
	var err error
	b.self, err = meta.Register(ctx, b.store, meta.Incarnation{
		Broker: meta.Broker{ID: id, StorageID: fmt.Sprint("disk-", id)}, BootID: "boot", Intend: func(int64) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("SCALE_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("broker", id)
	}
	b.done.Go(func() {
		err := controller.New(controller.Config{Store: b.store, Self: b.self, Elected: told.tell, Known: b.known, Log: log}).Run(ctx)
		if ctx.Err() == nil && !errors.Is(err, meta.ErrClosed) {
			t.Errorf("controller of broker %d: %v", id, err)
		}
	})
	if *scaleFollow {
		b.done.Go(func() { b.follow(ctx, t) })
	}
	return b
}

// follow keeps a picture current.
func (b *scaled) follow(ctx context.Context, t *testing.T) {
	last := int64(-1)
	for ctx.Err() == nil {
		notes, err := b.store.Changes(ctx, last)
		if gap := (*meta.ErrGap)(nil); errors.As(err, &gap) {
			session, _ := b.store.Session()
			var img *meta.Image
			if img, last, err = meta.Begin(ctx, b.store); err != nil {
				last = -1
				continue
			}
			b.mu.Lock()
			b.view = meta.View{Image: img, After: last, Session: session}
			b.mu.Unlock()
			continue
		}
		b.mu.Lock()
		if err == nil {
			err = b.view.Image.Update(ctx, b.store, notes)
		}
		if err == nil && len(notes) > 0 {
			b.view.After = notes[len(notes)-1].Number
		}
		b.mu.Unlock()
		if errors.Is(err, meta.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Second)
			continue
		}
		if len(notes) > 0 {
			last = notes[len(notes)-1].Number
			b.notes.Add(int64(len(notes)))
		}
	}
}

// known is what the broker knows, for its controller.
func (b *scaled) known() (meta.View, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.view.Image == nil {
		return b.view, false
	}
	v := b.view
	v.Image = v.Image.Clone()
	return v, true
}

// stop ends the session, then everything.
func (b *scaled) stop() {
	b.close()
	b.end()
	b.done.Wait()
}

// settle waits until no broker sees anything new any more.
func settle(t *testing.T, brokers []*scaled) {
	t.Helper()
	seen := func() (n int64) {
		for _, b := range brokers {
			n += b.notes.Load()
		}
		return n
	}
	for n := seen(); ; {
		time.Sleep(2 * time.Second)
		now := seen()
		if now == n {
			return
		}
		n = now
	}
}

// ledBy counts what a broker leads.
func ledBy(t *testing.T, s meta.Store, m meta.Member) (n int) {
	t.Helper()
	begin := time.Now()
	img, _, err := meta.Begin(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("everything read in %v", time.Since(begin).Round(time.Millisecond))
	for _, topic := range img.Topics {
		for p := range topic.States {
			if topic.States[p].Leader == m {
				n++
			}
		}
	}
	return n
}
