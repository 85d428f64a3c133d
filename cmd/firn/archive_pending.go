package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"firn/broker/console"
)

func archivePending(g *global) *cobra.Command {
	var adminURL, brokers string
	c := &cobra.Command{
		Use:   "pending [TOPIC[:PARTITION]]",
		Short: "What is not archived yet, and why",
		Long: `Asks each running broker, by its admin listener, how far the archive of the partitions
that it leads is. Where the admin listeners are, the broker at -b tells; --admin names one
broker's instead, which then tells of all the partitions that it hosts.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var ps []console.ArchivePartition
			var unknown, err error
			if adminURL == "" {
				ps, unknown, err = pendingAnywhere(c.Context(), brokers)
			} else {
				ps, err = pendingPartitions(c.Context(), adminURL)
			}
			if err == nil && len(args) == 1 {
				ps, err = pendingOf(ps, args[0], unknown)
			}
			if err != nil {
				return err
			}
			if g.json() {
				for _, p := range ps {
					if err := printJSON(os.Stdout, p); err != nil {
						return err
					}
				}
				return unknown
			}
			tab := newTable(os.Stdout, "TOPIC", "PARTITION", "ARCHIVED-END", "END", "PENDING", "OLDEST", "REASON")
			for _, p := range ps {
				tab.row(p.Topic, p.Partition, p.ArchivedEnd, p.End, bytesText(p.PendingBytes),
					time.Duration(p.PendingSeconds*float64(time.Second)).Round(time.Second), pendingWhy(p))
			}
			tab.flush()
			return unknown
		},
	}
	brokersFlag(c, &brokers)
	c.Flags().StringVar(&adminURL, "admin", "", "the broker's admin listener, host:port")
	return c
}

// pendingWhy is why p is not archived: the last error is often the whole reason.
func pendingWhy(p console.ArchivePartition) string {
	if p.LastError == "" || p.LastError == p.Reason {
		return p.Reason
	}
	return p.Reason + " (" + p.LastError + ")"
}

// pendingOf are those of ps that arg, TOPIC or TOPIC:PARTITION, names. None is an
// error, unless what is unknown may be the reason.
func pendingOf(ps []console.ArchivePartition, arg string, unknown error) ([]console.ArchivePartition, error) {
	topic, nums, err := splitPartition(arg)
	if err != nil {
		return nil, err
	}
	ps = slices.DeleteFunc(ps, func(p console.ArchivePartition) bool {
		return p.Topic != topic || nums != nil && p.Partition != nums[0]
	})
	if len(ps) == 0 && unknown == nil {
		return nil, fmt.Errorf("no broker leads %s with an archive (`firn topic list`)", arg)
	}
	return ps, nil
}

// pendingAnywhere asks the broker that is alone, or each of a cluster for what it
// leads. unknown tells what could not be asked.
func pendingAnywhere(ctx context.Context, brokers string) (ps []console.ArchivePartition, unknown, err error) {
	err = admin(brokers, func(a *kadm.Client) error {
		v, err := loadCluster(ctx, a)
		if err != nil {
			return err
		}
		if len(v.live) > 1 {
			ps, unknown = v.pending(func(id int32) ([]console.ArchivePartition, error) {
				at, err := adminListener(ctx, a, v, id)
				if err != nil {
					return nil, err
				}
				return pendingPartitions(ctx, at)
			})
			return nil
		}
		at, err := askBroker(ctx, brokers, "admin.listener")
		if err != nil {
			return err
		}
		if at == "" {
			return fmt.Errorf("the broker at %s has no admin listener (admin.listener is empty)", brokers)
		}
		ps, err = pendingPartitions(ctx, at)
		return err
	})
	return ps, unknown, err
}

// pending is what each broker answers of the partitions that it leads.
func (v *clusterView) pending(ask func(id int32) ([]console.ArchivePartition, error)) (out []console.ArchivePartition, unknown error) {
	type partition struct {
		topic string
		num   int32
	}
	leader := map[partition]int32{}
	for _, p := range v.parts {
		leader[partition{p.Topic, p.Partition}] = p.Leader
	}
	for _, id := range slices.Sorted(maps.Keys(v.live)) {
		ps, err := ask(id)
		if err != nil {
			unknown = errors.Join(unknown, fmt.Errorf("what broker %d leads is not listed: %w", id, ourWords(err)))
		}
		for _, p := range ps {
			if l, ok := leader[partition{p.Topic, p.Partition}]; ok && l == id {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b console.ArchivePartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out, unknown
}

func pendingPartitions(ctx context.Context, base string) (ps []console.ArchivePartition, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err = getJSON(ctx, base, "/api/v1/archive/partitions", &ps)
	return ps, err
}

// getJSON asks a broker's admin listener, whatever status it answers with.
func getJSON(ctx context.Context, base, path string, into any) error {
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+path, nil)
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err
		}
		return fmt.Errorf("no broker's admin listener answers at %s: %w", base, err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s is no admin listener of firn's: it answers %s with %s (%w)", base, path, resp.Status, err)
	}
	return nil
}
