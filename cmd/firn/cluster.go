package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func clusterCommand(g *global) *cobra.Command {
	c := &cobra.Command{
		Use:   "cluster",
		Short: "The brokers: who leads what, what is wrong, and moving partitions",
	}
	c.AddCommand(clusterStatus(g), clusterBrokers(g), clusterHealth(g), clusterReassign(g), clusterElect(g), clusterUnregister(g), clusterAdopt(g))
	return c
}

// clusterView is a cluster as any of its brokers describes it.
type clusterView struct {
	id         string
	controller int32
	live       map[int32]kadm.BrokerDetail
	registered []int32                // brokers that the cluster knows, away or not; nil unless asked for
	parts      []kadm.PartitionDetail // by topic and number
	topics     int
	moving     kadm.ListPartitionReassignmentsResponses
}

func loadCluster(ctx context.Context, a *kadm.Client) (*clusterView, error) {
	m, err := a.Metadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("describe the cluster: %w", err)
	}
	v := &clusterView{id: m.Cluster, controller: m.Controller, live: map[int32]kadm.BrokerDetail{}, topics: len(m.Topics)}
	for _, b := range m.Brokers {
		v.live[b.NodeID] = b
	}
	for _, t := range m.Topics.Sorted() {
		v.parts = append(v.parts, t.Partitions.Sorted()...)
	}
	if v.moving, err = a.ListPartitionReassignments(ctx, nil); err != nil {
		return nil, fmt.Errorf("list reassignments: %w", err)
	}
	return v, nil
}

// loadWhole is loadCluster with the brokers that are away and host nothing.
func loadWhole(ctx context.Context, cl *kgo.Client, a *kadm.Client) (*clusterView, error) {
	v, err := loadCluster(ctx, a)
	if err != nil {
		return nil, err
	}
	v.registered, err = registered(ctx, cl)
	return v, err
}

