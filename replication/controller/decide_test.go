package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"firn/replication/meta"
	"firn/replication/scenariotest"
)

// TestFiles plays scenarios. Commands draw a cluster; what comes of a block is what
// is decided for it, and that is carried out. The cluster goes on until the next
// new.
//
//	new
//	broker  ID epoch=N from=N     registered; from is its valid-from, N if left out
//	gone    ID                    its registration is gone
//	offline ID TOPIC-N,…          what it gives up
//	drain   ID                    it gives up everything
//	full    ID                    its disk is full
//	room    ID                    it gives up nothing
//	topic   NAME replicas=1,2:2,1 min=N unclean deleting
//	state   NAME-N leader=M epoch=N isr=M,… eligible=M,…
//	reassign NAME-N to=1,2        an operator's wish
//	cancel  NAME-N
//	elect   WISH KIND NAME-N,…    another one
//	ends    NAME-N M=EPOCH:END …  what replicas answer
//	balance PERCENT               this time, leaderships are given back
//
// A member is written id/broker epoch.
func TestFiles(t *testing.T) {
	scenariotest.Play(t, func(t *testing.T) func([]scenariotest.Command) string { return (&cluster{t: t}).run })
}

// cluster is the picture that is drawn.
type cluster struct {
	t       *testing.T
	img     *meta.Image
	ends    map[Replica]LogEnd
	balance *Balance
}

func (c *cluster) run(commands []scenariotest.Command) string {
	for _, cmd := range commands {
		c.do(cmd)
	}
	return c.decide()
}

func (c *cluster) do(cmd scenariotest.Command) {
	t, name, args := c.t, "", cmd.Args
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	id := func() int32 { return int32(scenariotest.Number(t, name)) }
	switch cmd.Name {
	case "new":
		c.img = &meta.Image{
			Brokers:       map[int32]meta.Broker{},
			Registrations: map[int32]meta.Registration{},
			Offline:       map[int32]meta.Offline{},
			Topics:        map[string]*meta.TopicImage{},
			Elections:     map[string]meta.Election{},
		}
		c.ends = map[Replica]LogEnd{}
	case "broker":
		r := meta.Registration{ID: id(), Epoch: cmd.Number("epoch"), ValidFrom: cmd.Number("from")}
		if cmd.Text("from") == "" {
			r.ValidFrom = r.Epoch
		}
		c.img.Registrations[id()] = r
		c.img.Brokers[id()] = meta.Broker{ID: id(), Epoch: r.Epoch}
	case "gone":
		delete(c.img.Brokers, id())
	case "offline":
		o := meta.Offline{Broker: id()}
		for _, tp := range args {
			topic, p := partitionName(t, tp)
			o.Add(meta.Lost{Topic: c.img.Topics[topic].ID, Partition: p})
		}
		c.img.Offline[id()] = o
	case "drain":
		c.img.Offline[id()] = meta.Offline{Broker: id(), Draining: c.img.Registrations[id()].Epoch}
	case "full":
		o := c.img.Offline[id()]
		o.Full = c.img.Registrations[id()].Epoch
		c.img.Offline[id()] = o
	case "room":
		delete(c.img.Offline, id())
	case "topic":
		topic := &meta.TopicImage{Topic: meta.Topic{Name: name}}
		copy(topic.ID[:], name)
		for list := range strings.SplitSeq(cmd.Text("replicas"), ":") {
			var ids []int32
			for s := range strings.SplitSeq(list, ",") {
				ids = append(ids, int32(scenariotest.Number(t, s)))
			}
			topic.Replicas = append(topic.Replicas, ids)
			topic.States = append(topic.States, meta.NoState())
		}
		if old := c.img.Topics[name]; old != nil {
			copy(topic.States, old.States)
		}
		topic.Config.Values = map[string]string{"min.insync.replicas": cmd.Text("min")}
		for _, a := range args {
			switch a {
			case "unclean":
				topic.Config.Values["unclean.leader.election.enable"] = "true"
			case "deleting":
				topic.Deleting = true
			}
		}
		c.img.Topics[name] = topic
	case "state":
		topic, p := partitionName(t, name)
		c.img.Topics[topic].States[p] = meta.PartitionState{
			Leader:      members(t, cmd.Text("leader"))[0],
			LeaderEpoch: int32(cmd.Number("epoch")),
			ISR:         members(t, cmd.Text("isr")),
			Eligible:    members(t, cmd.Text("eligible")),
		}
	case "reassign":
		topic, p := partitionName(t, name)
		var to []int32
		for s := range strings.SplitSeq(cmd.Text("to"), ",") {
			to = append(to, int32(scenariotest.Number(t, s)))
		}
		c.edit(topic, func(t meta.Topic) meta.Topic { return t.Reassign(p, to) })
	case "cancel":
		topic, p := partitionName(t, name)
		c.edit(topic, func(t meta.Topic) meta.Topic { return t.Cancel(p) })
	case "elect":
		e := meta.Election{Name: name, Kind: meta.ElectionKind(args[0]), Partitions: map[string][]int32{}}
		for s := range strings.SplitSeq(args[1], ",") {
			topic, p := partitionName(t, s)
			e.Partitions[topic] = append(e.Partitions[topic], p)
		}
		c.img.Elections[name] = e
	case "ends":
		topic, p := partitionName(t, name)
		for _, a := range args {
			m, end, _ := strings.Cut(a, "=")
			epoch, offset, _ := strings.Cut(end, ":")
			r := Replica{c.img.Topics[topic].ID, p, members(t, m)[0], c.img.Topics[topic].States[p].LeaderEpoch}
			c.ends[r] = LogEnd{int32(scenariotest.Number(t, epoch)), scenariotest.Number(t, offset)}
		}
	case "balance":
		c.balance = &Balance{Percent: int(scenariotest.Number(t, name))}
	default:
		t.Fatalf("unknown command %q", cmd.Name)
	}
}

