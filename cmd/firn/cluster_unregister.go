package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func clusterUnregister(g *global) *cobra.Command {
	var brokers string
	c := &cobra.Command{
		Use:   "unregister BROKER",
		Short: "Have the cluster forget a broker that was emptied and stopped",
		Long: `Takes a broker that will not come back off the cluster's list. It must hold no
replicas and be stopped; one that was killed counts as running until its session
has ended. Whoever starts a broker of this number later begins anew.`,
		Example: `  firn cluster reassign --drain 3 --wait   then stop broker 3
  firn cluster unregister 3`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || id < 0 {
				return fmt.Errorf("%q is not a broker's number: `firn cluster brokers` lists them", args[0])
			}
			return withClient(brokers, func(cl *kgo.Client, _ *kadm.Client) error {
				if err := unregister(c.Context(), cl, int32(id)); err != nil {
					return err
				}
				if g.json() {
					return printJSON(os.Stdout, map[string]any{"broker": id, "unregistered": true})
				}
				fmt.Printf("broker %d is unregistered\n", id)
				return nil
			})
		},
	}
	brokersFlag(c, &brokers)
	return c
}

// unregister asks for what kadm has no call for.
func unregister(ctx context.Context, cl *kgo.Client, id int32) error {
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = id
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("unregister broker %d: %w", id, err)
	}
	text := ""
	if resp.ErrorMessage != nil {
		text = *resp.ErrorMessage
	}
	return failure(fmt.Sprintf("unregister broker %d", id), kerr.ErrorForCode(resp.ErrorCode), text)
}

// registered are the brokers that the cluster knows, those that are away too. One
// that is too old to tell tells of those that are there.
func registered(ctx context.Context, cl *kgo.Client) (ids []int32, err error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType, req.IncludeFencedBrokers = 1, true
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("describe the cluster: %w", err)
	}
	for _, b := range resp.Brokers {
		ids = append(ids, b.NodeID)
	}
	return ids, nil
}
