package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// moveView is a partition's way to other brokers.
type moveView struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	From      []int32 `json:"from"`
	To        []int32 `json:"to"`
	Adding    []int32 `json:"adding,omitempty"`
	Removing  []int32 `json:"removing,omitempty"`
}

func clusterReassign(g *global) *cobra.Command {
	var o struct {
		brokers                    string
		to                         []int
		replicas                   int
		drain                      int32
		exactly, list, cancel, dry bool
		wait                       bool
	}
	c := &cobra.Command{
		Use:   "reassign [TOPIC[:PARTITION]...]",
		Short: "Move partitions to other brokers, empty a broker, list or take back what is under way",
		Long: `Moves the named topics or partitions. New replicas copy first; those that leave go
when all new ones are in sync. Records that are archived aren't copied.

What is as it is wished stays as it is: --to moves no more than it takes to have
--replicas of each partition on these brokers, racks apart, and these level. --wait
ends when every broker shows the outcome.`,
		Example: `  firn cluster reassign events --to 1,2,3 --replicas 3   spread over these brokers
  firn cluster reassign events:4 --to 3,1 --exactly      broker 3 first: it is preferred to lead
  firn cluster reassign --drain 2 --wait                 move everything off broker 2
  firn cluster reassign --list
  firn cluster reassign events --cancel`,
		RunE: func(c *cobra.Command, args []string) error {
			return withClient(o.brokers, func(cl *kgo.Client, a *kadm.Client) error {
				look := loadAgreed
				if o.list || o.cancel {
					look = loadWhole
				}
				v, err := look(c.Context(), cl, a)
				if err != nil {
					return err
				}
				parts, err := v.named(args)
				if err != nil {
					return err
				}
				var moves []moveView
				switch {
				case o.list, o.cancel:
					moves = v.movesUnderWay(parts)
				case o.drain >= 0:
					moves, err = v.drain(parts, o.drain)
					parts = slices.DeleteFunc(slices.Clone(parts), func(p kadm.PartitionDetail) bool { return !slices.Contains(p.Replicas, o.drain) })
				case len(o.to) > 0 && len(args) > 0:
					moves, err = v.spread(parts, o.to, o.replicas, o.exactly)
				default:
					err = errors.New("what is to be done? give topics and --to, or --drain, --list, --cancel")
				}
				if err != nil {
					return err
				}
				if o.cancel && !o.list {
					for i := range moves {
						moves[i].To = nil
					}
				}
				none := "nothing to do"
				switch {
				case o.list, o.cancel:
					none = "nothing is under way"
				case len(o.to) > 0:
					none = fmt.Sprintf("nothing to do: %d partitions are as wished", len(parts))
				}
				if o.list || o.dry {
					return showMoves(g, moves, none)
				}
				if err := reassign(c.Context(), a, moves); err != nil {
					return err
				}
				wished := v.wished(parts, moves)
				if o.wait && !o.cancel {
					if err := awaitMoves(c.Context(), cl, wished); err != nil {
						return err
					}
				}
				if err := showMoves(g, moves, none); err != nil {
					return err
				}
				if o.drain >= 0 && len(args) == 0 && !g.json() && len(wished) == 0 {
					fmt.Printf("broker %d holds no replicas: stop it, and `firn cluster unregister %d` has the cluster forget it\n", o.drain, o.drain)
				}
				return nil
			})
		},
	}
	brokersFlag(c, &o.brokers)
	f := c.Flags()
	f.IntSliceVar(&o.to, "to", nil, "brokers to spread the partitions over")
	f.IntVarP(&o.replicas, "replicas", "r", 0, "replicas of each partition; 0: as many as now")
	f.BoolVar(&o.exactly, "exactly", false, "--to is each partition's replicas, in this order")
	f.Int32Var(&o.drain, "drain", -1, "move everything off this broker")
	f.BoolVar(&o.list, "list", false, "list what is under way")
	f.BoolVar(&o.cancel, "cancel", false, "take back what is under way")
	f.BoolVar(&o.dry, "dry-run", false, "show what would be moved")
	f.BoolVar(&o.wait, "wait", false, "wait until all is moved")
	return c
}

// named are the partitions that arguments name; all, if there are none.
func (v *clusterView) named(args []string) ([]kadm.PartitionDetail, error) {
	if len(args) == 0 {
		return v.parts, nil
	}
	var out []kadm.PartitionDetail
	named := map[at]bool{} // twice is once
	for _, arg := range args {
		topic, only, err := splitPartition(arg)
		if err != nil {
			return nil, err
		}
		found := false
		for _, p := range v.parts {
			if p.Topic != topic || only != nil && !slices.Contains(only, p.Partition) {
				continue
			}
			if k := (at{p.Topic, p.Partition}); !named[k] {
				named[k], out = true, append(out, p)
			}
			found = true
		}
		if !found {
			return nil, fmt.Errorf("%s: no such topic or partition", arg)
		}
	}
	return out, nil
}

func (v *clusterView) movesUnderWay(parts []kadm.PartitionDetail) (moves []moveView) {
	for _, p := range parts {
		if m, ok := v.move(p); ok {
			moves = append(moves, moveView{
				Topic: p.Topic, Partition: p.Partition, Adding: m.AddingReplicas, Removing: m.RemovingReplicas,
				From: minus(m.Replicas, m.AddingReplicas), To: minus(m.Replicas, m.RemovingReplicas),
			})
		}
	}
	return moves
}

func minus(ids, gone []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return slices.Contains(gone, id) })
}

