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
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/replication/controller"
	"firn/replication/meta"
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
when all new ones are in sync. Records that are archived aren't copied.`,
		Example: `  firn cluster reassign events --to 1,2,3 --replicas 3   spread over these brokers
  firn cluster reassign events:4 --to 3,1 --exactly      broker 3 first: it is preferred to lead
  firn cluster reassign --drain 2 --wait                 move everything off broker 2
  firn cluster reassign --list
  firn cluster reassign events --cancel`,
		RunE: func(c *cobra.Command, args []string) error {
			return withClient(o.brokers, func(cl *kgo.Client, a *kadm.Client) error {
				v, err := loadWhole(c.Context(), cl, a)
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
				if o.list || o.dry {
					return showMoves(g, moves)
				}
				if err := reassign(c.Context(), a, moves); err != nil {
					return err
				}
				if o.wait && !o.cancel {
					if err := awaitMoves(c.Context(), a, moves); err != nil {
						return err
					}
				}
				if err := showMoves(g, moves); err != nil {
					return err
				}
				if o.drain >= 0 && len(args) == 0 && !g.json() && (o.wait || len(moves) == 0) {
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
	for _, arg := range args {
		topic, only, err := splitPartition(arg)
		if err != nil {
			return nil, err
		}
		before := len(out)
		for _, p := range v.parts {
			if p.Topic == topic && (only == nil || slices.Contains(only, p.Partition)) {
				out = append(out, p)
			}
		}
		if len(out) == before {
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

// spread puts partitions on brokers, each topic's leaders in turn, racks apart.
func (v *clusterView) spread(parts []kadm.PartitionDetail, to []int, replicas int, exactly bool) (moves []moveView, err error) {
	var over []meta.Broker
	var ids []int32
	for _, id := range to {
		d, ok := v.live[int32(id)]
		if !ok {
			return nil, fmt.Errorf("broker %d is not there", id)
		}
		if slices.Contains(ids, int32(id)) {
			return nil, fmt.Errorf("--to names broker %d twice", id)
		}
		b := meta.Broker{ID: int32(id)}
		if d.Rack != nil {
			b.Rack = *d.Rack
		}
		over, ids = append(over, b), append(ids, b.ID)
	}
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && parts[n].Topic == parts[0].Topic && len(v.now(parts[n])) == len(v.now(parts[0])) {
			n++
		}
		factor := cmp.Or(replicas, len(v.now(parts[0])))
		if exactly {
			factor = len(ids)
		}
		if factor > len(over) {
			return nil, fmt.Errorf("%d replicas of %s don't fit on %d brokers: name more with --to, or fewer with --replicas", factor, parts[0].Topic, len(over))
		}
		placed := controller.Place(over, 0, n, factor, random)
		for i, p := range parts[:n] {
			if exactly {
				placed[i] = ids
			}
			if now := v.now(p); !slices.Equal(now, placed[i]) {
				moves = append(moves, moveView{Topic: p.Topic, Partition: p.Partition, From: now, To: placed[i]})
			}
		}
		parts = parts[n:]
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

// awaitMoves waits until none of moves is under way.
func awaitMoves(ctx context.Context, a *kadm.Client, moves []moveView) error {
	for {
		now, err := a.ListPartitionReassignments(ctx, nil)
		if err != nil {
			return fmt.Errorf("list reassignments: %w", err)
		}
		if !slices.ContainsFunc(moves, func(m moveView) bool { _, ok := now[m.Topic][m.Partition]; return ok }) {
			return nil
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func showMoves(g *global, moves []moveView) error {
	if !g.json() && len(moves) == 0 {
		fmt.Println("nothing to move")
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
