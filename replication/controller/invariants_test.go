package controller

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"firn/replication/meta"
)

var seeds = flag.Uint64("seeds", 2000, "how many random clusters to decide on")

// Whatever the cluster looks like: nobody leads who does not qualify, no epoch
// goes down, and what was decided once is not decided again.
func TestWhatDecideNeverDoes(t *testing.T) {
	count := map[Why]int{}
	for seed := range *seeds {
		r := rand.New(rand.NewPCG(seed, 7))
		w := &world{r: r, img: randomImage(r), ends: map[Replica]LogEnd{}}
		for step := range 30 {
			w.disturb()
			if err := w.settle(count); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
	}
	for _, why := range []Why{Created, Elected, Relieved, Preferred, Eligible, Unclean, Recovered, Furthest, Moved, Expelled, Leaderless} {
		if count[why] == 0 {
			t.Errorf("%q never happened", why)
		}
	}
	t.Log(count)
}

// world is a cluster to which things happen.
type world struct {
	r    *rand.Rand
	img  *meta.Image
	ends map[Replica]LogEnd
}

func randomImage(r *rand.Rand) *meta.Image {
	img := &meta.Image{
		Brokers: map[int32]meta.Broker{}, Registrations: map[int32]meta.Registration{}, Offline: map[int32]meta.Offline{},
		Topics: map[string]*meta.TopicImage{}, Elections: map[string]meta.Election{},
	}
	brokers := 2 + r.IntN(5)
	for id := range int32(brokers) {
		img.Registrations[id] = meta.Registration{ID: id, Epoch: 1, ValidFrom: 1}
		img.Brokers[id] = meta.Broker{ID: id, Epoch: 1}
	}
	for i := range 1 + r.IntN(3) {
		t := &meta.TopicImage{Topic: meta.Topic{Name: fmt.Sprint("t", i), ID: meta.TopicID{byte(i + 1)}}}
		t.Config.Values = map[string]string{
			"min.insync.replicas":            fmt.Sprint(1 + r.IntN(2)),
			"unclean.leader.election.enable": fmt.Sprint(r.IntN(4) == 0),
		}
		for range 1 + r.IntN(3) {
			t.Replicas = append(t.Replicas, someOf(r, brokers, 1+r.IntN(min(brokers, 3))))
			t.States = append(t.States, meta.NoState())
		}
		img.Topics[t.Name] = t
	}
	return img
}

func someOf(r *rand.Rand, n, k int) []int32 {
	var ids []int32
	for _, id := range r.Perm(n)[:k] {
		ids = append(ids, int32(id))
	}
	return ids
}

// disturb has a few things happen.
func (w *world) disturb() {
	brokers := len(w.img.Registrations)
	for range 1 + w.r.IntN(4) {
		id := int32(w.r.IntN(brokers))
		switch w.r.IntN(9) {
		case 0:
			delete(w.img.Brokers, id)
		case 1, 2, 3: // back, with or without what it had
			reg := w.img.Registrations[id]
			reg.Epoch++
			if w.r.IntN(3) == 0 {
				reg.ValidFrom = reg.Epoch
			}
			w.img.Registrations[id], w.img.Brokers[id] = reg, meta.Broker{ID: id, Epoch: reg.Epoch}
		case 4:
			w.editTopic(func(t meta.Topic, p int32) meta.Topic {
				if t.Moving(p) && w.r.IntN(2) == 0 {
					return t.Cancel(p)
				}
				return t.Reassign(p, someOf(w.r, brokers, 1+w.r.IntN(min(brokers, 3))))
			})
		case 5:
			o := meta.Offline{Broker: id}
			if w.r.IntN(2) == 0 {
				o.Draining = w.img.Registrations[id].Epoch
			}
			if w.r.IntN(2) == 0 {
				o.Full = w.img.Registrations[id].Epoch
			}
			if w.r.IntN(2) == 0 {
				o.Add(meta.Lost{Topic: meta.TopicID{1}, Partition: 0})
			}
			w.img.Offline[id] = o
		case 6:
			delete(w.img.Offline, id)
		case 7:
			e := meta.Election{Name: fmt.Sprint("w", w.r.Uint32()), Kind: meta.PreferredElection, Partitions: map[string][]int32{"t0": {0, 1, 2}}}
			if w.r.IntN(4) == 0 {
				e.Kind = meta.UncleanElection
			}
			w.img.Elections[e.Name] = e
		case 8:
			w.leaderActs()
		}
	}
}

func (w *world) editTopic(f func(t meta.Topic, p int32) meta.Topic) {
	t := *w.img.Topics["t0"]
	t.Topic = f(t.Topic, int32(w.r.IntN(len(t.Replicas))))
	w.img.Topics["t0"] = &t
}

// leaderActs has leaders change their ISRs: those that are there join, also one
// that has just been taken off the replicas; others are dropped.
func (w *world) leaderActs() {
	live := w.img.Registered()
	for _, name := range slices.Sorted(maps.Keys(w.img.Topics)) {
		t := *w.img.Topics[name]
		t.States = slices.Clone(t.States)
		for p := range t.States {
			s := &t.States[p]
			if s.Leader == meta.NoLeader {
				continue
			}
			isr := []meta.Member{s.Leader}
			for _, id := range slices.Sorted(maps.Keys(live)) {
				known := slices.Contains(t.Replicas[p], id) || w.r.IntN(20) == 0
				if id != s.Leader.ID && known && w.r.IntN(3) > 0 && !w.img.Offline[id].Lists(t.ID, int32(p)) {
					isr = append(isr, live[id].Member())
				}
			}
			s.ISR, s.Version = isr, s.Version+1
			s.Eligible = nil
		}
		w.img.Topics[name] = &t
	}
}

// settle decides and carries out until nothing is left to do.
func (w *world) settle(count map[Why]int) error {
	var balance *Balance
	if w.r.IntN(3) == 0 {
		balance = &Balance{Percent: 10}
	}
	for round := range 8 {
		before := copyOf(w.img)
		plan := Decide(Snapshot{Image: w.img, Epoch: 1, Ends: w.ends, Balance: balance})
		if err := w.check(plan); err != nil {
			return err
		}
		for _, ch := range everyChange(plan) {
			count[ch.Why]++
		}
		if err := apply(w.img, plan); err != nil {
			return err
		}
		for _, q := range plan.Ask {
			if w.r.IntN(3) > 0 {
				w.ends[q.Replica] = LogEnd{int32(w.r.IntN(3)), int64(w.r.IntN(3))}
			}
		}
		if len(plan.Changes)+len(plan.Moves)+len(plan.Granted) == 0 {
			if err := w.atRest(); err != nil {
				return err
			}
			if len(plan.Ask) == 0 || round > 4 {
				return nil
			}
			continue
		}
		if round == 7 {
			return fmt.Errorf("doesn't come to rest: %+v\non %+v", plan, before)
		}
	}
	return nil
}

// atRest: where somebody in sync has room, nobody leads whose disk is full.
func (w *world) atRest() error {
	live := w.img.Registered()
	for _, t := range w.img.Topics {
		for p, s := range t.States {
			if l := s.Leader; l == meta.NoLeader || !w.img.Offline[l.ID].IsFull(live[l.ID].Epoch) || w.img.Offline[l.ID].Drains(live[l.ID].Epoch) {
				continue
			}
			for _, m := range s.ISR {
				o, reg := w.img.Offline[m.ID], live[m.ID]
				if slices.Contains(t.Replicas[p], m.ID) && reg.Holds(m) && !o.IsFull(reg.Epoch) && !o.Drains(reg.Epoch) && !o.Lists(t.ID, int32(p)) {
					return fmt.Errorf("%s-%d is led by %v, whose disk is full; %v has room", t.Name, p, s.Leader, m)
				}
			}
		}
	}
	return nil
}

func copyOf(img *meta.Image) map[string]meta.TopicImage {
	all := map[string]meta.TopicImage{}
	for name, t := range img.Topics {
		all[name] = *t
	}
	return all
}

func everyChange(plan Plan) []Change {
	all := slices.Clone(plan.Changes)
	for _, m := range plan.Moves {
		all = append(all, m.Ended...)
	}
	return all
}

func (w *world) check(plan Plan) error {
	live := w.img.Registered()
	seen := map[meta.TopicPartition]bool{}
	for _, ch := range everyChange(plan) {
		t := w.img.Topics[ch.Topic]
		old, now := t.States[ch.Partition], ch.State
		bad := func(words string) error {
			return fmt.Errorf("%s: %s\nwas %+v\nof %+v", words, describe(ch), old, t.Topic)
		}
		if tp := (meta.TopicPartition{Topic: ch.Topic, Partition: ch.Partition}); seen[tp] {
			return bad("changed twice")
		} else {
			seen[tp] = true
		}
		if old.Version != meta.Missing && now.LeaderEpoch != old.LeaderEpoch+1 {
			return bad("epoch not raised by one")
		}
		if now.Leader == meta.NoLeader {
			if ch.Why != Leaderless || !slices.Equal(now.ISR, old.ISR) || !slices.Equal(now.Eligible, old.Eligible) {
				return bad("leader none changes something else")
			}
			continue
		}
		if len(now.ISR) == 0 || now.ISR[0] != now.Leader {
			return bad("the leader is not the first of the ISR")
		}
		replicas := t.Replicas[ch.Partition]
		if ch.Why == Moved {
			replicas = t.Target(ch.Partition)
		}
		for _, m := range now.ISR {
			reg, ok := live[m.ID]
			held := slices.ContainsFunc(slices.Concat(old.ISR, old.Eligible), reg.Holds)
			switch {
			case !ok || reg.Epoch != m.Epoch:
				return bad("not registered so")
			case !slices.Contains(replicas, m.ID):
				return bad("not a replica")
			case w.img.Offline[m.ID].Lists(t.ID, ch.Partition):
				return bad("has given it up")
			case ch.Why != Created && !ch.Why.Unclean() && !held:
				return bad("doesn't hold what it was counted for")
			}
		}
		for _, m := range now.Eligible {
			if !slices.Contains(replicas, m.ID) || names(now.ISR, m.ID) {
				return bad("eligible, but shouldn't be")
			}
		}
		if ch.Why == Furthest || ch.Why == Recovered {
			for _, m := range slices.Concat(old.ISR, old.Eligible) {
				if _, ok := live[m.ID]; !ok && slices.Contains(t.Replicas[ch.Partition], m.ID) {
					return bad("not all are back")
				}
			}
		}
		if ch.Why == Moved && len(old.ISR) > len(now.ISR) {
			min := 1
			fmt.Sscan(t.Config.Values["min.insync.replicas"], &min)
			kept := 0
			for _, m := range old.ISR {
				if slices.Contains(replicas, m.ID) {
					kept++
				}
			}
			if kept < len(old.ISR) && len(now.ISR) < min && len(now.ISR) < len(replicas) {
				return bad("a move leaves too few in sync")
			}
		}
	}
	return nil
}
