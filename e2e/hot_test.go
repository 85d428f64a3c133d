package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const hotTopic = "hot"

// hot is a client that writes a record, waits for its acknowledgement and reads
// it back, over and over: the young part of a log, which no trouble elsewhere
// may disturb.
type hot struct {
	t    testing.TB
	stop context.CancelFunc
	done chan struct{}

	mu sync.Mutex
	n  int
	// slow are the longest times that a write and its read took.
	slow map[string]time.Duration
	err  error
}

// hotLimit is what an undisturbed write or read takes at most, on a machine that
// does other things too. Behind trouble in the archive it would take as long as a
// request to a store that hangs, a quarter of a minute.
const hotLimit = 10 * time.Second

func startHot(t testing.TB, addr string) *hot {
	t.Helper()
	createTopic(t, addr, hotTopic, 1, nil)
	cl := newClient(t, addr, kgo.DefaultProduceTopic(hotTopic), kgo.ProducerLinger(0), kgo.FetchMaxWait(time.Second),
		kgo.MetadataMinAge(50*time.Millisecond), // a new topic is asked for again at once
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{hotTopic: {0: kgo.NewOffset().At(0)}}))
	h := &hot{t: t, done: make(chan struct{}), slow: map[string]time.Duration{}}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() {
		defer close(h.done)
		defer cl.Close()
		for ctx.Err() == nil {
			if err := h.once(ctx, cl); err != nil && ctx.Err() == nil {
				h.mu.Lock()
				h.err = err
				h.mu.Unlock()
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { stop(); <-h.done })
	return h
}

func (h *hot) once(ctx context.Context, cl *kgo.Client) error {
	value := fmt.Sprintf("record %d", h.n)
	began := time.Now()
	if err := cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	h.note("write", time.Since(began))
	for seen := false; !seen; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		for _, r := range fs.Records() {
			if string(r.Value) != value {
				return fmt.Errorf("read %q, wrote %q", r.Value, value)
			}
			seen = true
		}
	}
	h.note("read", time.Since(began))
	return nil
}

func (h *hot) note(what string, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slow[what] = max(h.slow[what], took)
	if what == "read" {
		h.n++
	}
}

func (h *hot) slowest(what string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.slow[what].Round(time.Millisecond)
}

// finish ends it, and fails the test if anything was wrong or slow.
func (h *hot) finish() {
	h.t.Helper()
	h.stop()
	<-h.done
	if h.err != nil {
		h.t.Fatalf("the young part after %d records: %v", h.n, h.err)
	}
	if h.n == 0 || h.slowest("write") > hotLimit || h.slowest("read") > hotLimit {
		h.t.Errorf("%d records; the slowest write took %v, the slowest read %v", h.n, h.slowest("write"), h.slowest("read"))
	}
}

// hotOffsets are the end and the archived end of the hot topic.
func hotOffsets(t testing.TB, addr string) (end, archived int64) {
	t.Helper()
	a := newAdmin(t, addr)
	defer a.Close()
	ends, err1 := a.ListEndOffsets(t.Context(), hotTopic)
	remote, err2 := a.ListLatestRemoteOffsets(t.Context(), hotTopic)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	e, _ := ends.Lookup(hotTopic, 0)
	r, _ := remote.Lookup(hotTopic, 0)
	return e.Offset, r.Offset + 1
}
