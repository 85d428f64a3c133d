package controller

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"firn/replication/meta"
)

// counted is a store that counts what is read of topics.
type counted struct {
	*broker
	reads atomic.Int64
}

func (c *counted) Get(ctx context.Context, path string) (meta.Node, error) {
	if strings.HasPrefix(path, "/brokers/topics/") {
		c.reads.Add(1)
	}
	return c.broker.Get(ctx, path)
}

// A new controller goes on from what its broker knows, brought up to now; when that
// has a gap, or is of another session, it reads everything (Z1).
func TestANewControllerTakesOverWhatItsBrokerKnows(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(*meta.View)
		takes bool
	}{
		"up to now":       {func(*meta.View) {}, true},
		"none":            {nil, false},
		"another session": {func(v *meta.View) { v.Session++ }, false},
		"a gap":           {func(v *meta.View) { v.After = -1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				tree := meta.NewMemory()
				b1, b2, b3 := join(t, tree, 1), join(t, tree, 2), join(t, tree, 3)
				b1.run(t, ctx, nil)
				t.Cleanup(cancel)
				var replicas [][]int32
				for range 50 {
					replicas = append(replicas, []int32{1, 2})
				}
				must(t, meta.CreateTopic(topic("t", 1, replicas...), nil).Commit(ctx, b2))
				synctest.Wait()

				img, after, err := meta.Begin(ctx, b2)
				must(t, err)
				view := meta.View{Image: img, After: after}
				view.Session, _ = b2.Session()
				// What the view lacks: a topic, and that a leader has gone and come.
				must(t, meta.CreateTopic(topic("u", 2, []int32{2, 3}), nil).Commit(ctx, b3))
				synctest.Wait()
				b3.register(t)
				synctest.Wait()

				store := &counted{broker: b2}
				known := func() (meta.View, bool) { return view, c.edit != nil }
				if c.edit != nil {
					c.edit(&view)
				}
				b2.runWith(t, ctx, func(cfg *Config) { cfg.Store, cfg.Known = store, known })
				synctest.Wait()
				if store.reads.Load() != 0 {
					t.Fatalf("read %d nodes before it leads", store.reads.Load())
				}
				b1.End()
				synctest.Wait()
				if s := leader(t, b2, "t", 7); s.Leader != b2.self.Member() || s.LeaderEpoch != 1 || s.ControllerEpoch != 2 {
					t.Fatalf("after the controller has gone: %+v", s)
				}
				// The 50 that were elected are read for their notes, whatever was known.
				if took := store.reads.Load() < 60; took != c.takes {
					t.Errorf("%d nodes read", store.reads.Load())
				}
			})
		})
	}
}
