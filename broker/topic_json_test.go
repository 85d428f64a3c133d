package broker

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/tiering"
	"firn/tiering/objstore"
)

// topicJSON is what the bucket says of a topic; without a name if it says nothing.
func topicJSON(t testing.TB, store objstore.Store, name string) (info tiering.TopicInfo) {
	t.Helper()
	err := store.List(context.Background(), name+"~", func(o objstore.Object) error {
		if !strings.HasSuffix(o.Key, "/topic.json") {
			return nil
		}
		body, err := store.GetRange(context.Background(), o.Key, 0, -1)
		if err != nil {
			return err
		}
		defer body.Close()
		b, err := io.ReadAll(body)
		if err == nil {
			info, err = tiering.DecodeTopicInfo(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func says(t testing.TB, store objstore.Store, name string, partitions int32, configs map[string]string) func() bool {
	return func() bool {
		i := topicJSON(t, store, name)
		return i.Partitions == partitions && maps.Equal(i.Configs, configs)
	}
}

func TestTheBucketTellsWhatATopicIsNow(t *testing.T) {
	store := objstore.NewMem()
	n := startNodeWith(t, t.TempDir(), store)
	n.create("t", 1, "segment.bytes=2048")
	n.create("plain", 1, "remote.storage.enable=false")
	want := maps.Clone(n.topics.Load().byName["t"].overrides)
	eventually(t, "told of a new topic without a record", says(t, store, "t", 1, want))

	n.alter("t", "retention.ms", "12345678")
	want["retention.ms"] = "12345678"
	eventually(t, "told of a changed config", says(t, store, "t", 1, want))
	n.edit("t", "segment.bytes", kmsg.IncrementalAlterConfigOpDelete, nil)
	delete(want, "segment.bytes")
	eventually(t, "told of a config that is the default again", says(t, store, "t", 1, want))
	if r := n.grow("t", 3); r.ErrorCode != 0 {
		t.Fatalf("code %d", r.ErrorCode)
	}
	eventually(t, "told of new partitions", says(t, store, "t", 3, want))
	if i := topicJSON(t, store, "plain"); i.Name != "" {
		t.Errorf("told of a topic that isn't archived: %+v", i)
	}
	n.alter("plain", "remote.storage.enable", "true")
	eventually(t, "told of a topic that is archived now", func() bool { return topicJSON(t, store, "plain").Name != "" })
}

func TestATopicIsToldOfWhenTheStoreIsBack(t *testing.T) {
	mem := objstore.NewMem()
	var down atomic.Bool
	var tries atomic.Int32
	store := objstore.Inject(mem, func(op objstore.Op) (f objstore.Fault) {
		if down.Load() {
			tries.Add(1)
			f.Before = errors.New("store is down")
		}
		return f
	})
	n := startNodeWith(t, t.TempDir(), store)
	n.create("t", 1)
	want := maps.Clone(n.topics.Load().byName["t"].overrides)
	eventually(t, "told", says(t, mem, "t", 1, want))
	down.Store(true)
	n.alter("t", "retention.ms", "1234567")
	want = map[string]string{"retention.ms": "1234567"}
	maps.Copy(want, n.topics.Load().byName["t"].overrides)
	eventually(t, "tried twice", func() bool { return tries.Load() >= 2 })
	down.Store(false)
	eventually(t, "told", says(t, mem, "t", 1, want))
}

func TestAChangeThatABrokerDidNotLiveToTellIsToldByTheNextStart(t *testing.T) {
	mem := objstore.NewMem()
	var down atomic.Bool
	store := objstore.Inject(mem, func(objstore.Op) (f objstore.Fault) {
		if down.Load() {
			f.Before = errors.New("store is down")
		}
		return f
	})
	n := startNodeWith(t, t.TempDir(), store)
	n.create("t", 1)
	eventually(t, "told", func() bool { return topicJSON(t, mem, "t").Name != "" })
	down.Store(true)
	n.alter("t", "retention.ms", "1234567")
	want := maps.Clone(n.topics.Load().byName["t"].overrides)
	m := n.crash()
	n.stop()
	down.Store(false)
	m.start()
	eventually(t, "told", says(t, mem, "t", 1, want))
}

// TestADeletedTopicIsNotToldOfAgain even if telling took longer than the purge.
func TestADeletedTopicIsNotToldOfAgain(t *testing.T) {
	mem := objstore.NewMem()
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	var armed, late atomic.Bool
	store := objstore.Inject(mem, func(op objstore.Op) (f objstore.Fault) {
		if op.Kind == objstore.OpDelete && strings.HasSuffix(op.Key, "/topic.json") {
			late.Store(true)
		}
		if strings.HasSuffix(op.Key, "/topic.json") && armed.CompareAndSwap(true, false) {
			held <- struct{}{}
			<-hold
		}
		return f
	})
	n := startNodeWith(t, t.TempDir(), store, "archive.delete.grace.ms=0")
	armed.Store(true)
	n.create("t", 1)
	<-held
	if code := n.delete("t"); code != 0 {
		t.Fatalf("code %d", code)
	}
	n.purge(t.Context())
	if late.Load() {
		t.Fatal("there was a topic.json before")
	}
	close(hold)
	eventually(t, "nothing is left of what came late", func() bool {
		var left []string
		err := mem.List(context.Background(), "t~", func(o objstore.Object) error { left = append(left, o.Key); return nil })
		return err == nil && len(left) == 0 && late.Load()
	})
}