// decide decides, carries it out, and tells.
func (c *cluster) decide() string {
	plan := Decide(Snapshot{Image: c.img, Epoch: 1, Ends: c.ends, Balance: c.balance})
	c.balance = nil
	var out []string
	for _, ch := range plan.Changes {
		out = append(out, describe(ch))
	}
	for _, m := range plan.Moves {
		for _, ch := range m.Ended {
			out = append(out, fmt.Sprintf("%s replicas=%v", describe(ch), m.Topic.Target(ch.Partition)))
		}
	}
	for _, q := range plan.Ask {
		out = append(out, fmt.Sprintf("ask %s about %s-%d in epoch %d", text([]meta.Member{q.Member}), q.Name, q.Partition, q.Epoch))
	}
	for _, e := range plan.Granted {
		out = append(out, "granted "+e.Name)
	}
	if err := apply(c.img, plan); err != nil {
		out = append(out, err.Error())
	}
	for _, t := range plan.Finish {
		out = append(out, "finish deleting "+t.Name)
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "\n")
}

// edit changes a topic's node.
func (c *cluster) edit(name string, f func(meta.Topic) meta.Topic) {
	t := *c.img.Topics[name]
	t.Topic = f(t.Topic)
	c.img.Topics[name] = &t
}

func describe(ch Change) string {
	s := ch.State
	return fmt.Sprintf("%s-%d %s: leader=%s epoch=%d isr=%s eligible=%s", ch.Topic, ch.Partition, ch.Why,
		text([]meta.Member{s.Leader}), s.LeaderEpoch, text(s.ISR), text(s.Eligible))
}

// apply carries a plan out on a picture, as the store would.
func apply(img *meta.Image, plan Plan) error {
	put := func(ch Change) error {
		s := ch.State
		if s.Version++; s.Version < 0 {
			s.Version = 0
		}
		t := *img.Topics[ch.Topic]
		t.States = slices.Clone(t.States)
		t.States[ch.Partition] = s
		img.Topics[ch.Topic] = &t
		_, err := meta.ChangeState(ch.StateChange)
		return err
	}
	for _, ch := range plan.Changes {
		if err := put(ch); err != nil {
			return err
		}
	}
	for _, m := range plan.Moves {
		var states []meta.StateChange
		for _, ch := range m.Ended {
			if err := put(ch); err != nil {
				return err
			}
			states = append(states, ch.StateChange)
		}
		w, n, err := meta.FinishMoves(m.Topic, states)
		if err != nil || n != len(states) {
			return fmt.Errorf("%d of %d moves: %w", n, len(states), err)
		}
		for _, o := range w.Ops {
			if o.Path == meta.TopicPath(m.Topic.Name) {
				t := *img.Topics[m.Topic.Name]
				if t.Topic, err = meta.DecodeTopic(t.Name, meta.Node{Value: o.Value, Version: t.Version + 1}); err != nil {
					return err
				}
				img.Topics[m.Topic.Name] = &t
			}
		}
	}
	for _, t := range plan.Finish {
		delete(img.Topics, t.Name)
	}
	for _, e := range plan.Granted {
		delete(img.Elections, e.Name)
	}
	return nil
}

func partitionName(t *testing.T, s string) (topic string, p int32) {
	topic, n, _ := strings.Cut(s, "-")
	return topic, int32(scenariotest.Number(t, n))
}

func members(t *testing.T, s string) []meta.Member {
	var ms []meta.Member
	for f := range strings.SplitSeq(s, ",") {
		switch id, epoch, ok := strings.Cut(f, "/"); {
		case f == "":
		case f == "none":
			ms = append(ms, meta.NoLeader)
		case !ok:
			t.Fatalf("member %q has no broker epoch", f)
		default:
			ms = append(ms, meta.Member{ID: int32(scenariotest.Number(t, id)), Epoch: scenariotest.Number(t, epoch)})
		}
	}
	return ms
}

func text(ms []meta.Member) string {
	var f []string
	for _, m := range ms {
		if m == meta.NoLeader {
			f = append(f, "none")
			continue
		}
		f = append(f, fmt.Sprintf("%d/%d", m.ID, m.Epoch))
	}
	return strings.Join(f, ",")
}
