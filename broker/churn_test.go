package broker

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/replication"
	"firn/segment"
	"firn/segment/batch"
	"firn/tiering/objstore"
)

// TestTopicsComeAndGoUnderLoad: whoever appends to, reads or alters a topic while
// it is deleted and made again gets an answer, and never a record of the topic
// that was there before under the name (B14).
func TestTopicsComeAndGoUnderLoad(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem(), "log.segment.delete.delay.ms=0", "archive.delete.grace.ms=0", "log.segment.bytes=1024")
	stop := make(chan struct{})
	var work, rounds sync.WaitGroup
	forever := func(f func() error) {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Microsecond): // leaves the others a core
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 3 {
		name := fmt.Sprintf("t%d", i)
		forever(func() error { // appends; what it finds there is its own
			x := n.topics.Load()
			tp := x.byName[name]
			if tp == nil || tp.parts[0] == nil {
				return nil
			}
			part := tp.parts[0]
			_, err := part.Append(n.batch(batch.Spec{}, time.Now().UnixMilli()), replication.AppendOptions{Epoch: replication.AnyEpoch, All: true, Now: time.Now().UnixMilli()})
			if err != nil && !errors.Is(err, replication.ErrNotLeader) && !errors.Is(err, segment.ErrClosed) {
				return fmt.Errorf("append: %w", err)
			}
			return nil
		})
		forever(func() error {
			switch got := n.list(name, 0, -1).ErrorCode; got {
			case 0, kerr.UnknownTopicOrPartition.Code, kerr.NotLeaderForPartition.Code:
				return nil
			default:
				return fmt.Errorf("list: code %d", got)
			}
		})
		forever(func() error { // alters; never a topic's configs after its end
			switch got := n.alter(name, "retention.bytes", fmt.Sprint(time.Now().UnixNano())); got.ErrorCode {
			case 0, kerr.UnknownTopicOrPartition.Code, kerr.RequestTimedOut.Code:
				return nil
			default:
				return fmt.Errorf("alter: code %d %s", got.ErrorCode, words(got.ErrorMessage))
			}
		})
		rounds.Go(func() {
			for round := range 10 {
				created := n.tryCreate(name, 2, 1, "retention.ms=-1")
				if created.ErrorCode != 0 {
					t.Errorf("create %s: code %d %s", name, created.ErrorCode, words(created.ErrorMessage))
					return
				}
				if tp := n.topics.Load().byName[name]; tp == nil || tp.ID != created.TopicID {
					t.Errorf("%s isn't there when its creation is answered", name)
				}
				if r := n.alter(name, "max.message.bytes", fmt.Sprint(1000+round)); r.ErrorCode != 0 {
					t.Errorf("alter %s: code %d %s", name, r.ErrorCode, words(r.ErrorMessage))
				}
				if r := n.grow(name, 3); r.ErrorCode != 0 {
					t.Errorf("grow %s: code %d %s", name, r.ErrorCode, words(r.ErrorMessage))
				}
				if at := n.list(name, 2, -1); at.Offset != 0 || at.ErrorCode != 0 {
					t.Errorf("a new partition of %s has records: %+v", name, at)
				}
				if code := n.delete(name); code != 0 {
					t.Errorf("delete %s: code %d", name, code)
					return
				}
			}
		})
	}
	rounds.Wait()
	close(stop)
	work.Wait()
}
