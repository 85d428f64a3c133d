package controller

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"firn/replication/meta"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// TestFiles runs testdata/*.txt: commands that draw a cluster, a line of dashes,
// and what is decided for it. The cluster goes on from block to block until the
// next new; what was decided is carried out.
//
//	new
//	broker  ID epoch=N from=N     registered; from is its valid-from, N if left out
//	gone    ID                    its registration is gone
//	offline ID TOPIC-N,…          what it gives up
//	drain   ID                    it gives up everything
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
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { runFile(t, file) })
	}
}

func runFile(t *testing.T, file string) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var c cluster
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n\n") {
		in, want, ok := strings.Cut(block, "\n----")
		if !ok {
			out = append(out, block) // a comment
			continue
		}
		got := c.run(t, in)
		if want = strings.Trim(want, "\n"); got != want && !*update {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", in, got, want)
		}
		out = append(out, in+"\n----\n"+got)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// cluster is the picture that is drawn.
type cluster struct {
	img     *meta.Image
	ends    map[Replica]LogEnd
	balance *Balance
}

func (c *cluster) run(t *testing.T, in string) string {
	for line := range strings.SplitSeq(in, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if f[0] == "new" {
			c.img = &meta.Image{
				Brokers:       map[int32]meta.Broker{},
				Registrations: map[int32]meta.Registration{},
				Offline:       map[int32]meta.Offline{},
				Topics:        map[string]*meta.TopicImage{},
				Elections:     map[string]meta.Election{},
			}
			c.ends = map[Replica]LogEnd{}
			continue
		}
		if len(f) < 2 {
			t.Fatalf("bad command %q", line)
		}
		c.command(t, f[0], f[1], f[2:])
	}
	return c.decide()
}

func (c *cluster) command(t *testing.T, cmd, name string, args []string) {
	id := func() int32 { return int32(number(t, name)) }
	switch cmd {
	case "broker":
		r := meta.Registration{ID: id(), Epoch: number(t, value(args, "epoch")), ValidFrom: number(t, value(args, "from"))}
		if value(args, "from") == "" {
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
	case "topic":
		topic := &meta.TopicImage{Topic: meta.Topic{Name: name}}
		copy(topic.ID[:], name)
		for list := range strings.SplitSeq(value(args, "replicas"), ":") {
			var ids []int32
			for s := range strings.SplitSeq(list, ",") {
				ids = append(ids, int32(number(t, s)))
			}
			topic.Replicas = append(topic.Replicas, ids)
			topic.States = append(topic.States, meta.NoState())
		}
		if old := c.img.Topics[name]; old != nil {
			copy(topic.States, old.States)
		}
		topic.Config.Values = map[string]string{"min.insync.replicas": value(args, "min")}
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
			Leader:      members(t, value(args, "leader"))[0],
			LeaderEpoch: int32(number(t, value(args, "epoch"))),
			ISR:         members(t, value(args, "isr")),
			Eligible:    members(t, value(args, "eligible")),
		}
	case "reassign":
		topic, p := partitionName(t, name)
		var to []int32
		for s := range strings.SplitSeq(value(args, "to"), ",") {
			to = append(to, int32(number(t, s)))
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
			c.ends[r] = LogEnd{int32(number(t, epoch)), number(t, offset)}
		}
	case "balance":
		c.balance = &Balance{Percent: int(number(t, name))}
	default:
		t.Fatalf("unknown command %q", cmd)
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

func value(args []string, key string) string {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, key+"="); ok {
			return v
		}
	}
	return ""
}

func number(t *testing.T, s string) int64 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func partitionName(t *testing.T, s string) (topic string, p int32) {
	topic, n, _ := strings.Cut(s, "-")
	return topic, int32(number(t, n))
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
			ms = append(ms, meta.Member{ID: int32(number(t, id)), Epoch: number(t, epoch)})
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
