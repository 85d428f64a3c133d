package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"firn/broker/console"
)

// trouble is one thing that is wrong, with the reason.
type trouble struct {
	Kind      string  `json:"kind"` // offline, under-min-isr, under-replicated, un-archived, controller, degraded, not-ready, unknown
	Broker    *int32  `json:"broker,omitempty"`
	Topic     string  `json:"topic,omitempty"`
	Partition *int32  `json:"partition,omitempty"`
	Leader    *int32  `json:"leader,omitempty"`
	Replicas  []int32 `json:"replicas,omitempty"`
	ISR       []int32 `json:"isr,omitempty"`
	Why       string  `json:"why"`
}

func (t trouble) where() string {
	switch {
	case t.Broker != nil:
		return fmt.Sprintf("broker %d", *t.Broker)
	case t.Partition == nil:
		return "-"
	}
	return fmt.Sprintf("%s-%d", t.Topic, *t.Partition)
}

// troubles are the partitions that lack replicas. minISR is each topic's
// min.insync.replicas.
func (v *clusterView) troubles(minISR map[string]int) (out []trouble) {
	if v.controller < 0 {
		out = append(out, trouble{Kind: "controller", Why: "no broker is controller: nobody elects leaders. It passes by itself once the metadata store is reachable"})
	}
	for _, p := range v.parts {
		t := trouble{Topic: p.Topic, Partition: &p.Partition, Leader: &p.Leader, Replicas: p.Replicas, ISR: p.ISR}
		var why []string
		for _, id := range p.Replicas {
			if !slices.Contains(p.ISR, id) || p.Leader < 0 {
				if w := v.whyNot(p, id); w != "" {
					why = append(why, w)
				}
			}
		}
		switch least := min(minISR[p.Topic], len(p.Replicas)); {
		case p.Leader < 0:
			t.Kind = "offline"
			if why == nil {
				why = []string{"no replica can vouch for all that was committed, though all are there: they are compared, or wait for a repair. " +
					"`firn cluster elect --unclean` accepts what is lost"}
			}
		case len(p.ISR) < least:
			t.Kind = "under-min-isr"
			why = append(why, fmt.Sprintf("acks=all is refused: %d of min.insync.replicas=%d", len(p.ISR), least))
		case len(p.ISR) < len(p.Replicas):
			t.Kind = "under-replicated"
		default:
			continue
		}
		t.Why = strings.Join(why, "; ")
		out = append(out, t)
	}
	return out
}

// whyNot says why a replica is not in sync.
func (v *clusterView) whyNot(p kadm.PartitionDetail, id int32) string {
	_, there := v.live[id]
	m, moving := v.move(p)
	switch {
	case !there:
		return fmt.Sprintf("broker %d is away", id)
	case slices.Contains(p.OfflineReplicas, id):
		return fmt.Sprintf("broker %d has given its replica up: its log failed or was damaged; its health and log tell", id)
	case moving && slices.Contains(m.AddingReplicas, id):
		return fmt.Sprintf("broker %d is being added and copies", id)
	case p.Leader < 0:
		return ""
	}
	return fmt.Sprintf("broker %d lags", id)
}

func clusterHealth(g *global) *cobra.Command {
	var brokers string
	var lag time.Duration
	c := &cobra.Command{
		Use:   "health",
		Short: "What is offline, under-replicated, lagging or not archived, and why",
		Long: `Lists what is wrong, with the reason. Each broker is asked at its admin listener what
it has not archived, and whether it reaches the metadata store and the archive, which
it then tries. One whose listener can't be reached from here is listed as unknown.

Exit codes:
  0  nothing is wrong
  1  something is, or no broker answers
  2  nothing wrong is known, but something could not be found out`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var found []trouble
			err := admin(brokers, func(a *kadm.Client) error {
				v, err := loadCluster(c.Context(), a)
				if err != nil {
					return err
				}
				least, err := minInsync(c.Context(), a, v)
				if err != nil {
					return err
				}
				found = append(v.troubles(least), brokerTroubles(v.status().Brokers, lag, func(id int32) (console.Health, []console.ArchivePartition, error) {
					return askBrokerHealth(c.Context(), a, v, id)
				})...)
				return nil
			})
			if err != nil {
				return err
			}
			return showTroubles(g, found)
		},
	}
	brokersFlag(c, &brokers)
	c.Flags().DurationVar(&lag, "archive-lag", 2*time.Hour, "records older than this should be archived")
	return c
}

