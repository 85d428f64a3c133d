package controller

import (
	"maps"
	"slices"

	"firn/replication/meta"
)

// Snapshot is what decisions rest on.
type Snapshot struct {
	Image *meta.Image
	// Epoch is the controller epoch that is written into states.
	Epoch int32
	// Rules are a topic's; nil means those of its own configs, with Kafka's defaults.
	Rules func(*meta.TopicImage) Rules
	// Ends are the answers to Plan.Ask, as far as there are any.
	Ends map[Replica]LogEnd
	// Balance, if not nil, says that it is time to give leaderships back to the
	// preferred leaders.
	Balance *Balance
}

// Rules are what a topic asks of elections.
type Rules struct {
	// MinInsync is min.insync.replicas.
	MinInsync int
	// Unclean is unclean.leader.election.enable.
	Unclean bool
}

// Balance is when leaderships are given back by themselves.
type Balance struct {
	// Percent of the partitions that a broker is the preferred leader of may be
	// led by others.
	Percent int
}

// Replica is one replica in one registration of its broker, in an epoch in which
// nobody leads: its log stands still.
type Replica struct {
	Topic     meta.TopicID
	Partition int32
	Member    meta.Member
	Epoch     int32 // leader epoch
}

// LogEnd is where a replica's log ends.
type LogEnd struct {
	Epoch int32 // of the last record; -1 for none
	End   int64
}

// after: it goes further than o.
func (e LogEnd) after(o LogEnd) bool {
	return e.Epoch > o.Epoch || e.Epoch == o.Epoch && e.End > o.End
}

// Plan is what is to be done.
type Plan struct {
	Changes []Change
	// Moves are reassignments that have come to their end.
	Moves []Move
	// Finish are topics whose deletion is to be finished.
	Finish []meta.Topic
	// Ask are replicas of which it must be known where they end, before a leader
	// can be elected.
	Ask []Question
	// Granted are wishes for which nothing is left to be done.
	Granted []meta.Election
}

// Change is a partition's next state, with the reason.
type Change struct {
	meta.StateChange
	Why Why
}

// Move ends the reassignments of partitions of one topic.
type Move struct {
	Topic meta.Topic
	Ended []Change
}

// Question asks where a replica ends.
type Question struct {
	Replica
	Name string // of the topic
}

// Why a state changes.
type Why string

const (
	Created    Why = "created"
	Elected    Why = "elected"               // out of the ISR
	Relieved   Why = "elected, disk full"    // the same; the leader's disk is too full
	Preferred  Why = "elected, preferred"    // the leadership is given back
	Eligible   Why = "elected, eligible"     // out of the eligible members
	Unclean    Why = "elected, unclean"      // may lack what was committed
	Recovered  Why = "elected, last that is" // the same; nobody else ever had it
	Furthest   Why = "elected, furthest"     // the same; of all that might have it
	Moved      Why = "moved"                 // a reassignment has ended
	Expelled   Why = "no replica any more"   // has left the ISR
	Leaderless Why = "nobody to lead"
)

// Unclean: records may have been lost.
func (w Why) Unclean() bool { return w == Unclean || w == Recovered || w == Furthest }

// Decide decides what is to be done now; nothing, if all is as it should be. The
// order is that of topic names and partitions.
func Decide(s Snapshot) Plan {
	d := newDecider(s)
	for _, name := range slices.Sorted(maps.Keys(s.Image.Topics)) {
		t := s.Image.Topics[name]
		if t.Deleting {
			d.plan.Finish = append(d.plan.Finish, t.Topic)
			continue
		}
		d.topic(t)
	}
	d.grant()
	return d.plan
}

type decider struct {
	Snapshot
	live map[int32]meta.Registration
	// wishes are the elections asked for, by partition; busy are those of them
	// for which something is left to be done.
	wishes map[meta.TopicPartition][]meta.Election
	busy   map[string]bool
	// unbalanced are brokers that get their leaderships back.
	unbalanced map[int32]bool
	plan       Plan
}

func newDecider(s Snapshot) *decider {
	d := &decider{Snapshot: s, live: s.Image.Registered(), busy: map[string]bool{}}
	if d.Rules == nil {
		d.Rules = topicRules
	}
	d.readWishes()
	if d.Balance != nil {
		d.weigh()
	}
	return d
}

func (d *decider) topic(t *meta.TopicImage) {
	rules := d.Rules(t)
	move := Move{Topic: t.Topic}
	for p, state := range t.States {
		part := partition{
			decider:  d,
			topic:    t,
			index:    int32(p),
			replicas: t.Replicas[p],
			rules:    rules,
			state:    state,
		}
		next, why := part.decide()
		if why == "" {
			continue
		}
		next.ControllerEpoch = d.Epoch
		next.Version = state.Version
		c := Change{
			StateChange: meta.StateChange{Topic: t.Name, ID: t.ID, Partition: int32(p), State: next, Registrations: d.live},
			Why:         why,
		}
		if why == Moved {
			move.Ended = append(move.Ended, c)
		} else {
			d.plan.Changes = append(d.plan.Changes, c)
		}
		for _, w := range part.wishes() {
			d.busy[w.Name] = true
		}
	}
	if move.Ended != nil {
		d.plan.Moves = append(d.plan.Moves, move)
	}
}

// partition is one partition under decision.
type partition struct {
	*decider
	topic    *meta.TopicImage
	index    int32
	replicas []int32
	rules    Rules
	state    meta.PartitionState
}

// decide returns the next state and why; no reason means that all is well.
func (p *partition) decide() (meta.PartitionState, Why) {
	switch {
	case p.state.Version == meta.Missing:
		return p.create()
	case !p.led():
		return p.elect()
	}
	if s, ok := p.finish(); ok {
		return s, Moved
	}
	if s, why := p.relieve(); why != "" {
		return s, why
	}
	if s, ok := p.prefer(); ok {
		return s, Preferred
	}
	if s, ok := p.expel(); ok {
		return s, Expelled
	}
	return p.state, ""
}

// givenUp: the broker has lost this partition, or must discard what it has (S7).
func (p *partition) givenUp(id int32) bool { return p.Image.Offline[id].Lists(p.topic.ID, p.index) }

// reluctance is how little a broker wants to lead.
type reluctance int

const (
	willing  reluctance = iota
	full                // its disk takes no records; better than none, for it serves reads
	draining            // it is about to go
)

func (d *decider) reluctance(id int32) reluctance {
	o, epoch := d.Image.Offline[id], d.live[id].Epoch
	switch {
	case o.Drains(epoch):
		return draining
	case o.IsFull(epoch):
		return full
	}
	return willing
}
