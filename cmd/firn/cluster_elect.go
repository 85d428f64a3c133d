package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func clusterElect(g *global) *cobra.Command {
	var brokers string
	var unclean bool
	c := &cobra.Command{
		Use:   "elect [TOPIC[:PARTITION]...]",
		Short: "Give leaderships back to the preferred leaders, or force an election",
		Long: `Has the preferred leader, the first replica, lead where it is in sync and its disk is
not full: of the named topics or partitions, or of all. With --unclean a partition that nobody leads is
led by a replica that is there, whatever it lacks: records may be lost.`,
		RunE: func(c *cobra.Command, args []string) error {
			if unclean && len(args) == 0 {
				return errors.New("--unclean may lose records: name the partitions")
			}
			return admin(brokers, func(a *kadm.Client) error {
				v, err := loadCluster(c.Context(), a)
				if err != nil {
					return err
				}
				parts, err := v.named(args)
				if err != nil {
					return err
				}
				how := kadm.ElectPreferredReplica
				if unclean {
					how = kadm.ElectLiveReplica
				}
				return elect(c.Context(), g, a, how, parts)
			})
		},
	}
	brokersFlag(c, &brokers)
	c.Flags().BoolVar(&unclean, "unclean", false, "where nobody leads, take any replica that is there")
	return c
}

func elect(ctx context.Context, g *global, a *kadm.Client, how kadm.ElectLeadersHow, parts []kadm.PartitionDetail) error {
	set := kadm.TopicsSet{}
	for _, p := range parts {
		set.Add(p.Topic, p.Partition)
	}
	rs, err := a.ElectLeaders(ctx, how, set)
	if err != nil {
		return fmt.Errorf("elect leaders: %w", err)
	}
	elected, failed := 0, 0
	for _, topic := range slices.Sorted(maps.Keys(rs)) {
		for _, p := range slices.Sorted(maps.Keys(rs[topic])) {
			r := rs[topic][p]
			if isCode(r.Err, "ELECTION_NOT_NEEDED") {
				continue
			}
			what := "elected"
			if r.Err == nil {
				elected++
			} else {
				failed++
				what = ourWords(r.Err).Error()
				if k := (*kerr.Error)(nil); r.ErrMessage != "" && errors.As(r.Err, &k) {
					what = (&told{k, r.ErrMessage}).Error()
				}
			}
			if g.json() {
				if err := printJSON(os.Stdout, map[string]any{"topic": topic, "partition": p, "elected": r.Err == nil, "error": errText(r.Err)}); err != nil {
					return err
				}
				continue
			}
			fmt.Println(topic+"-"+strconv.Itoa(int(p))+":", what)
		}
	}
	if !g.json() && elected+failed == 0 {
		fmt.Println("no election was needed")
	}
	if failed > 0 {
		return &exitError{1}
	}
	return nil
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
