package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// askTimeout bounds the wait for one broker to answer.
const askTimeout = 5 * time.Second

// replies is what brokers show, by broker; mute is why others didn't.
type replies struct {
	shown map[int32]*clusterView
	mute  map[int32]error
}

// present are the brokers that more than half of those that answer show. One that
// is cut off may go on to show itself, and who is gone.
func (r replies) present() (ids []int32) {
	votes := map[int32]int{}
	for _, v := range r.shown {
		for id := range v.live {
			votes[id]++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(votes)) {
		if 2*votes[id] > len(r.shown) {
			ids = append(ids, id)
		}
	}
	return ids
}

// unheard are those of the present brokers that didn't answer.
func (r replies) unheard() []int32 {
	return slices.DeleteFunc(r.present(), func(id int32) bool { return r.shown[id] != nil })
}

// heard is what the present brokers show.
func (r replies) heard() (vs []*clusterView) {
	for _, id := range r.present() {
		if v := r.shown[id]; v != nil {
			vs = append(vs, v)
		}
	}
	return vs
}

// asker asks brokers one by one.
type asker struct {
	cl  *kgo.Client
	ids []int32 // whom the client knows
}

// all asks every broker what it shows of the topics; of all, for none.
func (k *asker) all(ctx context.Context, topics []string) (replies, error) {
	got := replies{map[int32]*clusterView{}, map[int32]error{}}
	if err := k.discover(ctx); err != nil {
		return got, fmt.Errorf("describe the cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var mu sync.Mutex // guards got
	var wg sync.WaitGroup
	for _, id := range k.ids {
		wg.Go(func() {
			v, err := askOne(ctx, k.cl.Broker(int(id)), topics)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				got.mute[id] = err
			} else {
				got.shown[id] = v
			}
		})
	}
	wg.Wait()
	return got, nil
}

// discover has the client learn who is there and who is controller, from any broker
// that answers; kadm's call may be answered by the client itself, from what it
// learned before. Where some are known, one that doesn't answer is not waited for.
func (k *asker) discover(ctx context.Context) error {
	soon := ctx
	if len(k.ids) > 0 {
		var cancel context.CancelFunc
		soon, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none, not all
	m, err := req.RequestWith(soon, k.cl)
	if err != nil && len(k.ids) > 0 && ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	k.ids = nil
	for _, b := range m.Brokers {
		k.ids = append(k.ids, b.NodeID)
	}
	return nil
}

// askOne asks one broker, for what kadm asks any. It lists what moves first: what
// isn't listed any more, the second answer has at its end.
func askOne(ctx context.Context, b *kgo.Broker, topics []string) (*clusterView, error) {
	list := kmsg.NewPtrListPartitionReassignmentsRequest()
	list.TimeoutMillis = int32(askTimeout.Milliseconds())
	r, err := b.Request(ctx, list)
	if err != nil {
		return nil, err
	}
	moving := r.(*kmsg.ListPartitionReassignmentsResponse)
	if err := kerr.ErrorForCode(moving.ErrorCode); err != nil {
		return nil, err
	}
	req := kmsg.NewPtrMetadataRequest()
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &t
		req.Topics = append(req.Topics, rt)
	}
	if r, err = b.Request(ctx, req); err != nil {
		return nil, err
	}
	m := r.(*kmsg.MetadataResponse)
	v := &clusterView{controller: m.ControllerID, live: map[int32]kadm.BrokerDetail{}, moving: kadm.ListPartitionReassignmentsResponses{}}
	if m.ClusterID != nil {
		v.id = *m.ClusterID
	}
	for _, b := range m.Brokers {
		v.live[b.NodeID] = kadm.BrokerDetail{NodeID: b.NodeID, Host: b.Host, Port: b.Port, Rack: b.Rack}
	}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			v.parts = append(v.parts, kadm.PartitionDetail{Topic: *t.Topic, Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
				Replicas: p.Replicas, ISR: p.ISR, OfflineReplicas: p.OfflineReplicas, Err: kerr.ErrorForCode(p.ErrorCode)})
		}
	}
	for _, t := range moving.Topics {
		of := map[int32]kadm.ListPartitionReassignmentsResponse{}
		for _, p := range t.Partitions {
			of[p.Partition] = kadm.ListPartitionReassignmentsResponse{Topic: t.Topic, Partition: p.Partition,
				Replicas: p.Replicas, AddingReplicas: p.AddingReplicas, RemovingReplicas: p.RemovingReplicas}
		}
		v.moving[t.Topic] = of
	}
	return v, nil
}