// showTroubles prints them; the exit code is 1 with one that is known, 2 with others.
func showTroubles(g *global, found []trouble) error {
	bad := 0
	tab := newTable(os.Stdout)
	for _, t := range found {
		if t.Kind != "unknown" {
			bad++
		}
		if g.json() {
			if err := printJSON(os.Stdout, t); err != nil {
				return err
			}
			continue
		}
		tab.row(t.Kind, t.where(), t.Why)
	}
	tab.flush()
	if bad > 0 {
		return &exitError{1}
	}
	if len(found) > 0 {
		if !g.json() {
			fmt.Println("nothing wrong is known, but not all could be found out (exit code 2)")
		}
		return &exitError{2}
	}
	if !g.json() {
		fmt.Println("healthy: every partition is led, fully replicated and archived in time")
	}
	return nil
}

// minInsync reads min.insync.replicas of the topics that lack replicas.
func minInsync(ctx context.Context, a *kadm.Client, v *clusterView) (map[string]int, error) {
	var names []string
	for _, p := range v.parts {
		if len(p.ISR) < len(p.Replicas) && !slices.Contains(names, p.Topic) {
			names = append(names, p.Topic)
		}
	}
	least := map[string]int{}
	if names == nil {
		return least, nil
	}
	rs, err := a.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("configs of %s: %w", strings.Join(names, ", "), err)
	}
	for _, r := range rs {
		for _, e := range r.Configs {
			if e.Key == "min.insync.replicas" && e.Value != nil {
				least[r.Name], _ = strconv.Atoi(*e.Value)
			}
		}
	}
	return least, nil
}

// brokerTroubles asks each broker what it lacks, and what of that which it leads its
// archive lacks; all at once, for one that waits for a store takes its time.
func brokerTroubles(ids []int32, lag time.Duration, ask func(id int32) (console.Health, []console.ArchivePartition, error)) []trouble {
	found := make([][]trouble, len(ids))
	var asking sync.WaitGroup
	for i, id := range ids {
		asking.Go(func() {
			h, ps, err := ask(id)
			if err != nil {
				found[i] = []trouble{{Kind: "unknown", Broker: &id, Why: fmt.Sprintf("how it is, and whether all that it leads is archived: %v", ourWords(err))}}
				return
			}
			found[i] = ofBroker(id, lag, h, ps)
		})
	}
	asking.Wait()
	return slices.Concat(found...)
}

// ofBroker is what is wrong with a broker by what it answers.
func ofBroker(id int32, lag time.Duration, h console.Health, ps []console.ArchivePartition) (out []trouble) {
	for _, part := range slices.Sorted(maps.Keys(h.Checks)) {
		if state := h.Checks[part]; state != "ok" && !h.Ready { // of one that is ready, Degraded tells
			out = append(out, trouble{Kind: "not-ready", Broker: &id, Why: part + ": " + state})
		}
	}
	for _, why := range h.Degraded {
		out = append(out, trouble{Kind: "degraded", Broker: &id, Why: why})
	}
	for _, p := range ps {
		if why := behind(p, lag); why != "" {
			out = append(out, trouble{Kind: "un-archived", Topic: p.Topic, Partition: &p.Partition, Leader: &id, Why: why})
		}
	}
	return out
}

// askBrokerHealth asks a broker's admin listener.
func askBrokerHealth(ctx context.Context, a *kadm.Client, v *clusterView, id int32) (h console.Health, ps []console.ArchivePartition, err error) {
	at, err := adminListener(ctx, a, v, id)
	if err != nil {
		return h, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := getJSON(ctx, at, "/readyz?wait=5s", &h); err != nil {
		return h, nil, err
	}
	err = getJSON(ctx, at, "/api/v1/archive/partitions", &ps)
	return h, ps, err
}

// behind says why a partition's archive is too far behind; "" if it isn't.
func behind(p console.ArchivePartition, lag time.Duration) string {
	age := time.Duration(p.PendingSeconds * float64(time.Second)).Round(time.Second)
	switch {
	case p.LastError != "":
		return fmt.Sprintf("%s pending since %v: %s", bytesText(p.PendingBytes), age, p.LastError)
	case age > lag:
		return fmt.Sprintf("%s pending since %v: %s", bytesText(p.PendingBytes), age, orDash(p.Reason))
	}
	return ""
}

// adminListener is where a broker's admin listener is, as seen from here.
func adminListener(ctx context.Context, a *kadm.Client, v *clusterView, id int32) (string, error) {
	rs, err := a.DescribeBrokerConfigs(ctx, id)
	if err != nil {
		return "", err
	}
	at := ""
	for _, r := range rs {
		if r.Err != nil {
			return "", r.Err
		}
		for _, e := range r.Configs {
			if e.Key == "admin.listener" && e.Value != nil {
				at = *e.Value
			}
		}
	}
	if at == "" {
		return "", fmt.Errorf("it has no admin listener")
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return "", fmt.Errorf("admin.listener %q: %w", at, err)
	}
	there := v.live[id].Host
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.IsUnspecified():
		host = there
	case loopback(host) && !loopback(there):
		return "", fmt.Errorf("its admin listener, %s, is open on that machine alone", at)
	}
	return net.JoinHostPort(host, port), nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
