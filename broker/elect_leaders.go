package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication/meta"
)

// handleElectLeaders answers ElectLeaders: v0–2. Null topics stand for all; then
// partitions that need no election are left out of the answer.
//
//	v0 the preferred leaders only
//	v1 ElectionType
func handleElectLeaders(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.ElectLeadersRequest)
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	kind := meta.PreferredElection
	switch {
	case r.version >= 1 && req.ElectionType == 1:
		kind = meta.UncleanElection
	case r.version >= 1 && req.ElectionType != 0:
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond)
	defer cancel()

	x := b.topics.Load()
	asked := req.Topics
	if asked == nil {
		for _, t := range x.sorted() {
			asked = append(asked, kmsg.ElectLeadersRequestTopic{Topic: t.Name, Partitions: t.partitions()})
		}
	}
	var wanted []meta.TopicPartition
	outcome := map[meta.TopicPartition]error{}
	for _, t := range asked {
		for _, p := range t.Partitions {
			tp := meta.TopicPartition{Topic: t.Topic, Partition: p}
			if _, twice := outcome[tp]; twice {
				continue
			}
			if outcome[tp] = x.electable(tp, kind); outcome[tp] == nil {
				wanted = append(wanted, tp)
			}
		}
	}
	maps.Copy(outcome, b.electLeaders(ctx, kind, wanted))
	for _, t := range asked {
		out := kmsg.NewElectLeadersResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			err := outcome[meta.TopicPartition{Topic: t.Topic, Partition: p}]
			if req.Topics == nil && kafkaError(err) == kerr.ElectionNotNeeded {
				continue
			}
			part := kmsg.NewElectLeadersResponseTopicPartition()
			part.Partition, part.ErrorCode, part.ErrorMessage = p, errorCode(err), errorMessage(err)
			out.Partitions = append(out.Partitions, part)
		}
		if out.Partitions != nil {
			resp.Topics = append(resp.Topics, out)
		}
	}
	return resp
}

// electable: there is something to elect.
func (x *topicIndex) electable(tp meta.TopicPartition, kind meta.ElectionKind) error {
	t := x.byName[tp.Topic]
	if !t.has(tp.Partition) {
		return refuse(kerr.UnknownTopicOrPartition, "The partition does not exist.")
	}
	if x.elected(tp, kind) {
		return refuse(kerr.ElectionNotNeeded, "Leader election not needed for topic partition")
	}
	return nil
}

// elected: the partition is led as such an election would have it.
func (x *topicIndex) elected(tp meta.TopicPartition, kind meta.ElectionKind) bool {
	t := x.byName[tp.Topic]
	if !t.has(tp.Partition) {
		return false
	}
	leader := t.states[tp.Partition].Leader.ID
	if kind == meta.UncleanElection {
		return leader >= 0
	}
	return leader == t.Target(tp.Partition)[0]
}

// electLeaders writes the wish for elections down, in as many parts as it takes,
// waits until the controller has granted what it can, and tells the outcome.
func (b *Broker) electLeaders(ctx context.Context, kind meta.ElectionKind, wanted []meta.TopicPartition) map[meta.TopicPartition]error {
	out := make(map[meta.TopicPartition]error, len(wanted))
	fail := func(part []meta.TopicPartition, err error) {
		for _, tp := range part {
			out[tp] = err
		}
	}
	var names []string
	var parts [][]meta.TopicPartition
	for len(wanted) > 0 {
		part := wanted[:min(len(wanted), meta.MaxElection)]
		wanted = wanted[len(part):]
		e := meta.Election{Name: fmt.Sprintf("%d-%s", b.cfg.NodeID, newID()), Kind: kind, Partitions: map[string][]int32{}}
		for _, tp := range part {
			e.Partitions[tp.Topic] = append(e.Partitions[tp.Topic], tp.Partition)
		}
		w, err := meta.AskElection(e)
		if err == nil {
			err = b.commit(ctx, w)
		}
		if err != nil {
			fail(part, err)
			continue
		}
		names, parts = append(names, e.Name), append(parts, part)
	}
	for i, name := range names {
		if err := b.awaitGranted(ctx, name); err != nil {
			fail(parts[i], err)
			continue
		}
		for _, tp := range parts[i] {
			out[tp] = b.electionOutcome(ctx, tp, kind)
		}
	}
	return out
}

// awaitGranted waits until the controller has removed a wish. The picture doesn't
// tell one that is not seen yet from one that is granted.
func (b *Broker) awaitGranted(ctx context.Context, name string) error {
	for {
		changed := b.changed.wait()
		_, err := meta.LoadElection(ctx, b.cfg.Meta, name)
		if errors.Is(err, meta.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// electionOutcome is what became of a wish, by the state itself. It is awaited in
// the picture too, so that who asks for Metadata here next finds it.
func (b *Broker) electionOutcome(ctx context.Context, tp meta.TopicPartition, kind meta.ElectionKind) error {
	s, err := meta.LoadState(ctx, b.cfg.Meta, tp.Topic, tp.Partition)
	if err != nil {
		return err
	}
	_ = b.await(ctx, func(x *topicIndex) bool {
		t := x.byName[tp.Topic]
		return !t.has(tp.Partition) || t.states[tp.Partition].Version >= s.Version
	})
	x := b.topics.Load()
	switch {
	case !x.byName[tp.Topic].has(tp.Partition):
		return kerr.UnknownTopicOrPartition
	case x.elected(tp, kind):
		return nil
	case kind == meta.UncleanElection:
		return kerr.EligibleLeadersNotAvailable
	case x.isFull(x.byName[tp.Topic].Target(tp.Partition)[0]):
		return refuse(kerr.PreferredLeaderNotAvailable, "The preferred leader's disk is full: others lead until it has room.")
	}
	return kerr.PreferredLeaderNotAvailable
}
