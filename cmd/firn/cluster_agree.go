package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker learns from the metadata store what has changed a little later than who
// has changed it, and each at its own time. So what one broker shows is no ground
// to move partitions on, nor a proof that they have moved: that is what all show.

const (
	mutePatience  = 20 * time.Second // for a broker to answer, or its session to end
	agreePatience = 30 * time.Second // for all to show the same
)

// at names a partition.
type at struct {
	topic     string
	partition int32
}

func (a at) String() string { return fmt.Sprintf("%s-%d", a.topic, a.partition) }

// sight is a partition as one broker shows it. The zero value: it doesn't.
type sight struct {
	part kadm.PartitionDetail
	move kadm.ListPartitionReassignmentsResponse
}

// same: two brokers show the same replicas, in the same leader epoch. Who is in sync
// comes and goes without it.
func (s sight) same(o sight) bool {
	return s.part.LeaderEpoch == o.part.LeaderEpoch && slices.Equal(s.part.Replicas, o.part.Replicas) &&
		slices.Equal(s.move.AddingReplicas, o.move.AddingReplicas) && slices.Equal(s.move.RemovingReplicas, o.move.RemovingReplicas)
}

func (s sight) moving() bool { return len(s.move.AddingReplicas)+len(s.move.RemovingReplicas) > 0 }

// torn: the broker's two answers are from before and after a change.
func (s sight) torn() bool { return s.moving() && !slices.Equal(s.move.Replicas, s.part.Replicas) }

func (s sight) String() string {
	switch {
	case s.part.Replicas == nil:
		return "not at all"
	case s.moving():
		return fmt.Sprintf("on its way to %s in epoch %d", idsText(minus(s.part.Replicas, s.move.RemovingReplicas)), s.part.LeaderEpoch)
	}
	return fmt.Sprintf("on %s in epoch %d", idsText(s.part.Replicas), s.part.LeaderEpoch)
}

func (v *clusterView) sights() map[at]sight {
	all := make(map[at]sight, len(v.parts))
	for _, p := range v.parts {
		m, _ := v.move(p)
		all[at{p.Topic, p.Partition}] = sight{p, m}
	}
	return all
}

// agreement gathers the partitions that all brokers have shown alike at one time.
type agreement map[at]sight

// take adds what all of views show alike, and tells, of what they have never shown
// alike, the partitions with what is shown.
func (g agreement) take(views []*clusterView) (open []string) {
	sights := make([]map[at]sight, len(views))
	all := map[at]bool{}
	for i, v := range views {
		sights[i] = v.sights()
		for k := range sights[i] {
			all[k] = true
		}
	}
	maps.DeleteFunc(g, func(k at, _ sight) bool { return !all[k] })
	for k := range all {
		first := sights[0][k]
		if !slices.ContainsFunc(sights, func(m map[at]sight) bool { s := m[k]; return s.torn() || !s.same(first) }) {
			g[k] = first
		} else if _, ok := g[k]; !ok {
			var said []string
			for _, m := range sights {
				if s := m[k].String(); !slices.Contains(said, s) {
					said = append(said, s)
				}
			}
			open = append(open, fmt.Sprintf("%s is shown %s", k, strings.Join(said, ", ")))
		}
	}
	slices.Sort(open)
	return open
}

// view is v with the partitions that were agreed on.
func (g agreement) view(v clusterView) *clusterView {
	v.parts, v.moving = nil, kadm.ListPartitionReassignmentsResponses{}
	names := map[string]bool{}
	for k, s := range g {
		v.parts, names[k.topic] = append(v.parts, s.part), true
		if s.moving() {
			if v.moving[k.topic] == nil {
				v.moving[k.topic] = map[int32]kadm.ListPartitionReassignmentsResponse{}
			}
			v.moving[k.topic][k.partition] = s.move
		}
	}
	slices.SortFunc(v.parts, func(a, b kadm.PartitionDetail) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	v.topics = len(names)
	return &v
}

// loadAgreed is the cluster as all its brokers show it, with those that are away.
func loadAgreed(ctx context.Context, cl *kgo.Client, _ *kadm.Client) (*clusterView, error) {
	ask, seen, began := &asker{cl: cl}, agreement{}, time.Now()
	for {
		got, err := ask.all(ctx, nil)
		if err != nil {
			return nil, err
		}
		unheard, waited := got.unheard(), time.Since(began)
		if views := got.heard(); len(views) > 0 && (len(unheard) == 0 || waited > mutePatience) {
			open := seen.take(views)
			if len(open) == 0 {
				warnUnheard(got, "the plan is made by what the others show")
				v := seen.view(*views[0])
				v.registered, err = registered(ctx, cl)
				return v, err
			}
			if waited > agreePatience {
				return nil, fmt.Errorf("the brokers don't show the same, so nothing was planned: %s (%d such partitions); try again once all keep up: `firn cluster health` tells", open[0], len(open))
			}
		} else if waited > agreePatience {
			return nil, fmt.Errorf("describe the cluster: %w", errors.Join(slices.Collect(maps.Values(got.mute))...))
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func warnUnheard(got replies, then string) {
	for _, id := range got.unheard() {
		why := got.mute[id]
		if why == nil {
			why = errors.New("only others list it")
		}
		fmt.Fprintf(os.Stderr, "warning: broker %d doesn't answer (%v): %s\n", id, why, then)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle takes out of wished what all of views show as it was wished, or don't show
// any more, and tells how many others are still under way, and which all show to be
// elsewhere.
func settle(wished map[at][]int32, views []*clusterView) (underWay int, elsewhere []string) {
	sights := make([]map[at]sight, len(views))
	for i, v := range views {
		sights[i] = v.sights()
	}
	for k, to := range wished {
		first := sights[0][k]
		differ := slices.ContainsFunc(sights, func(m map[at]sight) bool { return !m[k].same(first) })
		switch {
		case differ || first.moving():
			underWay++
		case first.part.Replicas == nil || slices.Equal(first.part.Replicas, to):
			delete(wished, k)
		default:
			elsewhere = append(elsewhere, fmt.Sprintf("%s is on %s, not on %s", k, idsText(first.part.Replicas), idsText(to)))
		}
	}
	slices.Sort(elsewhere)
	return underWay, elsewhere
}

// awaitMoves waits until every broker shows the wished replicas.
func awaitMoves(ctx context.Context, cl *kgo.Client, wished map[at][]int32) error {
	topics := map[string]bool{}
	for k := range wished {
		topics[k.topic] = true
	}
	names := slices.Sorted(maps.Keys(topics))
	ask, heardAll, elsewhereRounds := &asker{cl: cl}, time.Now(), 0
	for len(wished) > 0 {
		got, err := ask.all(ctx, names)
		if err != nil {
			return err
		}
		unheard := got.unheard()
		if len(unheard) == 0 && len(got.shown) > 0 {
			heardAll = time.Now()
		}
		patient := time.Since(heardAll) < mutePatience
		if views := got.heard(); len(views) > 0 && (len(unheard) == 0 || !patient) {
			underWay, elsewhere := settle(wished, views)
			if len(wished) == 0 {
				warnUnheard(got, "whether it knows was not found out")
				return nil
			}
			// A few rounds, since who took the wish may just have gone.
			if elsewhereRounds++; underWay > 0 || len(elsewhere) == 0 {
				elsewhereRounds = 0
			} else if elsewhereRounds > 10 {
				return fmt.Errorf("somebody else has moved %d of the partitions meanwhile: %s", len(elsewhere), elsewhere[0])
			}
		}
		if err := pause(ctx, 300*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
