package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func topicCommand(g *global) *cobra.Command {
	c := &cobra.Command{Use: "topic", Short: "Create, list, describe, alter and delete topics"}
	c.AddCommand(topicCreate(), topicList(g), topicDescribe(g), topicAlter(), topicDelete())
	return c
}

// parseConfigs reads key=value pairs.
func parseConfigs(pairs []string) (map[string]*string, error) {
	out := map[string]*string{}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("-c %q: write key=value", p)
		}
		out[k] = &v
	}
	return out, nil
}

// failure makes one error of a Kafka error and its text.
func failure(what string, err error, text string) error {
	if err == nil {
		return nil
	}
	if unknown := kerr.UnknownTopicOrPartition; isCode(err, unknown.Message) && (text == "" || text == unknown.Description) {
		text = "there is no such topic or partition (`firn topic list`)"
	}
	if k := (*kerr.Error)(nil); text != "" && errors.As(err, &k) {
		err = &told{k, text}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// told is a Kafka error with words about this case in the place of the general ones.
type told struct {
	code *kerr.Error
	text string
}

func (t *told) Error() string { return t.code.Message + ": " + t.text }
func (t *told) Unwrap() error { return t.code }

func topicCreate() *cobra.Command {
	var brokers string
	var partitions int32
	var replicas int16
	var pairs []string
	c := &cobra.Command{
		Use:   "create TOPIC...",
		Short: "Create topics",
		Example: `  firn topic create events
  firn topic create orders -p 6 -c retention.ms=-1 -c local.retention.ms=3600000`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configs, err := parseConfigs(pairs)
			if err != nil {
				return err
			}
			return admin(brokers, func(a *kadm.Client) error {
				rs, err := a.CreateTopics(c.Context(), partitions, replicas, configs, args...)
				if err != nil {
					return fmt.Errorf("create topics: %w", err)
				}
				for _, name := range args {
					r := rs[name]
					if err := failure("create "+name, r.Err, r.ErrMessage); err != nil {
						return err
					}
					fmt.Printf("created %s with %d partitions\n", name, r.NumPartitions)
				}
				return nil
			})
		},
	}
	brokersFlag(c, &brokers)
	c.Flags().Int32VarP(&partitions, "partitions", "p", -1, "number of partitions; -1: the broker's num.partitions")
	c.Flags().Int16VarP(&replicas, "replicas", "r", -1, "replication factor; -1: the broker's default.replication.factor")
	c.Flags().Int16Var(&replicas, "replication-factor", -1, "the same, as Kafka's tool has it")
	c.Flags().StringArrayVarP(&pairs, "config", "c", nil, "topic config key=value; may be repeated")
	return c
}

func topicList(g *global) *cobra.Command {
	var brokers string
	var internal bool
	c := &cobra.Command{
		Use: "list", Short: "List topics", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return admin(brokers, func(a *kadm.Client) error {
				list := a.ListTopics
				if internal {
					list = a.ListTopicsWithInternal
				}
				ts, err := list(c.Context())
				if err != nil {
					return fmt.Errorf("list topics: %w", err)
				}
				if g.json() {
					for _, t := range ts.Sorted() {
						if err := printJSON(os.Stdout, map[string]any{"topic": t.Topic, "id": idText(t.ID), "partitions": len(t.Partitions), "internal": t.IsInternal}); err != nil {
							return err
						}
					}
					return nil
				}
				tab := newTable(os.Stdout, "TOPIC", "PARTITIONS", "REPLICAS")
				for _, t := range ts.Sorted() {
					tab.row(t.Topic, len(t.Partitions), t.Partitions.NumReplicas())
				}
				tab.flush()
				return nil
			})
		},
	}
	brokersFlag(c, &brokers)
	c.Flags().BoolVar(&internal, "internal", false, "internal topics too")
	return c
}

// partitionView is what describe tells of a partition.
type partitionView struct {
	Partition  int32   `json:"partition"`
	Leader     int32   `json:"leader"`
	Epoch      int32   `json:"leaderEpoch"`
	Replicas   []int32 `json:"replicas"`
	ISR        []int32 `json:"isr"`
	LogStart   int64   `json:"logStart"`
	LocalStart int64   `json:"localStart"`
	Archived   int64   `json:"archivedEnd"` // -1: nothing is archived
	End        int64   `json:"highWatermark"`
}