// known are the brokers that are there, registered, or named by replicas.
func (v *clusterView) known() []int32 {
	ids := map[int32]bool{}
	for id := range v.live {
		ids[id] = true
	}
	for _, id := range v.registered {
		ids[id] = true
	}
	for _, p := range v.parts {
		for _, id := range p.Replicas {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// away are those of them that are not there.
func (v *clusterView) away() []int32 {
	return slices.DeleteFunc(v.known(), func(id int32) bool { _, ok := v.live[id]; return ok })
}

// move is the reassignment of a partition, if one is under way.
func (v *clusterView) move(p kadm.PartitionDetail) (kadm.ListPartitionReassignmentsResponse, bool) {
	m, ok := v.moving[p.Topic][p.Partition]
	return m, ok
}

// statusView is what `cluster status` tells.
type statusView struct {
	Cluster         string  `json:"cluster"`
	Controller      int32   `json:"controller"` // -1: none
	Brokers         []int32 `json:"brokers"`
	Away            []int32 `json:"away"`
	Topics          int     `json:"topics"`
	Partitions      int     `json:"partitions"`
	Offline         int     `json:"offline"`
	UnderReplicated int     `json:"underReplicated"`
	Moving          int     `json:"moving"`
	NotPreferred    int     `json:"notPreferred"`
}

func (v *clusterView) status() statusView {
	s := statusView{Cluster: v.id, Controller: v.controller, Brokers: slices.Sorted(maps.Keys(v.live)), Away: v.away(), Topics: v.topics, Partitions: len(v.parts)}
	if s.Away == nil {
		s.Away = []int32{}
	}
	for _, p := range v.parts {
		_, moving := v.move(p)
		switch {
		case p.Leader < 0:
			s.Offline++
		case len(p.ISR) < len(p.Replicas):
			s.UnderReplicated++
		}
		if moving {
			s.Moving++
		}
		if p.Leader >= 0 && len(p.Replicas) > 0 && p.Leader != p.Replicas[0] {
			s.NotPreferred++
		}
	}
	return s
}

func clusterStatus(g *global) *cobra.Command {
	var brokers string
	c := &cobra.Command{
		Use: "status", Short: "One look at brokers and partitions", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withClient(brokers, func(cl *kgo.Client, a *kadm.Client) error {
				v, err := loadWhole(c.Context(), cl, a)
				if err != nil {
					return err
				}
				s := v.status()
				if g.json() {
					return printJSON(os.Stdout, s)
				}
				controller := "none"
				if s.Controller >= 0 {
					controller = fmt.Sprint("broker ", s.Controller)
				}
				fmt.Printf("cluster     %s\ncontroller  %s\nbrokers     %s\n", s.Cluster, controller, idsText(s.Brokers))
				if len(s.Away) > 0 {
					fmt.Printf("away        %s\n", idsText(s.Away))
				}
				fmt.Printf("topics      %d with %d partitions\n", s.Topics, s.Partitions)
				for _, row := range []struct {
					n    int
					name string
				}{
					{s.Offline, "without a leader"}, {s.UnderReplicated, "under-replicated"},
					{s.Moving, "being reassigned"}, {s.NotPreferred, "not led by their preferred leader"},
				} {
					if row.n > 0 {
						fmt.Printf("            %d %s\n", row.n, row.name)
					}
				}
				if s.Offline+s.UnderReplicated > 0 {
					fmt.Println("\n`firn cluster health` tells which, and why.")
				}
				return nil
			})
		},
	}
	brokersFlag(c, &brokers)
	return c
}

func idsText(ids []int32) string {
	s := make([]string, len(ids))
	for i, id := range ids {
		s[i] = fmt.Sprint(id)
	}
	return strings.Join(s, ", ")
}

// brokerView is a broker as `cluster brokers` lists it.
type brokerView struct {
	ID         int32  `json:"broker"`
	Address    string `json:"address,omitempty"`
	Rack       string `json:"rack,omitempty"`
	Controller bool   `json:"controller"`
	Away       bool   `json:"away"`
	Leads      int    `json:"leads"`
	Replicas   int    `json:"replicas"`
	InSync     int    `json:"inSync"`
	Bytes      int64  `json:"bytes"` // of its logs, -1: it doesn't say
}

func (v *clusterView) brokers(dirs kadm.DescribedAllLogDirs) []brokerView {
	views := map[int32]*brokerView{}
	of := func(id int32) *brokerView {
		b := views[id]
		if b == nil {
			b = &brokerView{ID: id, Controller: id == v.controller, Bytes: -1}
			if d, ok := v.live[id]; ok {
				b.Address = fmt.Sprintf("%s:%d", d.Host, d.Port)
				if d.Rack != nil {
					b.Rack = *d.Rack
				}
			} else {
				b.Away = true
			}
			views[id] = b
		}
		return b
	}
	for _, id := range v.known() {
		of(id)
	}
	for _, p := range v.parts {
		if p.Leader >= 0 {
			of(p.Leader).Leads++
		}
		for _, id := range p.Replicas {
			of(id).Replicas++
		}
		for _, id := range p.ISR {
			of(id).InSync++
		}
	}
	dirs.Each(func(d kadm.DescribedLogDir) {
		if b := of(d.Broker); d.Err == nil {
			b.Bytes = max(b.Bytes, 0)
			for _, ps := range d.Topics {
				for _, p := range ps {
					b.Bytes += p.Size
				}
			}
		}
	})
	var out []brokerView
	for _, b := range views {
		out = append(out, *b)
	}
	slices.SortFunc(out, func(a, b brokerView) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func clusterBrokers(g *global) *cobra.Command {
	var brokers string
	c := &cobra.Command{
		Use: "brokers", Short: "List the brokers with what they lead, host and keep", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withClient(brokers, func(cl *kgo.Client, a *kadm.Client) error {
				v, err := loadWhole(c.Context(), cl, a)
				if err != nil {
					return err
				}
				dirs, err := a.DescribeAllLogDirs(c.Context(), nil)
				if err != nil && len(dirs) == 0 {
					return fmt.Errorf("describe log directories: %w", err)
				}
				list := v.brokers(dirs)
				if g.json() {
					for _, b := range list {
						if err := printJSON(os.Stdout, b); err != nil {
							return err
						}
					}
					return nil
				}
				tab := newTable(os.Stdout, "BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS", "IN-SYNC", "LOGS", "")
				for _, b := range list {
					size, note := "-", ""
					if b.Bytes >= 0 {
						size = bytesText(b.Bytes)
					}
					switch {
					case b.Away:
						note = "away"
					case b.Controller:
						note = "controller"
					}
					tab.row(b.ID, orDash(b.Address), orDash(b.Rack), b.Leads, b.Replicas, b.InSync, size, note)
				}
				tab.flush()
				return nil
			})
		},
	}
	brokersFlag(c, &brokers)
	return c
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