// now are a partition's replicas, or those that it is on its way to.
func (v *clusterView) now(p kadm.PartitionDetail) []int32 {
	if m, ok := v.move(p); ok {
		return minus(m.Replicas, m.RemovingReplicas)
	}
	return p.Replicas
}

// wished is where each of parts that is under way, or is moved now, shall end.
func (v *clusterView) wished(parts []kadm.PartitionDetail, moves []moveView) map[at][]int32 {
	all := map[at][]int32{}
	for _, p := range parts {
		if _, ok := v.move(p); ok {
			all[at{p.Topic, p.Partition}] = v.now(p)
		}
	}
	for _, m := range moves {
		all[at{m.Topic, m.Partition}] = m.To
	}
	return all
}

// spread puts partitions on brokers, level and racks apart, or exactly.
func (v *clusterView) spread(parts []kadm.PartitionDetail, to []int, replicas int, exactly bool) (moves []moveView, err error) {
	var ids []int32
	racks := map[int32]string{}
	for _, id := range to {
		d, ok := v.live[int32(id)]
		if !ok {
			return nil, fmt.Errorf("broker %d is not there", id)
		}
		if slices.Contains(ids, int32(id)) {
			return nil, fmt.Errorf("--to names broker %d twice", id)
		}
		ids = append(ids, int32(id))
		if d.Rack != nil {
			racks[int32(id)] = *d.Rack
		}
	}
	plan := &spread{brokers: slices.Clone(ids), rack: racks, random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
	for _, p := range parts {
		now := v.now(p)
		factor := cmp.Or(replicas, len(now))
		if exactly {
			factor = len(ids)
		}
		if factor > len(ids) {
			return nil, fmt.Errorf("%d replicas of %s don't fit on %d brokers: name more with --to, or fewer with --replicas", factor, p.Topic, len(ids))
		}
		plan.add(p.Topic, now, factor)
	}
	placed := plan.plan()
	for i, p := range parts {
		if exactly {
			placed[i] = ids
		}
		if now := v.now(p); !slices.Equal(now, placed[i]) {
			moves = append(moves, moveView{Topic: p.Topic, Partition: p.Partition, From: now, To: placed[i]})
		}
	}
	return moves, nil
}

// drain moves everything off a broker: each replica to the broker that has the
// fewest by then, of a rack that has none of the partition if there is one.
func (v *clusterView) drain(parts []kadm.PartitionDetail, broker int32) (moves []moveView, err error) {
	if known := v.known(); !slices.Contains(known, broker) {
		return nil, fmt.Errorf("broker %d is not known here: the cluster's brokers are %s", broker, idsText(known))
	}
	load := map[int32]int{}
	for id := range v.live {
		if id != broker {
			load[id] = 0
		}
	}
	for _, p := range v.parts {
		for _, id := range v.now(p) {
			if _, ok := load[id]; ok {
				load[id]++
			}
		}
	}
	rack := func(id int32) string {
		if d, ok := v.live[id]; ok && d.Rack != nil {
			return *d.Rack
		}
		return ""
	}
	for _, p := range parts {
		now := v.now(p)
		at := slices.Index(now, broker)
		if at < 0 {
			continue
		}
		rest := minus(now, []int32{broker})
		taken := map[string]int{}
		for _, id := range rest {
			taken[rack(id)]++
		}
		best := int32(-1)
		for _, id := range slices.Sorted(maps.Keys(load)) {
			if slices.Contains(rest, id) {
				continue
			}
			if best < 0 || taken[rack(id)] < taken[rack(best)] || taken[rack(id)] == taken[rack(best)] && load[id] < load[best] {
				best = id
			}
		}
		if len(load) == 0 {
			return nil, fmt.Errorf("no broker but %d is there: nobody can take what it hosts", broker)
		}
		if best < 0 {
			return nil, fmt.Errorf("%s-%d has %d replicas, and no other broker can take that of broker %d: give it fewer replicas first (--replicas)",
				p.Topic, p.Partition, len(now), broker)
		}
		load[best]++
		to := slices.Clone(now)
		to[at] = best
		moves = append(moves, moveView{Topic: p.Topic, Partition: p.Partition, From: now, To: to})
	}
	return moves, nil
}

// reassign asks for moves; to nil takes back what is under way.
func reassign(ctx context.Context, a *kadm.Client, moves []moveView) error {
	if len(moves) == 0 {
		return nil
	}
	var req kadm.AlterPartitionAssignmentsReq
	for _, m := range moves {
		req.Assign(m.Topic, m.Partition, m.To)
	}
	rs, err := a.AlterPartitionAssignments(ctx, req)
	if err != nil {
		return fmt.Errorf("reassign: %w", err)
	}
	for _, r := range rs.Sorted() {
		if err := failure(fmt.Sprintf("reassign %s-%d", r.Topic, r.Partition), r.Err, r.ErrMessage); err != nil {
			return err
		}
	}
	return nil
}

func showMoves(g *global, moves []moveView, none string) error {
	if !g.json() && len(moves) == 0 {
		fmt.Println(none)
		return nil
	}
	tab := newTable(os.Stdout, "TOPIC", "PARTITION", "FROM", "TO")
	for _, m := range moves {
		if g.json() {
			if err := printJSON(os.Stdout, m); err != nil {
				return err
			}
			continue
		}
		to := idsText(m.To)
		if m.To == nil {
			to = "(taken back)"
		}
		tab.row(m.Topic, m.Partition, idsText(m.From), to)
	}
	if !g.json() {
		tab.flush()
	}
	return nil
}