func topicDescribe(g *global) *cobra.Command {
	var brokers string
	c := &cobra.Command{
		Use:   "describe TOPIC...",
		Short: "Show partitions, offsets in both tiers, and configs that differ from the default",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return admin(brokers, func(a *kadm.Client) error {
				for i, name := range args {
					if i > 0 && !g.json() {
						fmt.Println()
					}
					if err := describeTopic(c.Context(), a, g, name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	brokersFlag(c, &brokers)
	return c
}

// topicViews is tiers of a topic by name.
func topicViews(ctx context.Context, brokers, topic string) (vs []partitionView, err error) {
	err = admin(brokers, func(a *kadm.Client) error {
		ts, err := a.ListTopics(ctx, topic)
		if err != nil {
			return failure("look up "+topic, err, "")
		}
		vs, err = tiers(ctx, a, ts[topic], numbers(ts[topic]), true)
		return err
	})
	return vs, err
}

// numbers are all partitions of a topic.
func numbers(d kadm.TopicDetail) (all []int32) {
	for _, p := range d.Partitions.Sorted() {
		all = append(all, p.Partition)
	}
	return all
}

// tiers lists wanted partitions of a topic with their offsets in both tiers. patient:
// it waits for those that have no leader now; otherwise their offsets are -1.
func tiers(ctx context.Context, a *kadm.Client, d kadm.TopicDetail, want []int32, patient bool) ([]partitionView, error) {
	var listed [4]kadm.ListedOffsets
	for i, list := range []func(context.Context, ...string) (kadm.ListedOffsets, error){
		a.ListStartOffsets, a.ListLocalLogStartOffsets, a.ListLatestRemoteOffsets, a.ListEndOffsets,
	} {
		var err error
		listed[i], err = offsets(ctx, d.Topic, want, patient, func(ctx context.Context) (kadm.ListedOffsets, error) { return list(ctx, d.Topic) })
		if err != nil {
			return nil, err
		}
	}
	at := func(i int, p int32) int64 {
		if o, ok := listed[i].Lookup(d.Topic, p); ok && o.Err == nil {
			return o.Offset
		}
		return -1
	}
	var out []partitionView
	for _, p := range d.Partitions.Sorted() {
		if !slices.Contains(want, p.Partition) {
			continue
		}
		v := partitionView{Partition: p.Partition, Leader: p.Leader, Epoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR,
			LogStart: at(0, p.Partition), LocalStart: at(1, p.Partition), Archived: -1, End: at(3, p.Partition)}
		if last := at(2, p.Partition); last >= 0 {
			v.Archived = last + 1
		}
		out = append(out, v)
	}
	return out, nil
}

func describeTopic(ctx context.Context, a *kadm.Client, g *global, name string) error {
	ts, err := a.ListTopicsWithInternal(ctx, name)
	if err != nil {
		return fmt.Errorf("describe %s: %w", name, err)
	}
	d, ok := ts[name]
	if !ok || d.Err != nil {
		return failure("describe "+name, d.Err, "")
	}
	parts, err := tiers(ctx, a, d, numbers(d), false)
	if err != nil {
		return err
	}
	configs := map[string]string{}
	rc, err := a.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return fmt.Errorf("configs of %s: %w", name, err)
	}
	for _, r := range rc {
		for _, e := range r.Configs {
			if e.Source.String() == "DYNAMIC_TOPIC_CONFIG" && e.Value != nil {
				configs[e.Key] = *e.Value
			}
		}
	}
	if g.json() {
		return printJSON(os.Stdout, map[string]any{"topic": name, "id": idText(d.ID), "internal": d.IsInternal, "partitions": parts, "configs": configs})
	}
	fmt.Printf("%s   id %s   %d partitions\n", name, idText(d.ID), len(parts))
	tab := newTable(os.Stdout, "PARTITION", "LEADER", "EPOCH", "ISR", "LOG-START", "LOCAL-START", "ARCHIVED-END", "HIGH-WATERMARK")
	for _, p := range parts {
		tab.row(p.Partition, p.Leader, p.Epoch, p.ISR, known(p.LogStart), known(p.LocalStart), known(p.Archived), known(p.End))
	}
	tab.flush()
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		fmt.Printf("  %s=%s\n", k, configs[k])
	}
	return nil
}

// known is an offset for people: -1 is none, or one that no leader tells now.
func known(offset int64) string {
	if offset < 0 {
		return "-"
	}
	return fmt.Sprint(offset)
}

func topicAlter() *cobra.Command {
	var brokers string
	var partitions int
	var set, unset []string
	c := &cobra.Command{
		Use:   "alter TOPIC...",
		Short: "Change configs, or add partitions",
		Example: `  firn topic alter events -c local.retention.ms=600000
  firn topic alter events --delete-config local.retention.ms
  firn topic alter events -p 12`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configs, err := parseConfigs(set)
			if err != nil {
				return err
			}
			var changes []kadm.AlterConfig
			for _, k := range slices.Sorted(maps.Keys(configs)) {
				changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: configs[k]})
			}
			for _, k := range unset {
				changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
			}
			if len(changes) == 0 && partitions == 0 {
				return fmt.Errorf("nothing to alter: give -c key=value, --delete-config key, or -p")
			}
			return admin(brokers, func(a *kadm.Client) error {
				if len(changes) > 0 {
					rs, err := a.AlterTopicConfigs(c.Context(), changes, args...)
					if err != nil {
						return fmt.Errorf("alter configs: %w", err)
					}
					for _, r := range rs {
						if err := failure("alter "+r.Name, r.Err, r.ErrMessage); err != nil {
							return err
						}
					}
				}
				if partitions > 0 {
					rs, err := a.UpdatePartitions(c.Context(), partitions, args...)
					if err != nil {
						return fmt.Errorf("add partitions: %w", err)
					}
					for _, r := range rs {
						if err := failure("add partitions to "+r.Topic, r.Err, r.ErrMessage); err != nil {
							return err
						}
					}
				}
				fmt.Println("altered", strings.Join(args, " "))
				return nil
			})
		},
	}
	brokersFlag(c, &brokers)
	c.Flags().StringArrayVarP(&set, "config", "c", nil, "set key=value; may be repeated")
	c.Flags().StringArrayVar(&unset, "delete-config", nil, "take the default for this key again; may be repeated")
	c.Flags().IntVarP(&partitions, "partitions", "p", 0, "grow to this many partitions")
	return c
}

func topicDelete() *cobra.Command {
	var brokers string
	c := &cobra.Command{
		Use:   "delete TOPIC...",
		Short: "Delete topics, with everything that is archived of them",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return admin(brokers, func(a *kadm.Client) error {
				rs, err := a.DeleteTopics(c.Context(), args...)
				if err != nil {
					return fmt.Errorf("delete topics: %w", err)
				}
				for _, name := range args {
					if err := failure("delete "+name, rs[name].Err, rs[name].ErrMessage); err != nil {
						return err
					}
					fmt.Println("deleted", name)
				}
				return nil
			})
		},
	}
	brokersFlag(c, &brokers)
	return c
}
